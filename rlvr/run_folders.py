"""Which run is to be resumed, and from which of its checkpoints."""

import os
import re
import sys
from pathlib import Path

from rlvr.checkpoints import is_whole
from rlvr.errors import UserError, reading

CHECKPOINT = re.compile("checkpoint-[0-9]+")  # the name of its folder


def find_run(path) -> tuple[Path, Path | None]:
    """The run folder that `path` stands for, and the checkpoint, if `path` is one.

    `path` is a run folder, one of its checkpoints, or "latest": this script's last run in runs/.
    UserError where there is no run.
    """
    if path == "latest":
        runs = Path("runs").glob(f"{Path(sys.argv[0]).stem}-*/config.json")
        path = max(runs, key=os.path.getmtime, default=Path("runs/latest/config.json")).parent
    path = Path(path)
    if CHECKPOINT.fullmatch(path.name):
        return path.parent, path
    with reading(f"--resume_from_checkpoint {path}"):
        found = (path / "config.json").exists()
    if not found:
        raise UserError(f"--resume_from_checkpoint {path}: no run there")
    return path, None


def checkpoints_of(folder: Path) -> list[Path]:
    """The checkpoints of a run folder, the newest first."""
    found = [path for path in folder.iterdir() if CHECKPOINT.fullmatch(path.name)]
    return sorted(found, key=step_of, reverse=True)


def step_of(checkpoint: Path) -> int:
    """The step after which a checkpoint was saved."""
    return int(checkpoint.name.split("-")[1])


def newest_whole(folder: Path, checkpoint: Path | None) -> Path | None:
    """The newest whole checkpoint of a run folder, or the one that is given, if it is whole.

    A damaged checkpoint is named, and the one before it is tried. None where the run has not saved
    one yet. UserError where all are damaged.
    """
    tried = [checkpoint] if checkpoint else checkpoints_of(folder)
    for candidate in tried:
        with reading(candidate):
            whole = is_whole(candidate)
        if whole:
            return candidate
        print(f"{candidate} is damaged")
    if tried:
        raise UserError(
            f"--resume_from_checkpoint {checkpoint or folder}: no checkpoint there is whole"
        )
    print(f"{folder} has no checkpoint yet; from the start")
    return None
