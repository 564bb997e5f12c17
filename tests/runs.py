"""What the tests share that run whole scripts: small settings, and how to read a run folder."""

import contextlib
import importlib
import json
import math
import os
import re
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

import rlvr.tasks.datasets
from rlvr.flags.command_line import as_arguments
from rlvr.flags.config import Config

import pytest
import torch
import transformers

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ["grpo", "agrae", "asymgrpo", "fade", "cwgrpo"]
VARIANTS = [(s, variant) for s in SCRIPTS for variant in importlib.import_module(s).VARIANTS]
# torchrun on two ranks of this machine, which finds a free port by itself
TWO_RANKS = "-m torch.distributed.run --standalone --nproc_per_node 2".split()
# The shipped policy has a third of its answers right, so that there are gradients.
SMALL = dict(max_steps=2, prompts_per_step=4, num_generations=4, minibatch_size=8, save_steps=1)
SMALL |= dict(eval_problems=4, eval_samples=4, eval_steps=1)
ENVIRONMENT = os.environ | dict(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", CUDA_VISIBLE_DEVICES="")
ENVIRONMENT |= dict(PYTHONUNBUFFERED="1", TERM="xterm")  # a dumb one has no line that is replaced
real_load_problems = rlvr.tasks.datasets.load_problems


@cache
def tokenizer_of_tiny():
    with torch.random.fork_rng():  # a run that asks for it draws the same numbers afterwards
        from studies.papers.make_bases import build_tiny

        return build_tiny()[1]


@cache
def problems_of(numbers, eval_problems):
    config = Config(numbers=numbers, eval_problems=eval_problems)
    return real_load_problems(config, tokenizer_of_tiny())


def countdown_problems(config, tokenizer):
    """What load_problems gives for Countdown, made once for all tests."""
    return problems_of(config.numbers, config.eval_problems)


@contextlib.contextmanager
def left_as_it_was():
    """Put back what a run changes here: signal handlers, threads, random numbers."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
    handlers = {number: signal.getsignal(number) for number in numbers}
    threads = torch.get_num_threads()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        torch.set_num_threads(threads)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def first_fast(cases):
    """Of a parametrisation, each case a value or a tuple: all but the first are slow."""
    first, *others = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*first), *(pytest.param(*case, marks=pytest.mark.slow) for case in others)]


def before_calls(patch, owner, name, action):
    """Call action(*arguments) before each call of owner.name."""
    true = getattr(owner, name)

    def with_action(*given, **named):
        action(*given, **named)
        return true(*given, **named)

    patch.setattr(owner, name, with_action)


def arguments(**flags):
    return as_arguments(flags)


def rows(folder, name="metrics", timed=False):
    """The rows of <name>.jsonl, without the only numbers that no seed settles."""
    found = [json.loads(line) for line in (Path(folder) / f"{name}.jsonl").read_text().splitlines()]
    if timed:
        return found
    return [{k: row[k] for k in row if not re.match("seconds_|time$|peak_", k)} for row in found]


def steps(folder, name="metrics"):
    return [row["step"] for row in rows(folder, name)]


def assert_finite(folder):
    for row in rows(folder, timed=True) + rows(folder, "eval"):
        assert all(math.isfinite(row[key]) for key in row if key != "set"), row


def weights(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder).state_dict()


def refused(result, script, *mentioned):
    """One line that names the script and what is wrong, and exit code 2."""
    assert result.code == 2, result.err
    assert result.err.startswith(f"{script}.py: error: "), result.err
    assert result.err.count("\n") == 1, result.err
    for text in mentioned:
        assert text in result.err, result.err
    return True


def run_python(*command, folder, **environment):
    """Run Python with these arguments in a process of its own -> what subprocess.run gives."""
    how = dict(cwd=folder, env=ENVIRONMENT | environment, capture_output=True, text=True)
    return subprocess.run([sys.executable, *command], **how)


def module_of(script):
    """The module of one of the five scripts, or of studies/baselines/baselines.py."""
    return importlib.import_module({"baselines": "studies.baselines.baselines"}.get(script, script))


def run_study(name, *arguments, folder=None):
    """Run studies/`name`.py, such as "claims/claims"."""
    return run_python(ROOT / "studies" / f"{name}.py", *arguments, folder=folder)
