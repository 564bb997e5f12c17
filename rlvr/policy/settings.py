"""What a policy is set to when it is loaded, beside what transformers knows of it."""

from dataclasses import dataclass

import torch


@dataclass
class Settings:
    """How a policy computes."""

    dtype: torch.dtype = torch.float32  # of its forward passes
    # In fp16, gradients are multiplied by this until the update, because small ones would underflow
    # to 0. An overflow halves it.
    loss_scale: float = 2.0**16
    gradient_checkpointing: bool = False  # the backward pass computes activations again
    compiled: bool = False  # its layers are

    @property
    def half(self) -> bool:
        """Whether it computes in bf16 or fp16, with its weights in fp32."""
        return self.dtype != torch.float32


def settings_of(policy) -> Settings:
    """Return the settings of a policy; the defaults for one that load_weights has not loaded."""
    return getattr(policy, "settings", Settings())
