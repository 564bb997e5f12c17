"""What is printed, where nobody takes it any more: the disk is full, or the reader has gone."""

import contextlib
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


class LossyStream:
    """A stream of text that drops what nobody takes any more, in place of an OSError."""

    def __init__(self, stream):
        self.stream = stream

    def write(self, text: str) -> int:
        """Write the text if that is possible -> its length."""
        with contextlib.suppress(OSError):
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Hand on what has been written, if that is possible."""
        with contextlib.suppress(OSError):
            self.stream.flush()

    def __getattr__(self, name: str):
        return getattr(self.stream, name)


def let_no_print_fail() -> None:
    """From here on what cannot be printed is dropped.

    Ctrl-C ends the reader of `| tee log`, too, and where a terminal is closed both streams have no
    reader. A run that has been asked to end saves its last step even so.
    """
    sys.stdout, sys.stderr = LossyStream(sys.stdout), LossyStream(sys.stderr)


def drop_what_cannot_be_printed() -> None:
    """Python would say at its end that it cannot print the rest, and end with an exit code of 120.

    Where stdout takes what is left, nothing is dropped.
    """
    try:
        sys.stdout.flush()
    except OSError:
        sys.stdout = open(os.devnull, "w")
