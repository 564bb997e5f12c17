"""Scratch folders: what is in one is not whole yet, or is being deleted.

A process locks its own, so that those which a killed process has left can be told from them.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path


@contextlib.contextmanager
def scratch_folder(parent: Path):
    """A new folder in `parent`, which is deleted with all that is left in it after the block."""
    with tempfile.TemporaryDirectory(dir=parent, prefix=".saving-") as name:
        descriptor = os.open(name, os.O_RDONLY)
        try:
            with contextlib.suppress(OSError):  # a network file system may have no locks
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield Path(name)
        finally:
            os.close(descriptor)


def remove_left_overs(parent: Path) -> None:
    """Delete the scratch folders of processes that have ended, where that is allowed."""
    for folder in parent.glob(".saving-*"):
        with contextlib.suppress(OSError):  # in use, without locks, or another user's
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(descriptor)


def undo_making_anew(scratch: Path) -> None:
    """Remove what libraries have made where a scratch folder has been moved or removed.

    They make every folder on the way to a file.
    """
    shutil.rmtree(scratch)
    with contextlib.suppress(OSError):  # somebody else may use it already
        scratch.parent.rmdir()
