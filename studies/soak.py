"""Faults at random: is anything lost that was saved? Is every end a line or a finished run?

    python studies/soak.py                 # 200 faults, some 10 minutes on 2 cores
    python studies/soak.py --faults 6      # a minute
    python studies/soak.py --seed 1        # others

A small run is trained by one process after another, each of which resumes what the last one has
left, and to each of which one fault happens. At its last step the run is compared with one that
nothing has happened to, and the next one begins. It needs no rights: a full disk is a limit to the
size of a process's files, and the clock and a slow disk are the process's own.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import project  # noqa: F401

from rlvr.checkpoints import is_whole

import torch
from soak_faults import FAULTS
from soak_process import ENDS, FLAGS, STEPS, Process

LOGS = ("metrics", "eval", "samples")


class Soak:
    """A run that faults happen to, and what must not be lost of it."""

    def __init__(self, seed: int):
        self.rng = random.Random(seed)
        self.table = Counter()  # (fault, end)
        self.problems = []  # in words
        self.finished = 0  # runs that have ended as the straight one
        self.straight = Path("straight")
        _, end = Process([*FLAGS, "--output_dir", "straight"]).end()
        if end != ENDS[0]:
            raise RuntimeError(f"without a fault: {end}")
        saved = [self.straight / f"checkpoint-{step}" / "state.pt" for step in (1, STEPS)]
        first, last = [file.stat().st_mtime for file in saved]
        self.pace = (last - first) / (STEPS - 1)  # seconds of a step and its save
        self.number = 0
        self.begin_a_run()

    def begin_a_run(self) -> None:
        self.number += 1
        self.folder = Path(f"run-{self.number}")
        self.saved = set()  # digests of the whole checkpoints
        self.damaged_logs = set()

    def arguments(self) -> list[str]:
        """What the next process of the run is started with."""
        if (self.folder / "config.json").exists():
            return ["--resume_from_checkpoint", str(self.folder)]
        return [*FLAGS, "--output_dir", str(self.folder)]

    def wait_for_a_moment(self, process: Process, folder: Path | None = None) -> None:
        """While it begins, in a step, or in a save; the run folder is the current one if None."""
        folder = folder or self.folder
        left_over = set(folder.glob(".saving-*"))
        steps = self.rng.randint(1, STEPS - 1)
        moment = self.rng.choice(("begin", "step", "save"))
        if moment == "step":
            process.wait_until(lambda: process.read("out").count("metrics ") >= steps)
        elif moment == "save":
            process.wait_until(lambda: set(folder.glob(".saving-*")) - left_over)
        longest = {"begin": 3 * self.pace, "step": self.pace, "save": 0.02}[moment]
        process.wait_until(lambda: False, self.rng.uniform(0, longest))

    def happen(self, fault) -> None:
        """Let a fault happen, and look at what is left."""
        name = fault.__name__.replace("_", " ")
        printed, end = fault(self)
        self.table[name, end if end in ENDS else "otherwise"] += 1
        if end not in ENDS:
            self.problems.append(f"{name}: {end}")
        self.look_for_losses(name, printed)
        if (self.folder / f"checkpoint-{STEPS}").exists() and end == ENDS[0]:
            self.compare(name)
            shutil.rmtree(self.folder)
            self.begin_a_run()

    def look_for_losses(self, name: str, printed: str) -> None:
        """Every checkpoint that has been whole, or that is said to be saved, is whole."""
        now = whole_checkpoints(self.folder)
        if self.saved - now:
            self.problems.append(f"{name}: lost {len(self.saved - now)} checkpoints")
        self.saved = now
        for checkpoint in re.findall("^saved (.*)$", printed, flags=re.MULTILINE):
            if not is_whole(Path(checkpoint)):
                self.problems.append(f"{name}: {checkpoint} was saved and is not whole")

    def forget(self, checkpoint: Path) -> None:
        """The fault itself has damaged this checkpoint."""
        self.saved.discard(digest(checkpoint))

    def compare(self, name: str) -> None:
        """The finished run has the rows, weights and moments of the straight one, bit for bit."""
        same = weights_of(self.folder) == weights_of(self.straight)
        for log in {*LOGS} - self.damaged_logs:
            same = same and rows(self.folder, log) == rows(self.straight, log)
        if same:
            self.finished += 1
        else:
            self.problems.append(f"{name}: {self.folder} does not end as the straight run")


def digest(checkpoint: Path) -> str:
    """What tells a checkpoint from others."""
    return (checkpoint / "checksums.json").read_text()


def whole_checkpoints(folder: Path) -> set[str]:
    """The digests of the whole checkpoints of a run folder, also of those put aside."""
    return {digest(path) for path in folder.glob("*checkpoint-*") if is_whole(path)}


def weights_of(folder: Path) -> tuple:
    """The bytes of the last weights, and Adam's moments of them."""
    checkpoint = folder / f"checkpoint-{STEPS}"
    moments = torch.load(checkpoint / "state.pt")["optimizer"]["state"]
    numbers = [value.tolist() for name in moments for value in moments[name].values()]
    return (checkpoint / "model.safetensors").read_bytes(), numbers


def rows(folder: Path, name: str) -> list[dict]:
    """The rows of a log, without what no seed settles."""
    lines = (folder / f"{name}.jsonl").read_text().splitlines()
    return [
        {key: value for key, value in json.loads(line).items() if not key.startswith("seconds_")}
        for line in lines
    ]


def main() -> int:
    """Print the table -> 1 if anything was lost or ended otherwise, else 0."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--cache_dir", type=Path, help="with the tiny policy; a new one if left out"
    )
    given = parser.parse_args()
    torch.set_num_threads(1)
    begun = time.monotonic()
    home = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        if given.cache_dir:
            Path(folder, "cache").symlink_to(given.cache_dir.absolute())
        os.chdir(folder)
        try:
            soak = Soak(given.seed)
            for _ in range(given.faults):
                soak.happen(soak.rng.choice(FAULTS))
        finally:
            for process in Process.started:
                process.send(signal.SIGKILL)
            os.chdir(home)
    print(f"| fault | times | {' | '.join(ENDS)} | otherwise |")
    print(f"|{'---|' * (len(ENDS) + 3)}")
    names = [fault.__name__.replace("_", " ") for fault in FAULTS]
    for name in names:
        counts = [soak.table[name, end] for end in (*ENDS, "otherwise")]
        print(f"| {name} | {sum(counts)} | {' | '.join(map(str, counts))} |")
    minutes = (time.monotonic() - begun) / 60
    print(
        f"\n{given.faults} faults in {minutes:.0f} minutes; {soak.finished} runs have ended as the "
        f"straight one, and {len(soak.problems)} times something was lost or ended otherwise"
    )
    for problem in soak.problems:
        print(problem)
    return bool(soak.problems)


if __name__ == "__main__":
    sys.exit(main())
