"""What a run says, so that nobody wonders whether it hangs.

What begins, and how much is done of it, is one line on a terminal, on stderr, that the next line
replaces. In a log file it is a plain line now and then. This module needs no torch: the first line
comes before torch is imported.
"""

import contextlib
import os
import shutil
import sys
import textwrap
import time

from rlvr import world

ERASE = "\r\x1b[K"  # to the line's beginning, and clear what stands there
SECONDS_BETWEEN_LINES = 10.0  # of a log file
SECONDS_BETWEEN_COUNTS = 0.1  # of a terminal
told = 0.0  # when something was told last


def width() -> int:
    """Columns of the terminal, 100 at most; 100 where there is none."""
    return min(100, shutil.get_terminal_size((100, 24)).columns)


def folded(text: str) -> str:
    """Break a text between words where the terminal would break it anywhere."""
    return textwrap.fill(text, width(), break_long_words=False, break_on_hyphens=False)


def on_terminal() -> bool:
    """Whether a line can be replaced by the next one."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def replace_line(text: str) -> None:
    """Show a text on the terminal until something else is printed; nothing in a log file."""
    if world.RANK == 0 and on_terminal():
        with contextlib.suppress(OSError):  # nobody reads it any more
            sys.stderr.write(f"{ERASE}{text[: width() - 1]}\r")
            sys.stderr.flush()


def clear_line() -> None:
    """Make room for what is printed next."""
    replace_line("")


def tell(*lines: str) -> None:
    """Print lines to stay. A run goes on without them where nobody takes them any more.

    Ctrl-C ends the reader of `| tee log`, too, while the run has a step to finish and to save.
    """
    if world.RANK > 0:
        return
    clear_line()
    try:
        print(*lines, sep="\n", flush=True)
    except OSError:
        sys.stdout = open(os.devnull, "w")


def say(text: str) -> None:
    """Tell what begins now."""
    global told
    told = time.monotonic()
    if on_terminal():
        replace_line(text)
    else:
        tell(text)


def progress(doing: str, done: int, total: int) -> None:
    """Tell how much is done of something; in a log file only where it takes long."""
    global told
    pause = SECONDS_BETWEEN_COUNTS if on_terminal() else SECONDS_BETWEEN_LINES
    if done and time.monotonic() - told <= pause:
        return
    told = time.monotonic()
    if on_terminal() or done:
        say(f"{doing} {done}/{total}")
