"""How a process ends: by a signal, with a full disk, or with nobody who reads what it prints."""

import atexit
import contextlib
import errno
import os
import select
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


FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def is_lack_of_room(error: OSError) -> bool:
    """Whether a disk is full, or the pipe that takes stdout has no reader, as after `| head`.

    Other pipes are a script's own matter.
    """
    if error.errno != errno.EPIPE:
        return error.errno in FULL
    poll = select.poll()
    poll.register(1, 0)  # stdout; it reports errors alone
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


AT_EXIT = contextlib.ExitStack()  # what has to end before this process does


def end_without_a_word() -> None:
    """End what AT_EXIT holds. Then Python has nothing to complain of in its own last lines.

    No signal raises anything more; Ctrl-C still ends a process that hangs there. What stdout does
    not take is dropped: the exit code would be 120.
    """
    for number in asking_for_an_end():
        signal.signal(number, signal.SIG_DFL if number == signal.SIGINT else signal.SIG_IGN)
    AT_EXIT.close()
    try:
        sys.stdout.flush()
    except OSError:
        sys.stdout = open(os.devnull, "w")


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
