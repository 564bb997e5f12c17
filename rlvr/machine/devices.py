"""The device that a rank computes on, and its dtype."""

from rlvr import world
from rlvr.errors import UserError

import torch


def choose_device(wanted: str = "auto") -> torch.device:
    """Return this rank's accelerator, or the CPU, as --device asks.

    "auto" takes the accelerator that torch finds, except on a Mac, whose GPU nobody has tried yet.
    UserError if the device is not there, or if this machine has more ranks than GPUs.
    """
    found = torch.accelerator.current_accelerator(check_available=True)
    kind = found.type if found else "cpu"
    if wanted == "cpu" or (wanted == "auto" and kind in ("cpu", "mps")):
        return torch.device("cpu")
    if wanted not in ("auto", kind):
        raise UserError(f"--device {wanted}: torch finds none on this machine")
    there = torch.accelerator.device_count()
    if world.LOCAL_RANK >= there:
        raise UserError(
            f"local rank {world.LOCAL_RANK} sees {there} GPUs: start as many processes on a "
            "machine as it has GPUs, and let each of them see all"
        )
    torch.accelerator.set_device_index(world.LOCAL_RANK)
    # On an H100 torch prefers cuDNN's attention, which makes a plan for each new length: a token of
    # a rollout took 57 ms with it, and takes 21 ms without.
    torch.backends.cuda.enable_cudnn_sdp(False)
    return torch.device(kind, world.LOCAL_RANK)


def computes_in_bf16(policy) -> bool:
    """Return whether a policy's forward passes are in bf16, as load_weights has set it."""
    return getattr(policy, "bf16", False)
