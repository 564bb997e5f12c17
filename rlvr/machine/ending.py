"""How a process ends: what has to end before it, and what a signal asks for."""

import atexit
import contextlib
import os
import signal
import sys

from rlvr import status, world

AT_EXIT = contextlib.ExitStack()  # what has to end before this process does


def handle_signals(handler) -> None:
    """Handle what asks for an end: Ctrl-C, a scheduler, its warning, and a closed terminal.

    What is ignored stays so, as SIGHUP is under nohup.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, handler)


def leave(number, frame):
    """End at once, with exit code 130 after Ctrl-C. A launcher may send the signal twice."""
    signal.signal(number, signal.SIG_IGN)
    status.tell("stopped at once")
    sys.exit(130 if number == signal.SIGINT else 0)


def end() -> None:
    """End what AT_EXIT holds. No signal interrupts it but Ctrl-C, which ends what hangs there."""
    handle_signals(signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    AT_EXIT.close()


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
