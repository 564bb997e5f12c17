"""Errors of the user are shown in one line; all other errors keep their traceback."""

import contextlib
import sys
from pathlib import Path
from typing import NoReturn

from rlvr.progress import clear_line


class UserError(Exception):
    """A mistake that the user can fix: `launch` shows it in one line and ends with exit code 2."""


def fail(error: Exception | str) -> NoReturn:
    """Write an error's notes and one line, headed by the script's name, to stderr; exit with 2."""
    clear_line()
    script = Path(sys.argv[0].removesuffix("__main__.py"))  # `python -m rlvr.verify` is verify
    with contextlib.suppress(OSError):  # nobody reads it any more
        for note in getattr(error, "__notes__", ()):
            sys.stderr.write(f"{note}\n")
        sys.stderr.write(f"{script.name}: error: {' '.join(str(error).split())}\n")
    sys.exit(2)


@contextlib.contextmanager
def using(path, *others):
    """Turn an OSError of the block, such as a full disk, or one of others, into a UserError."""
    try:
        yield
    except (OSError, *others) as error:
        if isinstance(error, RuntimeError) and isinstance(error.__context__, OSError):
            error = error.__context__  # torch.save's own error hides that of the file
        raise UserError(f"cannot use {path}: {error}") from error


@contextlib.contextmanager
def loading(what, *others, hint=""):
    """Turn errors that damaged or missing files cause into a UserError that names what to load.

    These are OSError, ValueError and `others`. Libraries say why at the end of many lines.
    """
    try:
        yield
    except (OSError, ValueError, *others) as error:
        reason = " ".join(str(error.__cause__ or error).split()) or repr(error)
        raise UserError(f"cannot load {what}: {reason[-400:]}{hint}") from error
