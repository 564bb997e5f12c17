"""The signals that ask a run to end."""

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
