"""Plumbing: what any such program needs and no paper is about.

Nothing about the algorithms is in this package, so a reader of the five scripts may skip it. Each
folder is a room, and its __init__.py is the door: it says what the room is for, and lists the names
that others may use. Imports go one way, down this list:

    training   a run: its folder, checkpoints, learning rates
    show       what a run leaves to be looked at: logs, curves, report
    rollout    completions: by transformers or vLLM, in turns, graded
    policy     the model: loading, log-probs, images, memory, sharding
    flags      the command line
    tasks      problems: made here, from data sets, as prompts
    verify     what is right: answers, programs, graders
    machine    ranks, devices, folders, signals
    baselines  other methods that the papers compare with, and statistics (pure functions)

errors.py, status.py and world.py are for every room.
"""

import gc
import importlib
import os
import sys
from pathlib import Path

if sys.version_info < (3, 11):
    sys.stderr.write(f"Python 3.11 or newer is needed, and this is {sys.version.split()[0]}\n")
    sys.exit(2)

# By default a thread that waits for the others spins. On a machine that is shared, this costs more
# than a second thread gains. Torch reads the setting when it is imported, so this package is
# imported before torch everywhere.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Importing torch takes some seconds, in which a script would be silent.
script = Path(sys.argv[0]).absolute()
is_script = script.suffix == ".py" and script.parent == Path(__file__).absolute().parents[1]
if is_script and not {"-h", "--help"} & {*sys.argv}:
    from rlvr import status

    status.say("loading torch")
    gc.disable()  # until Run.resume: what is loaded stays, and a search for what does not takes 1 s


ROOMS = "training show rollout policy flags tasks verify machine baselines".split()


def door(room: str, **files: str):
    """The `__getattr__` of a room's door: file="name name ..." are what others may use of a file.

    A file is imported when one of its names is first used. So `--help` need not wait for
    transformers, nor a grader for torch.
    """
    file_of = {name: file for file, names in files.items() for name in names.split()}

    def find(name: str):
        if name not in file_of:
            raise AttributeError(f"the door of {room} has no {name!r}")
        return getattr(importlib.import_module(f"{room}.{file_of[name]}"), name)

    return find


def __getattr__(name: str):
    """A room, opened when it is first named, so that `import rlvr` is enough for all of them."""
    if name not in ROOMS:
        raise AttributeError(f"there is no rlvr.{name}")
    return importlib.import_module(f"rlvr.{name}")
