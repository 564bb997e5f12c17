"""The device that a rank computes on, its dtype, and the memory that it keeps."""

import ctypes
from contextlib import contextmanager, nullcontext, suppress

from rlvr import world
from rlvr.errors import UserError

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel


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


def has_bf16(device: torch.device) -> bool:
    """Return whether a device computes in bf16: a GPU of compute capability 8.0 or more."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)


def keep_freed_memory() -> None:
    """Keep up to 128 MB of freed memory for later use, except for buffers of 32 MB and more.

    glibc would return most of it to the system, which clears each page before it is used again: a
    few percent of a step of the tiny policy. Other C libraries keep their own rules.
    """
    with suppress(AttributeError):
        set_option = ctypes.CDLL(None).mallopt
        set_option(-3, 2**25)  # M_MMAP_THRESHOLD
        set_option(-1, 2**27)  # M_TRIM_THRESHOLD


def computes_in_bf16(policy) -> bool:
    """Return whether a policy's forward passes are in bf16, as load_weights has set it."""
    return getattr(policy, "bf16", False)


@contextmanager
def forward_passes(device: torch.device, in_bf16: bool, computed_again: bool):
    """A context in which forward passes are in bf16, or else in the dtype of the weights.

    `computed_again` says whether the backward pass computes their activations again.
    """
    # In bf16 on a CPU, the backward pass of torch's fused attention takes five times as long as
    # that of plain products. But activations are computed again outside of this context, by fused
    # attention, so fused attention must have computed them the first time, too.
    plain = in_bf16 and device.type == "cpu" and not computed_again
    attention = sdpa_kernel(SDPBackend.MATH) if plain else nullcontext()
    with torch.autocast(device.type, torch.bfloat16, enabled=in_bf16), attention:
        yield
