"""The device that a rank computes on, in which numbers, and what it keeps of its memory."""

import ctypes
from contextlib import contextmanager, nullcontext, suppress

from rlvr import world
from rlvr.errors import UserError

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel


def choose_device() -> torch.device:
    """This rank's GPU, or the CPU. UserError where this machine has more ranks than GPUs."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    there = torch.cuda.device_count()
    if world.LOCAL_RANK >= there:
        raise UserError(
            f"local rank {world.LOCAL_RANK} sees {there} GPUs: start as many processes on a "
            "machine as it has GPUs, and let each of them see all"
        )
    device = torch.device(f"cuda:{world.LOCAL_RANK}")
    torch.cuda.set_device(device)
    return device


def keep_freed_memory() -> None:
    """Keep up to 128 MB that are freed for what comes next, but for buffers of 32 MB and more.

    glibc would give most of it back to the system, which clears each page before it can be taken
    again: some percent of a step of the tiny policy. Other C libraries keep their own rules.
    """
    with suppress(AttributeError):
        set_option = ctypes.CDLL(None).mallopt
        set_option(-3, 2**25)  # M_MMAP_THRESHOLD
        set_option(-1, 2**27)  # M_TRIM_THRESHOLD


def computes_in_bf16(policy) -> bool:
    """Whether its forward passes are in bf16: as load_weights has said, or else on a GPU."""
    return getattr(policy, "bf16", policy.device.type == "cuda")


@contextmanager
def forward_passes(device: torch.device, in_bf16: bool, computed_again: bool):
    """Within it forward passes are in bf16, or else in the numbers of the weights.

    `computed_again` says whether the backward pass computes their activations again.
    """
    # In bf16 on a CPU, the backward pass of torch's fused attention takes five times as long as
    # that of plain products. But activations are computed again outside of this context, by the
    # fused attention, and it must be the one that has computed them first.
    plain = in_bf16 and device.type == "cpu" and not computed_again
    attention = sdpa_kernel(SDPBackend.MATH) if plain else nullcontext()
    with torch.autocast(device.type, torch.bfloat16, enabled=in_bf16), attention:
        yield
