"""How a process ends: what it has to close first, and what a signal asks for."""

import atexit
import contextlib
import os
import signal
import sys
import threading

from rlvr import progress, world

AT_EXIT = contextlib.ExitStack()  # what to close before this process ends


def handle_signals(handler) -> dict:
    """Handle the signals that ask for an end: Ctrl-C, a scheduler's, and a closed terminal's.

    Return the handlers before. Outside of the main thread, where Python allows no handlers, nothing
    changes.
    """
    if threading.current_thread() is not threading.main_thread():
        return {}
    before = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # SIGHUP stays ignored under nohup
            before[number] = signal.signal(number, handler)
    return before


def leave(number, frame):
    """End at once, with exit code 130 after Ctrl-C. A launcher may send the signal twice."""
    signal.signal(number, signal.SIG_IGN)
    progress.write("stopped at once")
    sys.exit(130 if number == signal.SIGINT else 0)


def end() -> None:
    """Close what AT_EXIT holds. Only Ctrl-C interrupts this, in case something hangs."""
    handle_signals(signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    AT_EXIT.close()


def end_one_of_several_ranks() -> None:
    """End the process with exit code 0 if it is one of several ranks, before Python shuts down.

    Torch's threads that exchange tensors outlive their process group. If Python frees what they
    still use, the process aborts now and then.
    """
    if world.WORLD_SIZE > 1:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        os._exit(0)
