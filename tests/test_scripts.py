"""The scripts as a user runs them: every variant, settings off the defaults, two ranks.

Most runs are in this process, since importing torch anew costs more than training two steps.
"""

import ast
import importlib
import json
import os
import re
from pathlib import Path

import rlvr.policy.models
import rlvr.policy.saving
import rlvr.policy.tiny
import rlvr.tasks.datasets
from rlvr.flags.config import Config
from rlvr.show.statistics import rank1_statistics

import matplotlib.image
import pytest
import torch
from runs import (
    ROOT,
    SCRIPTS,
    SMALL,
    VARIANTS,
    arguments,
    assert_finite,
    first_fast,
    first_slow,
    free_port,
    real_load_problems,
    rows,
    run_python,
    steps,
    weights,
    write_sums,
)

# ------------------------------------------------------------------------------------ whole runs


def assert_whole(folder, out):
    """A run folder has possible numbers, texts, weights that load; `out` tells pass@1."""
    assert_finite(folder)
    for row in rows(folder):
        assert 0 <= row["reward"] <= 1 and 0 < row["length"] <= 48 and row["entropy"] > 0
        if row["all_wrong"] + row["all_right"] < 1:  # some group has a contrast to learn from
            assert row["grad_norm"] > 0
    for row in rows(folder, "eval"):
        assert 0 <= row["pass@1"] <= row["pass@2"] <= row["pass@4"] <= 1
    samples = rows(folder, "samples")
    assert [row["step"] for row in samples] == [step for step in steps(folder) for _ in range(2)]
    assert {row["reward"] for row in samples} <= {0, 1}
    assert all("<" in row["text"] for row in samples)  # the text, with its tags
    assert all(re.fullmatch(r"(\d+ )+: \d+ ", row["prompt"]) for row in samples)
    saved = weights(folder / f"checkpoint-{steps(folder)[-1]}")
    assert all(value.isfinite().all() for value in saved.values())
    before, after = rows(folder, "eval")[0], rows(folder, "eval")[-1]
    numbers = [f"{row['pass@1']:.3f}".removeprefix("0") for row in (before, after)]
    assert f"  pass@1 {numbers[0]} -> {numbers[1]}  " in out


NOT_SLOW = {("grpo", "dapo"), ("cwgrpo", "released")}


@pytest.mark.parametrize(
    "script, variant",
    [pytest.param(*v, marks=[] if v in NOT_SLOW else pytest.mark.slow) for v in VARIANTS],
)
def test_every_variant_trains_and_leaves_a_whole_run_folder(run, script, variant):
    result = run(script, variant=variant)
    assert result.code == 0, result.err
    config = json.loads(Path("run/config.json").read_text())
    preset = importlib.import_module(script).VARIANTS[variant]
    expected = {**preset, "variant": variant, **SMALL}  # a flag that is given wins
    assert {key: config[key] for key in preset} == {key: expected[key] for key in preset}
    assert steps("run") == [1, 2]
    assert steps("run", "eval") == [0, 1, 2]
    assert_whole(Path("run"), result.out)


def assert_trains_in_a_folder(folder, script, launcher, cache_dir):
    """The script makes a run folder with all its files there, and tells each step once."""
    flags = SMALL | dict(eval_steps=2, cache_dir=cache_dir)
    command = [*launcher.split(), ROOT / f"{script}.py", *arguments(**flags)]
    done = run_python(*command, folder=folder)
    assert done.returncode == 0, done.stderr
    (run_folder,) = (folder / "runs").iterdir()
    # <script>-<variant>-<time>, and the default variant has the script's name
    assert run_folder.name.startswith(f"{script}-{script}-")
    assert f"runs/{run_folder.name}" in done.stdout
    headings = re.findall(r"^(?:eval| +) ?(\d/2) ", done.stdout, re.M)
    assert headings == ["0/2", "1/2", "2/2", "2/2"]
    logs = "metrics.jsonl eval.jsonl samples.jsonl tokens.jsonl"
    files = f"config.json curves.png report.html checkpoint-1 checkpoint-2 {logs}"
    assert {path.name for path in run_folder.iterdir()} == {*files.split()}
    assert steps(run_folder) == [1, 2]
    assert steps(run_folder, "eval") == [0, 2]
    assert_whole(run_folder, done.stdout)
    assert matplotlib.image.imread(run_folder / "curves.png").size
    assert any(row["grad_norm"] > 0 for row in rows(run_folder))
    first, last = (weights(run_folder / f"checkpoint-{step}") for step in (1, 2))
    assert any(not torch.equal(first[key], last[key]) for key in first)


def test_a_process_of_its_own(cache_dir, tmp_path):
    assert_trains_in_a_folder(tmp_path, "grpo", "", cache_dir)


@pytest.mark.parametrize("script", first_slow(SCRIPTS))
def test_two_ranks(cache_dir, tmp_path, script):
    torchrun = f"-m torch.distributed.run --nproc_per_node 2 --master_port {free_port()}"
    assert_trains_in_a_folder(tmp_path, script, torchrun, cache_dir)
    (folder,) = (tmp_path / "runs").iterdir()
    assert 16 * rows(folder)[0]["reward"] % 1 == 0  # a share of all 16 completions


@pytest.mark.slow
def test_the_seed_settles_everything(run):
    """Also where one evaluates and saves less often."""
    run("grpo", output_dir="first", seed=5)
    run("grpo", output_dir="again", seed=5, eval_steps=100, save_steps=100)
    run("grpo", output_dir="other", seed=6)
    for name in ("metrics", "samples"):
        assert rows("first", name) == rows("again", name) != rows("other", name)
    assert rows("first", "eval")[-1] == rows("again", "eval")[-1]
    assert steps("again", "eval") == [0, 2]
    assert [*Path("again").glob("checkpoint-*")] == [Path("again/checkpoint-2")]  # the last is


def test_a_checkpoint_is_a_policy_to_evaluate(run):
    """With --max_steps 0; nothing else is done."""
    run("grpo", max_steps=1)
    given = dict(model="run/checkpoint-1", output_dir="evaluated")
    assert run("grpo", max_steps=0, **given).code == 0
    assert rows("evaluated", "eval")[0] == {**rows("run", "eval")[-1], "step": 0}
    files = {path.name for path in Path("evaluated").iterdir()}
    assert files == {"config.json", "eval.jsonl", "curves.png"}


# --------------------------------------------------------------------- off the default settings


@pytest.mark.parametrize("script", first_fast(SCRIPTS))
def test_many_settings_off_the_defaults_at_once(run, script):
    level = "token" if script == "cwgrpo" else "sequence"  # it weighs single tokens
    result = run(
        script,
        max_steps=1,
        temperature=0.7,
        beta=0.001,
        entropy_coef=1e-4,
        num_iterations=2,
        aggregation="constant",
        mask_truncated_completions=True,
        dynamic_sampling=True,
        importance_sampling_level=level,
        epsilon=1e-5,
        microbatch_tokens=64,
        rollout_batch_size=5,
        top_p=0.9,
        eval_temperature=0.6,
    )
    assert result.code == 0, result.err
    assert_finite("run")
    (row,) = rows("run")
    assert row["kl"] > 0  # away from where it started
    # so narrow a range clips from the second update on
    assert row["clip_low"] + row["clip_high"] > 0


@pytest.mark.usefixtures("no_evaluation")
def test_fade_logs_what_has_become_of_its_head(run, cache_dir):
    """Against the policy that the run has begun with."""
    start = weights(rlvr.policy.tiny.tiny_folder(Config()))["lm_head.weight"]
    assert run("fade", beta=0.1, learning_rate=1e-3).code == 0
    before, *after = rows("run", "eval")
    assert (before["r1"], before["ratio"], before["srank"]) == (0, 1, 0)
    for row in after:
        head = weights(f"run/checkpoint-{row['step']}")["lm_head.weight"]
        expected = rank1_statistics(head - start)
        assert {key: row[key] for key in expected} == pytest.approx(expected, rel=1e-4)
        assert 0 < row["r1"] < 1


# ------------------------------------------------------------- other policies, sets and protocols

CHAT = (
    "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<think>{% endif %}"
)


@pytest.mark.parametrize("script", first_fast(SCRIPTS))
def test_a_local_model_and_data_sets_by_a_protocol(run, cache_dir, monkeypatch, script):
    """A tuned model has a chat template, and the defaults become those of large models.

    A set's name stands before each metric of an evaluation, and each set has a line.
    """
    monkeypatch.setattr(rlvr.tasks.datasets, "load_problems", real_load_problems)
    policy, _, tokenizer = rlvr.policy.models.load_policies(Config())
    tokenizer.chat_template = CHAT
    rlvr.policy.saving.save_folder(Path("chat"), policy, tokenizer)
    sums = write_sums("sums.jsonl", 20)
    result = run(
        script,
        model="chat",
        dataset=sums,
        eval_dataset=f"countdown,{sums}",
        verifier="number",
        max_steps=1,
        system_prompt="none",
        columns="question,gold",
        max_completion_length=16,
        eval_protocol="agrae",
        eval_samples=3,
        eval_max_completion_length=16,
    )
    assert result.code == 0, result.err
    config = json.loads(Path("run/config.json").read_text())
    assert config["learning_rate"] == 1e-6
    memory = r"^memory a rank: 0\.0 GB weights, gradients.*; 0\.6 GB activations"
    assert re.search(memory, result.out, re.M)
    (row,) = rows("run")
    assert row["length"] <= 16
    assert row["mismatch"] < 1e-4
    assert not rows("run", "samples")[0]["text"].startswith("<think>")  # it is of the prompt
    first, _ = rows("run", "eval")
    for name in ("countdown", sums):
        # the flag's 3 samples win over the protocol's 16
        assert {f"{name}/{key}" for key in ("pass@2", "pass@3", "greedy")} <= first.keys()
        number = f"{first[f'{name}/pass@1']:.3f}".removeprefix("0")
        assert f"eval 0/1 {name}  pass@1 {number}  " in result.out


# ------------------------------------------------------------------------------------- processes


OLD_PYTHON_WITHOUT_TORCH = """
import runpy
import sys

sys.modules["torch"] = None
sys.version_info = (3, 10, 14, "final", 0)
runpy.run_path(sys.argv[1], run_name="__main__")
"""


@pytest.mark.parametrize("script", first_fast(SCRIPTS))
def test_an_older_python_gets_one_line_before_torch_is_imported(script):
    """Newer syntax would be an error before. How threads wait is settled before torch, too."""
    done = run_python("-c", OLD_PYTHON_WITHOUT_TORCH, f"{script}.py", folder=ROOT)
    assert done.returncode == 2
    assert re.fullmatch("Python 3.11 or newer is needed, .*\n", done.stderr), done.stderr
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"  # by rlvr, or by the user
    for file in (f"{script}.py", "rlvr/__init__.py"):
        ast.parse((ROOT / file).read_text(), feature_version=(3, 8))
