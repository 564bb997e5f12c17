"""One process owns a run folder."""

import fcntl
import os
from pathlib import Path

from rlvr.errors import UserError


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
