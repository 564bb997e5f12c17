"""Progress messages, so that nobody wonders whether a run hangs.

On a terminal, progress is one line on stderr, and the next message replaces it. In a log file, it
is a plain line now and then. This module needs no torch: the first message comes before torch is
imported.
"""

import contextlib
import os
import shutil
import sys
import textwrap
import time

from rlvr import world

for name in ("stdout", "stderr"):
    if getattr(sys, name) is None:  # closed, as by 2>&-
        setattr(sys, name, open(os.devnull, "w"))

ERASE = "\r\x1b[K"  # go to the beginning of the line, and clear it
SECONDS_BETWEEN_LINES = 10.0  # in a log file
SECONDS_BETWEEN_COUNTS = 0.1  # on a terminal
last = 0.0  # when the last message was printed


def width() -> int:
    """Return the width of the terminal: at most 100 columns, and 100 if there is none."""
    return min(100, shutil.get_terminal_size((100, 24)).columns)


def folded(text: str) -> str:
    """Break a text between words where the terminal would break it anywhere."""
    return textwrap.fill(text, width(), break_long_words=False, break_on_hyphens=False)


def on_terminal() -> bool:
    """Return whether the next line can replace this one."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def replace_line(text: str) -> None:
    """Show a text on the terminal until the next line; write nothing to a log file."""
    if world.RANK == 0 and on_terminal():
        with contextlib.suppress(OSError):  # nobody reads it any more
            sys.stderr.write(f"{ERASE}{text[: width() - 1]}\r")


def clear_line() -> None:
    """Make room for what is printed next."""
    replace_line("")


def write(*lines: str) -> None:
    """Print lines that stay. A run goes on if nobody reads them: Ctrl-C also ends `| tee log`."""
    if world.RANK > 0:
        return
    clear_line()
    text = "\n".join(lines)
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:  # an encoding without a letter gets its number
        print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)
    except OSError:
        sys.stdout = open(os.devnull, "w")


def begin(text: str) -> None:
    """Print what begins now."""
    global last
    last = time.monotonic()
    if on_terminal():
        replace_line(text)
    else:
        write(text)


def count(doing: str, done: int, total: int) -> None:
    """Print how much of a task is done; in a log file, only if the task takes long."""
    global last
    pause = SECONDS_BETWEEN_COUNTS if on_terminal() else SECONDS_BETWEEN_LINES
    if done and time.monotonic() - last <= pause:
        return
    last = time.monotonic()
    if on_terminal() or done:
        begin(f"{doing} {done}/{total}")
