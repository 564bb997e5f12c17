"""This rank's device, the process group, and collectives over the ranks.

All ranks have to call each `gather` and `global_` function together. With one process they need no
process group.
"""

import contextlib
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from rlvr import world
from rlvr.errors import UserError

import torch
import torch.distributed as dist

T = TypeVar("T")
Number = TypeVar("Number", int, float)
TIMEOUT = timedelta(hours=2)  # ranks drift apart in long evaluations


def choose_device(wanted: str = "auto") -> torch.device:
    """Return this rank's accelerator, or the CPU, as --device asks.

    "auto" takes the accelerator that torch finds, except on a Mac, whose GPU nobody has tried yet.
    UserError if the device is not there, or if this machine has more ranks than GPUs.
    """
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    kind = accelerator.type if accelerator else "cpu"
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


@contextlib.contextmanager
def process_group(device: torch.device):
    """Connect the ranks, which compute on such a device, until the block ends."""
    if world.WORLD_SIZE == 1:
        yield
        return
    # Objects, such as the problems that rank 0 has read, are sent from CPU to CPU: on a GPU, their
    # pickles would take twice their size.
    backend = dist.get_default_backend_for_device(device)
    if device.type != "cpu":
        backend = f"cpu:gloo,{device.type}:{backend}"
    dist.init_process_group(backend, timeout=TIMEOUT)
    try:
        yield
    finally:
        if dist.is_initialized():  # an engine of vLLM takes the group along when it ends
            dist.destroy_process_group()


def gather(items: list) -> list:
    """Return the items of all ranks, in rank order."""
    parts = [items] * world.WORLD_SIZE
    if world.WORLD_SIZE > 1:
        dist.all_gather_object(parts, items)
    return [item for part in parts for item in part]


def from_rank_0(function: Callable[..., T], *args) -> T:
    """Return on every rank what function(*args) returns on rank 0, or raise its UserError.

    The other ranks wait for it. So all ranks agree even if the result depends on the clock.
    """
    if world.WORLD_SIZE == 1:
        return function(*args)
    results: list = [None]
    if world.RANK == 0:
        try:
            results = [function(*args)]
        except UserError as error:
            dist.broadcast_object_list([UserError(str(error))])  # its notes are shown once
            raise
    dist.broadcast_object_list(results)
    if isinstance(results[0], UserError):
        raise results[0]
    return results[0]


def gather_groups(size: int, *tensors: torch.Tensor) -> list[torch.Tensor]:
    """Gather each tensor [b * G, T], or [b * G], from all W ranks: [W * b, G, T], or [W * b, G].

    G is the size of a group. Rank r has the groups [r::W], since prompts are dealt out in turn.
    Values beyond a rank's own T are 0.
    """
    grouped = [tensor.unflatten(0, (-1, size)) for tensor in tensors]
    if world.WORLD_SIZE == 1:
        return grouped
    gathered = []
    by_rank = gather([[tensor.cpu() for tensor in grouped]])
    for parts in zip(*by_rank, strict=True):
        width = max(part.shape[-1] for part in parts)
        padded = [torch.nn.functional.pad(part, (0, width - part.shape[-1])) for part in parts]
        gathered.append(torch.stack(padded, 1).flatten(0, 1).to(tensors[0].device))
    return gathered


def global_sum(*values) -> list[float]:
    """Return the sum over the ranks of each value, a number or a tensor with one element."""
    by_rank = gather([[float(value) for value in values]])
    return [sum(column) for column in zip(*by_rank, strict=True)]


def global_mean(*values: torch.Tensor) -> list[float]:
    """Return the mean of each tensor over all ranks, which hold equally many elements."""
    return [total / world.WORLD_SIZE for total in global_sum(*(value.mean() for value in values))]


def global_max(value: Number) -> Number:
    """Return the largest value of any rank."""
    return max(gather([value]))
