"""Values of a tour: what tells that one has changed, and how its numbers are kept for a page."""

import math

from rlvr.flags import Config

import torch


def flat(values):
    """The parts of a list of lists of lists."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from flat(value)
        else:
            yield value


def rounded(value):
    """A list of lists with the numbers as they are shown."""
    return [*map(rounded, value)] if isinstance(value, list | tuple) else number(value)


def number(value):
    """Four digits; what is not finite as text."""
    if isinstance(value, float):
        return float(f"{value:.4g}") if math.isfinite(value) else str(value)
    return value


def fields_of(value) -> dict:
    """The fields of an object whose class stands in the script or in common.py."""
    own = type(value).__module__ in ("__main__", "common") and hasattr(value, "__dict__")
    return vars(value) if own and not isinstance(value, Config) else {}


def fingerprints(value) -> tuple:
    """(of the value itself, of its fields): others once it or they have been changed."""
    fields = {name: fingerprint(part) for name, part in fields_of(value).items()}
    return (id(value) if fields else fingerprint(value)), fields


def fingerprint(value):
    """What differs where a value has been changed in place; other values where it is plain."""
    if isinstance(value, torch.Tensor):
        return id(value), value._version
    if isinstance(value, torch.nn.Module):
        parts = [part for weight in value.parameters() for part in (weight, weight.grad)]
        return [part is not None and part._version for part in parts]
    if isinstance(value, list | tuple):
        return [fingerprint(part) for part in value]
    if isinstance(value, dict):
        return {key: fingerprint(part) for key, part in value.items()}
    return value if isinstance(value, bool | int | float | str | None) else id(value)


def policy_text(policy) -> str:
    """How many weights it has, and how long their gradient is."""
    count = sum(part.numel() for part in policy.parameters())
    gradients = [part.grad.norm() for part in policy.parameters() if part.grad is not None]
    norm = f", gradient norm {torch.stack(gradients).norm():.4g}" if gradients else ""
    return f"{count:,} weights{norm}"
