"""What transformers 5.24 has renamed, by the new name if there is one."""

import inspect


def cache_name(model) -> str:
    """Return the argument by which a base model takes the keys and values of earlier tokens."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


def computes_again(policy) -> bool:
    """Return whether the backward pass computes activations again (gradient checkpointing).

    transformers' own property visits all modules, which takes milliseconds.
    """
    return getattr(policy, "computes_again", False)


def compute_again(policy) -> None:
    """Let the backward pass compute activations again."""
    new = getattr(policy, "activation_checkpointing_enable", None)
    (new or policy.gradient_checkpointing_enable)()
    policy.computes_again = True
