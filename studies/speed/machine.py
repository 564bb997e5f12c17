"""What a time was measured on, and whether other processes used the machine meanwhile."""

import os
import re
from pathlib import Path

import torch

MOST_USED = 0.1  # cores that others may use while a time is measured
TICKS = os.sysconf("SC_CLK_TCK")  # a second, in what Linux counts


def describe(threads: int) -> str:
    """The machine, the threads and the versions, in a line."""
    flags = Path("/proc/cpuinfo").read_text()
    name = re.search(r"model name\s*: (.*)", flags)[1]
    bf16 = "bf16" if re.search(r"avx512_bf16|amx_bf16", flags) else "no bf16"
    device = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores of {name} ({bf16} instructions){device}; threads: {threads}"


def used_by_all() -> float:
    """Core seconds that all processes have used, and that a host has taken away."""
    user, nice, system, _, _, irq, softirq, steal, *_ = map(
        int, Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    )
    return (user + nice + system + irq + softirq + steal) / TICKS


def used_by_us() -> float:
    """Core seconds that this process and its descendants have used, those that ended included."""
    parents, ticks = {}, {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        parents[int(file.parent.name)] = int(fields[1])
        ticks[int(file.parent.name)] = sum(map(int, fields[11:15]))  # its own, and of those it had
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(ticks.get(pid, 0) for pid in ours) / TICKS


class Neighbours:
    """How much of the machine others use while something is measured."""

    def __init__(self, clock):
        self.clock = clock
        self.began, self.others = clock(), used_by_all() - used_by_us()
        self.load = os.getloadavg()[0]

    def told(self, busy_is_fine: bool) -> str:
        """The load, for the line below a table; SystemExit where it spoils the times."""
        seconds = max(self.clock() - self.began, 1e-9)
        cores = (used_by_all() - used_by_us() - self.others) / seconds
        if cores > MOST_USED and not busy_is_fine:
            raise SystemExit(
                f"no time is quoted: other processes used {cores:.1f} cores meanwhile; "
                "--busy quotes it in spite of that"
            )
        return f"others used {max(0, cores):.2f} cores; load before: {self.load:.2f}"
