"""The device that a rank computes on, and in which numbers."""

import os
import sys
from contextlib import contextmanager, nullcontext
from pathlib import Path

from rlvr import world
from rlvr.errors import UserError

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

A_GPU = Path("/dev/nvidia0")  # it is there where a driver is, of whatever version


def choose_device() -> torch.device:
    """This rank's GPU, or the CPU; with a warning where there is a GPU that torch cannot use.

    UserError where this machine has more ranks than GPUs.
    """
    if torch.cuda.is_available():
        there = torch.cuda.device_count()
        if world.LOCAL_RANK >= there:
            raise UserError(
                f"local rank {world.LOCAL_RANK} sees {there} GPUs: start as many processes on a "
                "machine as it has GPUs, and let each of them see all"
            )
        device = torch.device(f"cuda:{world.LOCAL_RANK}")
        torch.cuda.set_device(device)
        return device
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    if A_GPU.exists() and not hidden and world.RANK == 0:
        sys.stderr.write(
            f"warning: there is a GPU, but torch {torch.__version__} cannot use it, so that all "
            "runs on the CPU. Its driver may be too old (nvidia-smi tells its CUDA version, this "
            f"torch wants {torch.version.cuda or 'none: it is a build for CPUs'})\n"
        )
    return torch.device("cpu")


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
