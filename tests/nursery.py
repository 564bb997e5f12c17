"""What tests/test_crashes.py starts: a process that forks the runs which the tests then kill.

It has imported everything and has run nothing, since importing takes longer than a few steps. A
line of standard input is [folder, script, flags, whether to draw curves.png]. Two lines answer it:
the id of the process that runs the script in the folder, and the exit code once it has ended.
"""

import json
import os
import runpy
import signal
import sys

import rlvr.flags.command_line
import rlvr.tasks.datasets
import rlvr.training.run
from rlvr.flags.config import Config

import matplotlib.figure  # noqa: F401  (imported here, so that a run need not)
import torch
from runs import ROOT, SMALL, countdown_problems

MOST_SECONDS = 300  # that a run may take


def main() -> None:
    torch.set_num_threads(1)
    made = Config(numbers=str(SMALL["numbers"]), eval_problems=SMALL["eval_problems"])
    countdown_problems(made, None)  # the runs find them made
    rlvr.tasks.datasets.load_problems = countdown_problems
    for line in sys.stdin:
        folder, script, flags, curves = json.loads(line)
        child = os.fork()
        if child == 0:
            run(folder, script, flags, curves)
            return
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def run(folder: str, script: str, flags: list[str], curves: bool) -> None:
    """Run a script in this process; its output goes to the files `out` and `err` of the folder."""
    signal.alarm(MOST_SECONDS)
    os.chdir(folder)
    for number, name in enumerate((os.devnull, "out", "err")):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), number)
    if not curves:
        rlvr.training.run.Run.finish = lambda run: None
    sys.argv = [str(ROOT / f"{script}.py"), *flags]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
