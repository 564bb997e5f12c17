"""What a policy is set to when it is loaded, beside what transformers knows of it."""

from dataclasses import dataclass


@dataclass
class Settings:
    """How a policy computes."""

    bf16: bool = False  # its forward passes are in bf16
    gradient_checkpointing: bool = False  # the backward pass computes activations again
    compiled: bool = False  # its layers are


def settings_of(policy) -> Settings:
    """Return the settings of a policy; the defaults for one that load_weights has not loaded."""
    return getattr(policy, "settings", Settings())
