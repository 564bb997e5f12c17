"""The scripts as a user runs them: a process, two ranks, every variant, a model of your own."""

import ast
import importlib
import json
import os
import re
from pathlib import Path

import rlvr.policy.models
import rlvr.tasks.datasets
import rlvr.training.checkpoints
from rlvr.flags.config import Config

import pytest
import runs
from local_sets import write
from runs import ROOT, SMALL, VARIANTS, arguments, assert_finite, rows, run_python, steps


def train_in_a_folder(folder, *launcher):
    """Train by grpo.py's default flags but for small sizes -> the run folder, a whole one."""
    flags = SMALL | dict(eval_steps=3)  # and after the last step
    done = run_python(*launcher, ROOT / "grpo.py", *arguments(**flags), folder=folder)
    assert done.returncode == 0, done.stderr
    (run,) = (folder / "runs").iterdir()
    assert run.name.startswith("grpo-grpo-")
    files = "config.json curves.png eval.jsonl metrics.jsonl problems.jsonl report.html "
    files += "samples.jsonl tokens.jsonl"
    assert f"runs/{run.name} holds: {files}" in " ".join(done.stdout.split())
    assert "evaluating countdown: 4 problems, 4 completions of each\n" in done.stdout
    headings = re.findall(r"^(?:eval| +) ?(\d/2) ", done.stdout, re.M)
    assert headings == ["0/2", "1/2", "2/2", "2/2"]
    checkpoints = {"checkpoint-1", "checkpoint-2"}
    assert {path.name for path in run.iterdir()} == {*files.split(), *checkpoints}
    assert_finite(run)
    assert steps(run) == [1, 2] and steps(run, "eval") == [0, 2]
    for row in rows(run):
        assert 0 <= row["reward"] <= 1 and 16 * row["reward"] % 1 == 0  # of all 16 completions
        assert 0 < row["length"] <= 48 and row["entropy"] > 0 == row["kl"]
    assert any(row["grad_norm"] > 0 for row in rows(run))
    samples = rows(run, "samples")
    assert [row["step"] for row in samples] == [1, 1, 2, 2]
    assert all("<" in row["text"] for row in samples)  # the text, with its tags
    assert all(re.fullmatch(r"(\d+ )+: \d+ ", row["prompt"]) for row in samples)
    graded = run_python("-m", "rlvr.verify", run / "samples.jsonl", folder=ROOT).stdout
    assert graded.count("line ") == 4 and "was" not in graded
    before, after = (f"{row['pass@1']:.3f}".removeprefix("0") for row in rows(run, "eval"))
    assert f"  pass@1 {before} -> {after}  " in done.stdout
    return run


def test_a_process_of_its_own_and_its_checkpoint(run, tmp_path):
    """--max_steps 0 evaluates the policy as the run has done, and does nothing else."""
    trained = train_in_a_folder(tmp_path)
    assert run("grpo", max_steps=0, model=trained / "checkpoint-2").code == 0
    assert rows("run", "eval")[0] == rows(trained, "eval")[-1] | dict(step=0)
    files = {path.name for path in Path("run").iterdir()}
    assert files == {"config.json", "eval.jsonl", "problems.jsonl", "curves.png"}


@pytest.mark.slow
def test_two_ranks(tmp_path):
    torchrun = f"-m torch.distributed.run --nproc_per_node 2 --master_port {runs.free_port()}"
    train_in_a_folder(tmp_path, *torchrun.split())


@pytest.mark.slow
@pytest.mark.parametrize("script, variant", VARIANTS)
def test_every_variant_trains(run, script, variant):
    result = run(script, variant=variant)
    assert result.code == 0, result.err
    assert_finite("run")
    assert steps("run") == [1, 2] and steps("run", "eval") == [0, 1, 2]
    for row in rows("run"):
        if row["all_wrong"] + row["all_right"] < 1:  # some group has a contrast to learn from
            assert row["grad_norm"] > 0


CHAT = (
    "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<think>{% endif %}"
)


def test_a_local_model_and_two_data_sets(run, monkeypatch):
    """The defaults become those of large models, and an evaluation has a line for each set."""
    monkeypatch.setattr(rlvr.tasks.datasets, "load_problems", runs.real_load_problems)
    policy, _, tokenizer = rlvr.policy.models.load_policies(Config())
    tokenizer.chat_template = CHAT
    rlvr.training.checkpoints.save_folder(Path("chat"), policy, tokenizer)
    sums = [dict(question=f"{i} 1 : ", gold=i + 1) for i in range(20)]
    sums = write(Path("sums.jsonl"), sums)
    data = dict(dataset=sums, eval_dataset=f"countdown,{sums}", columns="question,gold")
    data |= dict(verifier="number", system_prompt="none", max_completion_length=16)
    result = run("grpo", model="chat", max_steps=1, eval_samples=3, **data)
    assert result.code == 0, result.err
    assert json.loads(Path("run/config.json").read_text())["learning_rate"] == 1e-6
    (row,) = rows("run")
    assert row["length"] <= 16
    assert row["mismatch"] < 1e-4
    assert not rows("run", "samples")[0]["text"].startswith("<think>")  # it is of the prompt
    first, second, *_ = rows("run", "eval")
    for name, row in (("countdown", first), (sums, second)):
        assert row["set"] == name and {"pass@2", "pass@3", "greedy"} <= row.keys()
        assert f"eval 0/1 {name}  pass@1 " in result.out


WITHOUT_TORCH = """
import runpy
import sys

sys.modules["torch"] = None
sys.version_info = (3, int(sys.argv[2]), 14, "final", 0)
sys.argv[0] = sys.argv[1]
runpy.run_path(sys.argv[1], run_name="__main__")
"""


@pytest.mark.parametrize(
    "version, code, told",
    [(10, 2, "Python 3.11 or newer is needed, .*\n"), (11, 1, "torch is not installed in .*\n")],
)
def test_an_older_python_or_one_without_torch_gets_one_line(version, code, told):
    done = run_python("-c", WITHOUT_TORCH, "grpo.py", str(version), folder=ROOT)
    assert done.returncode == code
    assert re.fullmatch(told, done.stderr), done.stderr
    for file in (*ROOT.glob("*.py"), ROOT / "rlvr/__init__.py"):
        ast.parse(file.read_text(), feature_version=(3, 8))


def test_threads_wait_without_spinning(monkeypatch):
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    for expected in ("PASSIVE", "ACTIVE"):
        importlib.reload(rlvr)
        assert os.environ["OMP_WAIT_POLICY"] == expected
        monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
