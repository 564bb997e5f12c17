"""Folders that are either whole or absent, and that belong to one process."""

import contextlib
import fcntl
import os
import tempfile
from pathlib import Path

from rlvr.errors import UserError
from rlvr.machine.ending import AT_EXIT


def scratch_folder(parent: Path):
    """A context with a new folder in `parent`, for what is not whole yet or is being deleted."""
    return tempfile.TemporaryDirectory(dir=parent, prefix=".saving-")


def own(folder: Path) -> None:
    """Lock a folder for this process until it ends, however it ends.

    UserError if another process has the folder. If the file system has no locks, nothing is locked.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    AT_EXIT.callback(os.close, descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(f"another process uses the run folder {folder}") from None
    except OSError:
        pass  # a network file system may have no locks


def remove(folder: Path) -> None:
    """Delete a folder if there is one. A kill in between leaves it either whole or gone."""
    if folder.exists():
        with scratch_folder(folder.parent) as scratch:
            folder.rename(f"{scratch}/old")


def remove_empty(folders: list[Path]) -> None:
    """Delete those of the folders, the innermost first, that nothing has been written into."""
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()
