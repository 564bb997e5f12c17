"""Shared by all tests: no network, one thread, an untrained tiny policy, scripts run in-process."""

import copy
import os
import signal
import sys
from types import SimpleNamespace

# read when they are imported
os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", HF_DATASETS_OFFLINE="1")

import rlvr.flags.command_line
import rlvr.training.run

import matplotlib
import pytest
import torch
import torch.distributed as dist
from runs import ROOT, SMALL, arguments, countdown_problems, left_as_it_was, module_of

from studies.papers.make_bases import build_tiny

# A shell's background job is started with Ctrl-C ignored, and would hand that on to every process.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it
torch.set_num_threads(int(os.environ.get("TEST_THREADS", "1")))  # a second one gains little


@pytest.fixture(scope="session")
def tiny():
    """(policy, tokenizer) as initialised, in fp32. Shared: a test that changes it takes a copy."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build_tiny()


@pytest.fixture(scope="session")
def sharp(tiny):
    """`tiny` with larger matrices: its own distributions are so uniform that few errors show."""
    policy = copy.deepcopy(tiny[0])
    with torch.no_grad():
        for parameter in policy.parameters():
            if parameter.dim() == 2:
                parameter.mul_(5)
    return policy, tiny[1]


@pytest.fixture
def tokenizer(tiny):
    """A copy that a test may change."""
    return copy.deepcopy(tiny[1])


@pytest.fixture
def bare(tmp_path, monkeypatch, capsys):
    """bare(script, *arguments) runs a script in an empty folder -> exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda *_, **__: None)
    # always the same, and 1 s of every run
    monkeypatch.setattr("rlvr.tasks.datasets.load_problems", countdown_problems)
    # small figures are drawn much faster
    monkeypatch.setattr("rlvr.show.plots.MOST_PANELS", 2)
    monkeypatch.setitem(matplotlib.rcParams, "savefig.dpi", 20)

    def run(script, *given):
        module = module_of(script)
        monkeypatch.setattr(sys, "argv", [str(ROOT / f"{script}.py"), *given])
        capsys.readouterr()
        try:
            config = rlvr.flags.command_line.parse_flags(module.Config, module.VARIANTS)
            rlvr.training.run.launch(module.main, config)
            code = 0
        except SystemExit as stopped:
            code = stopped.code
        out, err = capsys.readouterr()
        return SimpleNamespace(code=code, out=out, err=err)

    with left_as_it_was():
        yield run


@pytest.fixture
def run(bare):
    """run(script, flag=value, ...) -> what `bare` gives; in the run folder `run` by default."""

    def run_small(script, **flags):
        return bare(script, *arguments(**SMALL | dict(output_dir="run") | flags))

    return run_small


@pytest.fixture
def resume(bare):
    """resume(script, folder, flag=value, ...): other flags come from the run's config.json."""

    def resume_run(script, folder, **flags):
        return bare(script, *arguments(resume_from_checkpoint=folder, **flags))

    return resume_run


@pytest.fixture
def alone():
    """A process group of this process alone, in which a policy can be sharded."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def no_evaluation(monkeypatch):
    """Runs that a test looks at the training of. Evaluating and drawing take most of their time."""
    monkeypatch.setattr("common.evaluate", lambda *_: [{"set": "countdown", "pass@1": 0.5}])
    monkeypatch.setattr(rlvr.show, "draw_curves", lambda *_: None)


@pytest.fixture
def parsed(monkeypatch, tmp_path):
    """parsed(script, *arguments) -> the config, as the script would get it, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def parse(script, *given):
        module = module_of(script)
        monkeypatch.setattr(sys, "argv", [f"{script}.py", *given])
        return rlvr.flags.command_line.parse_flags(module.Config, module.VARIANTS)

    return parse
