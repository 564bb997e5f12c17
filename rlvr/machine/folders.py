"""Folders that are whole or not there, and that belong to one process.

What is in a scratch folder is not whole yet, or is being deleted.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import tempfile
from pathlib import Path

from rlvr.errors import UserError


def scratch_folder(parent: Path):
    """A new folder in `parent`, which is deleted with all that is left in it after the block."""
    return tempfile.TemporaryDirectory(dir=parent, prefix=".saving-")


def own(folder: Path) -> int:
    """Lock a folder for this process -> a file descriptor; closing it gives the folder back.

    The kernel does so when the process ends, however it ends. UserError where another process has
    the folder. Where the file system has no locks, nothing is locked.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise UserError(f"another process uses the run folder {folder}") from None
    except OSError:
        pass  # a network file system may have no locks
    return descriptor


def remove(folder: Path) -> None:
    """Delete a folder, if there is one, so that a kill in between leaves it whole or gone."""
    if folder.exists():
        with scratch_folder(folder.parent) as scratch:
            folder.rename(f"{scratch}/old")


def remove_empty(folders: list[Path]) -> None:
    """Delete those of the folders, the innermost first, that nothing has been written into."""
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()


def checksum(file: Path) -> str:
    """The file's BLAKE2b digest."""
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "blake2b").hexdigest()


def is_whole(folder: Path) -> bool:
    """Whether all files of a folder are as `save_folder` wrote them."""
    try:
        sums = json.loads((folder / "checksums.json").read_text())
        return all(checksum(folder / name) == value for name, value in sums.items())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
