"""What is printed, where nobody takes it any more: the disk is full, or the reader has gone."""

import errno
import os
import select
import sys

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def is_lack_of_room(error: OSError) -> bool:
    """Whether a disk is full, or the pipe that takes stdout is closed, as by `| head`."""
    return error.errno in FULL or (error.errno == errno.EPIPE and is_stdout_closed())


def is_stdout_closed() -> bool:
    """Whether stdout is a pipe whose reader has gone. Other pipes are a script's own matter."""
    poll = select.poll()
    poll.register(1, 0)  # it reports errors alone
    return bool(poll.poll(0))


def drop_what_cannot_be_printed() -> None:
    """Python would say at its end that it cannot print the rest, and end with an exit code of 120.

    Where stdout takes what is left, nothing is dropped.
    """
    try:
        sys.stdout.flush()
    except OSError:
        sys.stdout = open(os.devnull, "w")
