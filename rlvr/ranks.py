"""Collectives over the ranks, and a watch that notices when a rank falls silent.

Every `gather` and `global_` function has to be called on all ranks together. With one process they
need no process group.
"""

import os
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

from rlvr import world
from rlvr.errors import UserError

import torch
import torch.distributed as dist

BEAT = 5.0  # seconds between two signs of life of a rank
SILENCE = 45.0  # seconds without a sign of life after which a rank is taken for dead


def start_process_group(timeout_seconds: float) -> None:
    """Connect the ranks; a rank that waits longer than the timeout for another one ends."""
    if world.WORLD_SIZE > 1:
        backend = "nccl" if torch.cuda.is_available() else "gloo"
        dist.init_process_group(backend, timeout=timedelta(seconds=timeout_seconds))


def gather(items: list) -> list:
    """The items of all ranks, in rank order."""
    parts = [items] * world.WORLD_SIZE
    if world.WORLD_SIZE > 1:
        dist.all_gather_object(parts, items)
    return [item for part in parts for item in part]


def from_rank_0(function, *given):
    """What function(*given) gives on rank 0, on every rank; or the UserError that it raises there.

    The other ranks wait for it. What the clock decides is then the same for all.
    """
    if world.WORLD_SIZE == 1:
        return function(*given)
    found = [None, None]
    if world.RANK == 0:
        try:
            found = [function(*given), None]
        except UserError as error:
            found = [None, error]
    dist.broadcast_object_list(found)
    result, error = found
    if error:
        raise error
    return result


def gather_groups(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """Each tensor [b, G, T], or [b, G], of this rank -> that of all W ranks, [W * b, G, T].

    Rank r has the rows [r::W], as the prompts of a batch are dealt out. Beyond a rank's own T the
    values are 0.
    """
    if world.WORLD_SIZE == 1:
        return [*tensors]
    gathered = []
    by_rank = gather([[tensor.cpu() for tensor in tensors]])
    for parts in zip(*by_rank, strict=True):
        width = max(part.shape[-1] for part in parts)
        padded = [torch.nn.functional.pad(part, (0, width - part.shape[-1])) for part in parts]
        gathered.append(torch.stack(padded, 1).flatten(0, 1).to(tensors[0].device))
    return gathered


def global_sum(*values) -> list[float]:
    """Each of the values, numbers or tensors with one element, summed over the ranks."""
    by_rank = gather([[float(value) for value in values]])
    return [sum(column) for column in zip(*by_rank, strict=True)]


def global_mean(*values: torch.Tensor) -> list[float]:
    """The mean of each tensor, averaged over the ranks, which hold equally many elements."""
    return [total / world.WORLD_SIZE for total in global_sum(*(value.mean() for value in values))]


def global_max(value: float) -> float:
    """The largest value of any rank."""
    return max(gather([value]))


def watch_ranks(ended: threading.Event) -> None:
    """Until `ended`, end this process when another rank falls silent.

    A rank can be silent because its machine is gone or because it was stopped. Nothing else can end
    this process then, since its main thread waits for that rank.
    """
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(address, port, is_master=False)
    beats = [0] * world.WORLD_SIZE  # how often each rank has been heard
    last_heard = [time.monotonic()] * world.WORLD_SIZE
    while not ended.wait(BEAT):
        try:
            store.add(f"alive/{world.RANK}", 1)
            counts = [store.add(f"alive/{rank}", 0) for rank in range(world.WORLD_SIZE)]
        except dist.DistError:
            counts = beats  # the machine that keeps the store, rank 0's, is silent
        for rank, count in enumerate(counts):
            if count != beats[rank]:
                beats[rank], last_heard[rank] = count, time.monotonic()
        silent = [r for r, heard in enumerate(last_heard) if time.monotonic() > heard + SILENCE]
        if silent:
            sys.stderr.write(
                f"{Path(sys.argv[0]).name}: error: rank {world.RANK} has not heard of rank "
                f"{silent[0]} for {SILENCE:g} s; resume from the last checkpoint\n"
            )
            os._exit(2)
