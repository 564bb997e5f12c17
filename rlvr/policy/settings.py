"""What a policy is set to when it is loaded, beside what transformers knows of it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlvr.policy.images import ImageReader


@dataclass
class Settings:
    """How a policy computes, and what it reads."""

    bf16: bool = False  # its forward passes are in bf16
    gradient_checkpointing: bool = False  # the backward pass computes activations again
    compiled: bool = False  # its layers are
    images: "ImageReader | None" = None  # None: it reads only text


def settings_of(policy) -> Settings:
    """Return the settings of a policy; the defaults for one that load_weights has not loaded."""
    return getattr(policy, "settings", Settings())
