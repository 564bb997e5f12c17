"""Which run to resume, and from which of its checkpoints."""

import json
import os
import re
import sys
from pathlib import Path

from rlvr import status
from rlvr.errors import UserError

CHECKPOINT = re.compile("checkpoint-[0-9]+")  # the name of its folder


def find_run(path) -> tuple[Path, Path | None]:
    """Return the run folder that `path` stands for, and the checkpoint if `path` is one.

    `path` is a run folder, one of its checkpoints, or "latest": this script's last training run in
    runs/. UserError if there is no run.
    """
    if path == "latest":
        script = Path(sys.argv[0])
        found = sorted(Path("runs").glob(f"{script.stem}-*/config.json"), key=os.path.getmtime)
        saved = [(run.parent, json.loads(run.read_text())) for run in found]
        # grpo-mine.py's runs match as well, and an evaluation has nothing to resume
        runs = [r for r, flags in saved if flags["script"] == script.name and flags["max_steps"]]
        if not runs:
            raise UserError(
                f"--resume_from_checkpoint latest: {script.name} has no run in runs/ to resume"
            )
        path = runs[-1]
    path = Path(path)
    folder, checkpoint = (path.parent, path) if CHECKPOINT.fullmatch(path.name) else (path, None)
    if not (path.exists() and (folder / "config.json").exists()):
        raise UserError(f"--resume_from_checkpoint {path}: no run there")
    return folder, checkpoint


def checkpoints_of(folder: Path) -> list[Path]:
    """Return the checkpoints of a run folder, the newest first."""
    found = [path for path in folder.iterdir() if CHECKPOINT.fullmatch(path.name)]
    return sorted(found, key=step_of, reverse=True)


def step_of(checkpoint: Path) -> int:
    """Return the step after which a checkpoint was saved."""
    return int(checkpoint.name.split("-")[1])


def newest_whole(folder: Path, checkpoint: Path | None) -> Path | None:
    """Return the newest whole checkpoint of a run folder, or the given one if it is whole.

    A damaged checkpoint is reported, and the one before it is tried. Return None if the run has not
    saved any yet. UserError if all are damaged.
    """
    from rlvr.machine import is_whole  # imports torch

    tried = [checkpoint] if checkpoint else checkpoints_of(folder)
    for candidate in tried:
        if is_whole(candidate):
            return candidate
        status.tell(f"{candidate} is damaged")
    if tried:
        raise UserError(
            f"--resume_from_checkpoint {checkpoint or folder}: no checkpoint there is whole"
        )
    status.tell(f"{folder} has no checkpoint yet: starting from the beginning")
    return None
