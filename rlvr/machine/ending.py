"""How a process ends: by a signal, with a full disk, or with nobody who reads what it prints."""

import atexit
import contextlib
import errno
import os
import signal
import sys

from rlvr import world


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


# A disk is full, or the pipe that takes stdout has no reader, as after `| head`.
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EPIPE}


class LossyStream:
    """A stream of text that drops what nobody takes any more, in place of an OSError."""

    def __init__(self, stream):
        self.stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self.stream.flush()

    def __getattr__(self, name: str):
        return getattr(self.stream, name)


def let_no_print_fail() -> None:
    """Drop from here on what cannot be printed: Ctrl-C ends the reader of `| tee log`, too."""
    sys.stdout, sys.stderr = LossyStream(sys.stdout), LossyStream(sys.stderr)


AT_EXIT = contextlib.ExitStack()  # what has to end before this process does


def end_without_a_word() -> None:
    """End what AT_EXIT holds, so that Python's own end has nothing to complain of.

    No signal raises anything more; Ctrl-C still ends a process that hangs there.
    """
    for number in asking_for_an_end():
        signal.signal(number, signal.SIG_DFL if number == signal.SIGINT else signal.SIG_IGN)
    AT_EXIT.close()
    try:
        sys.stdout.flush()
    except OSError:
        sys.stdout = open(os.devnull, "w")  # the exit code would be 120


def end_one_of_several_ranks() -> None:
    """End the process with 0, where it is one of several ranks, before Python takes it apart.

    Threads of torch that exchange numbers outlive their process group. Where Python takes down what
    they still use, the process aborts now and then.
    """
    if world.WORLD_SIZE > 1:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
