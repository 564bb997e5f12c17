"""The faults of studies/soak.py.

Each starts processes of the run that `soak` is about, and gives back what those that have trained
have printed, and their end.
"""

import itertools
import os
import random
import resource
import shutil
import signal
import socket
import time
from functools import partial
from pathlib import Path

import project  # noqa: F401

import rlvr.watch
from rlvr import world

from soak_process import ENDS, FLAGS, Process


def kill_9(soak) -> tuple[str, str]:
    process = Process(soak.arguments())
    soak.wait_for_a_moment(process)
    process.send(signal.SIGKILL)
    return process.end()


def stopped_for_a_while(soak) -> tuple[str, str]:
    process = Process(soak.arguments())
    soak.wait_for_a_moment(process)
    process.send(signal.SIGSTOP)
    time.sleep(soak.rng.uniform(0.1, 1))
    process.send(signal.SIGCONT)
    return process.end()


def one_of_two_ranks_frozen(soak) -> tuple[str, str]:
    """In a run of its own, since another number of ranks does not go on bit for bit."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = Path(f"pair-{soak.table.total()}")

    def be_rank(rank):
        place = dict(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=2, LOCAL_WORLD_SIZE=2)
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        for name, value in place.items():
            os.environ[name] = str(value)
            setattr(world, name, value)
        rlvr.watch.BEAT, rlvr.watch.SILENCE, rlvr.watch.START = 0.5, 4.0, 20.0

    flags = [*FLAGS, "--max_steps", "1000", "--output_dir", str(folder)]
    ranks = [Process(flags, partial(be_rank, rank)) for rank in range(2)]
    soak.wait_for_a_moment(ranks[0], folder)
    frozen = soak.rng.randrange(2)
    ranks[frozen].send(signal.SIGSTOP)
    _, end = ranks[1 - frozen].end()
    ranks[frozen].send(signal.SIGKILL)
    printed, _ = ranks[0].end() if frozen == 0 else (ranks[0].read("out"), None)
    return printed, end


def full_disk(soak) -> tuple[str, str]:
    process = Process(soak.arguments())
    soak.wait_for_a_moment(process)
    room = int(10 ** soak.rng.uniform(2, 6.5))  # bytes of a file
    if not process.has_ended():
        resource.prlimit(process.id, resource.RLIMIT_FSIZE, (room, room))
    return process.end()


def folder_removed(soak) -> tuple[str, str]:
    """It is moved away, and put back when the process has ended."""
    process = Process(soak.arguments())
    soak.wait_for_a_moment(process)
    if not soak.folder.exists():
        return process.end()
    away = soak.folder.rename("away")
    printed, end = process.end()
    if soak.folder.exists():
        end = "the folder was made anew"
        shutil.rmtree(soak.folder)
    away.rename(soak.folder)
    return printed, end


def clock_jumps(soak) -> tuple[str, str]:
    """By up to 30 years, and all files are of any time."""
    seconds, calls = soak.rng.uniform(-1e9, 1e9), soak.rng.randrange(100)
    for path in soak.folder.rglob("*"):
        then = time.time() + soak.rng.uniform(-1e9, 1e9)
        os.utime(path, (then, then))

    def jump():
        true_time, count = time.time, itertools.count()
        time.time = lambda: true_time() + (seconds if next(count) > calls else 0)

    return Process(soak.arguments(), jump).end()


def two_runs(soak) -> tuple[str, str]:
    """The second one is refused, unless it has been faster, or the first one has ended."""
    arguments = soak.arguments()
    first = Process(arguments)
    if soak.rng.random() < 0.5:
        soak.wait_for_a_moment(first)
    second = Process(arguments)
    found = [first.end(), second.end()]
    printed = "".join(text for text, _ in found)
    ends = sorted(end for _, end in found)
    if ends == ["one line", ENDS[0]] or ends == [ENDS[0], ENDS[0]]:
        return printed, ENDS[0]
    return printed, f"both: {ends}"


def flipped_bytes(soak) -> tuple[str, str]:
    """In a file of the newest checkpoint, a log or config.json, while no process runs.

    All is put back where a process then ends in one line, and where config.json was damaged, since
    it may have other flags now.
    """
    if not any(soak.folder.glob("checkpoint-*")):
        process = Process(soak.arguments())
        process.wait_until(lambda: "saved " in process.read("out"))
        process.send(signal.SIGKILL)
        process.end()
    newest = max(soak.folder.glob("checkpoint-*"))
    shutil.copytree(soak.folder, "before")
    files = {
        "checkpoint": sorted(newest.iterdir()),
        "log": sorted(soak.folder.glob("*.jsonl")),
        "config": [soak.folder / "config.json"],
    }
    kind = soak.rng.choice(("checkpoint", "checkpoint", "log", "config"))
    file = soak.rng.choice(files[kind])
    damage(file, soak.rng)
    process = Process(soak.arguments())
    process.wait_until(lambda: False, 60 * soak.pace)
    process.send(signal.SIGTERM)  # by config.json there may be many steps now
    printed, end = process.end()
    if kind == "config" or end == "one line":
        shutil.rmtree(soak.folder)
        Path("before").rename(soak.folder)
        return "", "saved and stopped" if end == ENDS[0] else end
    if kind == "checkpoint":
        soak.forget(Path("before") / newest.name)
    else:
        soak.damaged_logs.add(file.stem)
    shutil.rmtree("before")
    return printed, end


def damage(file: Path, rng: random.Random) -> None:
    """Flip a bit, cut the file off, write zeros over a part of it, or delete it."""
    held = bytearray(file.read_bytes())
    kind = rng.choice(("flip", "cut", "zeros", "delete"))
    where = rng.randrange(len(held))
    if kind == "delete":
        file.unlink()
        return
    if kind == "flip":
        held[where] ^= 1 << rng.randrange(8)
    elif kind == "cut":
        held = held[:where]
    else:
        held[where : where + 512] = bytes(len(held[where : where + 512]))
    file.write_bytes(held)


def slow_disk(soak) -> tuple[str, str]:
    """What makes files last waits for it; then the process is asked to end, or killed."""
    seconds = soak.rng.uniform(0.01, 0.1)

    def slow_down():
        for name in ("fsync", "rename", "replace", "mkdir"):
            setattr(os, name, partial(after_a_while, getattr(os, name)))

    def after_a_while(function, *given, **named):
        time.sleep(seconds)
        return function(*given, **named)

    process = Process(soak.arguments(), slow_down)
    soak.wait_for_a_moment(process)
    process.send(soak.rng.choice((signal.SIGTERM, signal.SIGKILL)))
    return process.end()


FAULTS = (
    kill_9,
    stopped_for_a_while,
    one_of_two_ranks_frozen,
    full_disk,
    folder_removed,
    clock_jumps,
    two_runs,
    flipped_bytes,
    slow_disk,
)
