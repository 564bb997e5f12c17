"""How a process ends: by a signal, with a full disk, or with nobody who reads what it prints."""

import contextlib
import errno
import os
import select
import signal
import sys


def asking_for_an_end() -> list[signal.Signals]:
    """The signals that ask a run to end: Ctrl-C, a scheduler's, its warning, a closed terminal.

    Where SIGHUP is ignored, as under nohup, it stays ignored.
    """
    signals = [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signals.append(signal.SIGHUP)
    return signals


def leave(number, frame):
    """End a run that has nothing to save yet. A launcher may send the signal twice."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(0)


def leave_the_end_alone() -> None:
    """Let no signal raise anything more: Python would print a traceback of its own last lines.

    Ctrl-C still ends a process that hangs there, at once and without a word.
    """
    for number in asking_for_an_end():
        signal.signal(number, signal.SIG_DFL if number == signal.SIGINT else signal.SIG_IGN)


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


AT_EXIT = contextlib.ExitStack()  # what has to end before this process does
