"""The device that a rank computes on, and in which numbers."""

import os
import sys
from pathlib import Path

from rlvr import world

import torch

A_GPU = Path("/dev/nvidia0")  # it is there where a driver is, of whatever version


def choose_device() -> torch.device:
    """This rank's GPU, or the CPU; with a warning where there is a GPU that torch cannot use."""
    if torch.cuda.is_available():
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
