"""Plumbing: what any such program needs and no paper is about.

Nothing in this package is about the algorithms, so a reader of the five scripts may skip it. Each
folder has one subject, and its __init__.py imports the names that others use. Imports between the
folders go one way, down this list:

    training   a run: its folder, checkpoints, learning rates
    show       what a run leaves to be looked at: logs, curves, report
    rollout    completions: by transformers or vLLM, in one turn or several
    policy     the model: loading, log-probs, sharding
    flags      the command line
    tasks      problems: made here, from data sets, as prompts
    verify     what is right: answers, programs, graders
    machine    ranks, devices, folders, signals

errors.py, progress.py and world.py are for every folder. What is slow to import, such as
transformers or matplotlib, is imported inside the functions that need it.
"""

import importlib.util
import os
import signal
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
    if not importlib.util.find_spec("torch"):
        sys.exit("torch is not installed in this Python: pip install -r requirements.txt")
    from rlvr import progress

    progress.begin("loading torch")
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback of an import; see launch
