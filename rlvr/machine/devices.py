"""The device that a rank computes on, and in which numbers.

Whether fewer CPU threads would be faster, as on a machine that others use, too.
"""

import os
import sys
import time
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


def seconds_of_a_pass(policy, ids: torch.Tensor) -> float:
    """Wall time of a forward and backward pass over the ids [n, S]; gradients are dropped."""
    started = time.perf_counter()
    policy.base_model(input_ids=ids, use_cache=False).last_hidden_state.sum().backward()
    policy.zero_grad()
    return time.perf_counter() - started


def advise_on_threads(policy) -> None:
    """Print a line where fewer threads are over 1.3 times as fast as those that torch would use.

    On a small policy a second thread gains little, and beside other busy processes it costs much.
    Trying takes some tenths of a second, and changes neither weights nor random numbers.
    """
    threads = torch.get_num_threads()
    if threads == 1:
        return
    parameters = sum(parameter.numel() for parameter in policy.parameters())
    tokens = min(2048, max(8, int(6e8 / parameters)))  # about a tenth of a second
    ids = torch.zeros(max(1, tokens // 32), min(tokens, 32), dtype=torch.long)
    fastest = {}
    try:
        for count in (threads, threads // 2, 1) * 3:
            torch.set_num_threads(count)
            seconds = seconds_of_a_pass(policy, ids)
            fastest[count] = min(seconds, fastest.get(count, seconds))
    finally:
        torch.set_num_threads(threads)
    best = min(fastest, key=fastest.get)
    gain = fastest[threads] / fastest[best]
    if gain > 1.3:
        print(f"--num_threads {best} is {gain:.1f} times as fast here as {threads} threads")
