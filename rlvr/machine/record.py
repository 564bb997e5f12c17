"""What a run is made with: the command, the versions, the commit, and the machine."""

import contextlib
import importlib.metadata
import platform
import resource
import shlex
import subprocess
import sys
import time
from pathlib import Path

from rlvr import world

import torch

PACKAGES = ("torch", "transformers", "vllm")


def record_of(device: torch.device, earlier: list[str]) -> dict:
    """Return what config.json records of a run on such a device.

    `earlier` holds the commands that began the run, if this one resumes it.
    """
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return {
        "commands": [*earlier, shlex.join(["python", *sys.argv])],
        "started": time.strftime("%Y-%m-%d %H:%M:%S"),
        "commit": git("rev-parse", "HEAD"),
        "changed": bool(git("status", "--porcelain", "--untracked-files=no")),
        "ranks": world.WORLD_SIZE,
        "device": gpu,
        "versions": versions,
    }


def peak_memory_gb(device: torch.device) -> float:
    """Return the most memory so far, in 1e9 bytes: of the GPU's tensors, or of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e9
    unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def git(*command: str) -> str:
    """Return what git prints about this project; "" where it is no repository of git."""
    root = Path(__file__).resolve().parents[2]
    try:
        done = subprocess.run(["git", "-C", root, *command], capture_output=True, text=True)
    except OSError:  # there is no git
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
