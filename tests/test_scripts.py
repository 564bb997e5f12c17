"""The scripts as a user runs them: every variant, settings off the defaults, resuming, signals.

Most runs are in this process, since importing torch anew costs more than training two steps. One
run of each script, those of two ranks and those that get a signal are processes of their own.
"""

import ast
import importlib
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from functools import cache, partial
from pathlib import Path

import rlvr.flags.command_line
import rlvr.policy.logprobs
import rlvr.policy.models
import rlvr.policy.saving
import rlvr.rollout.rollouts
import rlvr.tasks.datasets
import rlvr.training.run
from rlvr.flags.config import Config

import matplotlib.image
import pytest
import torch
import transformers
from runs import (
    ENVIRONMENT,
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
    refused,
    rows,
    steps,
    weights,
    write_sums,
)

# ------------------------------------------------------------------------------------ whole runs


def assert_whole(folder, out):
    """A run folder has possible numbers, texts, a figure, weights that load; `out` has a table."""
    assert_finite(folder)
    for row in rows(folder):
        assert 0 <= row["reward"] <= 1
        assert 0 < row["length"] <= 48
        assert row["entropy"] > 0
        if row["all_wrong"] + row["all_right"] < 1:  # some group has a contrast to learn from
            assert row["grad_norm"] > 0
    for row in rows(folder, "eval"):
        assert 0 <= row["pass@1"] <= row["pass@2"] <= row["pass@4"] <= 1
        assert row["pass@1"] == pytest.approx(row["reward"])  # as many samples a problem
    samples = rows(folder, "samples")
    assert {row["step"] for row in samples} == set(steps(folder))
    assert {row["reward"] for row in samples} <= {0, 1}
    assert all("<" in row["text"] for row in samples)  # the text, with its tags
    figure = folder / "curves.png"
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert matplotlib.image.imread(figure).size
    policy, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder / f"checkpoint-{steps(folder)[-1]}", output_loading_info=True
    )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert policy.dtype == torch.float32
    assert all(value.isfinite().all() for value in policy.parameters())
    before, after = rows(folder, "eval")[0], rows(folder, "eval")[-1]
    for key in ("pass@1", "pass@4", "answer_entropy", "token_entropy"):
        assert re.search(rf"^{key} +{before[key]:.3f} +{after[key]:.3f}$", out, re.M)


# One of each script that is not its default, and the rest is slow.
NOT_SLOW = {
    ("grpo", "dapo"),
    ("agrae", "agrae-dr-grpo"),
    ("asymgrpo", "pos-only"),
    ("fade", "log-schedule"),
    ("cwgrpo", "clip-cov"),
}
assert set(VARIANTS) > NOT_SLOW


@pytest.mark.parametrize(
    "script, variant",
    [pytest.param(*v, marks=[] if v in NOT_SLOW else pytest.mark.slow) for v in VARIANTS],
)
def test_every_variant_trains_and_leaves_a_whole_run_folder(run, script, variant):
    result = run(script, variant=variant)
    assert result.code == 0, result.err
    config = json.loads(Path("run/config.json").read_text())
    preset = importlib.import_module(script).VARIANTS[variant]
    # a flag that is given wins
    assert {key: config[key] for key in preset} == preset | {
        key: value for key, value in SMALL.items() if key in preset
    }
    assert config["variant"] == variant
    assert steps("run") == [1, 2]
    assert steps("run", "eval") == [0, 1, 2]
    assert_whole(Path("run"), result.out)


def in_a_process(script, folder, *launcher, **flags):
    """Run a script in `folder`, for example by torchrun -> its stdout, and its run folder."""
    done = subprocess.run(
        [sys.executable, *launcher, ROOT / f"{script}.py", *arguments(**SMALL | flags)],
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    (run_folder,) = (folder / "runs").iterdir()
    return done.stdout, run_folder


@pytest.fixture(scope="module")
def whole_run(cache_dir, tmp_path_factory):
    """whole_run(script) -> the stdout and the run folder of 4 steps by default, made once."""

    @cache
    def run_whole(script):
        flags = dict(max_steps=4, eval_steps=2, save_steps=2, cache_dir=cache_dir)
        return in_a_process(script, tmp_path_factory.mktemp(script), **flags)

    return run_whole


@pytest.mark.parametrize("script", first_fast(SCRIPTS))
def test_a_process_of_its_own(whole_run, script):
    out, folder = whole_run(script)
    # <script>-<variant>-<time>, and the default variant has the script's name
    assert folder.name.startswith(f"{script}-{script}-")
    headings = [line.split(" | ")[0] for line in out.splitlines() if line.startswith("metrics ")]
    assert headings == [f"metrics {step}/4" for step in (1, 2, 3, 4)]
    logs = {"metrics.jsonl", "eval.jsonl", "samples.jsonl", "tokens.jsonl"}
    files = {"config.json", "curves.png", "report.html", *logs}
    checkpoints = {"checkpoint-2", "checkpoint-4"}
    assert {path.name for path in folder.iterdir()} == files | checkpoints
    assert f"runs/{folder.name}" in out  # says where all is
    assert steps(folder) == [1, 2, 3, 4]
    assert steps(folder, "eval") == [0, 2, 4]
    assert_whole(folder, out)
    assert any(row["grad_norm"] > 0 for row in rows(folder))
    first, last = weights(folder / "checkpoint-2"), weights(folder / "checkpoint-4")
    assert any(not torch.equal(first[key], last[key]) for key in first)


@pytest.mark.slow
def test_the_seed_settles_everything(run):
    for folder, seed in (("first", 5), ("again", 5), ("other", 6)):
        run("grpo", output_dir=folder, seed=seed, eval_steps=2, save_steps=2)
    for name in ("metrics", "eval", "samples"):
        assert rows("first", name) == rows("again", name)
    assert rows("first") != rows("other")
    assert rows("first", "samples") != rows("other", "samples")


@pytest.mark.slow
def test_how_often_one_evaluates_and_saves_does_not_change_the_training(run):
    run("grpo", output_dir="often")
    run("grpo", output_dir="seldom", eval_steps=100, save_steps=100)
    assert rows("often") == rows("seldom")
    assert steps("often", "eval") == [0, 1, 2]
    assert steps("seldom", "eval") == [0, 2]
    assert not Path("seldom/checkpoint-1").exists()
    assert Path("seldom/checkpoint-2").exists()  # the last is always saved


def test_max_steps_0_evaluates_a_checkpoint_and_nothing_else(run):
    run("grpo")
    result = run("grpo", model="run/checkpoint-2", output_dir="evaluated", max_steps=0)
    assert result.code == 0
    assert "teaching the tiny" not in result.err
    assert rows("evaluated", "eval") == [{**rows("run", "eval")[-1], "step": 0}]
    assert not Path("evaluated/metrics.jsonl").exists()
    assert not list(Path("evaluated").glob("checkpoint-*"))
    assert Path("evaluated/curves.png").exists()


@pytest.mark.slow
def test_training_can_start_from_a_checkpoint_folder(run):
    run("grpo", max_steps=1)
    result = run("grpo", model="run/checkpoint-1", output_dir="second", learning_rate=0)
    assert result.code == 0, result.err
    assert steps("second") == [1, 2]
    assert rows("second", "eval")[0] == {**rows("run", "eval")[-1], "step": 0}
    start, end = weights("run/checkpoint-1"), weights("second/checkpoint-2")
    assert all(torch.equal(start[key], end[key]) for key in start)  # at learning rate 0


# -------------------------------------------------------------------------------------- resuming


@pytest.mark.parametrize("script", first_fast(SCRIPTS))
def test_two_steps_and_two_after_resuming_are_four(run, resume, whole_run, script):
    _, straight = whole_run(script)
    assert run(script, eval_steps=2, save_steps=2).code == 0
    result = resume(script, "run", max_steps=4)
    assert result.code == 0, result.err
    for name in ("metrics", "eval", "samples"):
        assert rows("run", name) == rows(straight, name)
    resumed, expected = weights("run/checkpoint-4"), weights(straight / "checkpoint-4")
    assert resumed.keys() == expected.keys()
    assert all(torch.equal(resumed[key], expected[key]) for key in expected)


@pytest.mark.slow
def test_resume_from_an_earlier_checkpoint_drops_the_rows_after_it(run, resume):
    run("grpo", max_steps=3)
    before, before_eval = rows("run"), rows("run", "eval")
    assert resume("grpo", "run/checkpoint-1").code == 0
    assert rows("run") == before
    assert rows("run", "eval") == before_eval
    assert steps("run") == [1, 2, 3]
    assert steps("run", "samples") == [1, 1, 2, 2, 3, 3]


def test_resuming_a_finished_run_adds_nothing(run, resume):
    run("grpo", max_steps=1)
    before = rows("run", timed=True)
    result = resume("grpo", "run")
    assert result.code == 0
    assert rows("run", timed=True) == before
    assert "metrics 1/1" not in result.out


# --------------------------------------------------------------------- off the default settings


@pytest.mark.parametrize("script", first_fast(SCRIPTS))
def test_many_settings_off_the_defaults_at_once(run, monkeypatch, script):
    updates = []
    optimizer_step = rlvr.training.run.Run.optimizer_step

    def counted(*given):
        updates.append(1)
        return optimizer_step(*given)

    monkeypatch.setattr(rlvr.training.run.Run, "optimizer_step", counted)
    level = "token" if script == "cwgrpo" else "sequence"  # it weighs single tokens
    result = run(
        script,
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
    assert len(updates) == 8  # 2 steps, 2 epochs, 2 minibatches
    first, second = rows("run")
    assert first["kl"] > 0  # away from where it started
    assert second["kl"] > 0
    # so narrow a range clips from the second update on
    assert first["clip_low"] + first["clip_high"] > 0


@pytest.mark.parametrize("script", first_fast(SCRIPTS))
@pytest.mark.usefixtures("no_evaluation")
def test_one_update_a_rollout_is_on_policy(run, script):
    run(script, minibatch_size=16, beta=0.001)
    first, second = rows("run")
    for row in (first, second):
        assert row["clip_low"] == 0
        assert row["clip_high"] == 0
    assert first["grad_norm"] > 0
    # the reference is the policy before the first update
    assert abs(first["kl"]) < 1e-9 < second["kl"]


@pytest.mark.parametrize("script", first_fast(SCRIPTS))
@pytest.mark.usefixtures("no_evaluation")
def test_a_rollout_whose_completions_are_all_cut_off_and_masked_changes_nothing(run, script):
    """The bonus for entropy, too, is of the tokens that are trained on alone."""
    flags = dict(max_completion_length=3, mask_truncated_completions=True, entropy_coef=0.1)
    result = run(script, max_steps=1, **flags)
    assert result.code == 0, result.err
    assert_finite("run")
    (row,) = rows("run")
    assert row["truncated"] == 1
    assert row["length"] == 3
    assert row["grad_norm"] == 0


@pytest.mark.parametrize("script", first_fast(SCRIPTS))
def test_a_policy_that_solves_nothing_still_runs(run, script):
    result = run(script, sft_steps=0)
    assert result.code == 0, result.err
    assert_finite("run")
    assert [row["all_wrong"] for row in rows("run")] == [1, 1]


@pytest.mark.usefixtures("no_evaluation")
def test_entropy_bonus_alone_gives_a_gradient(run):
    """Where nothing is solved, no other term is left."""
    for folder, coefficient in (("without", 0), ("with", 1e-4)):
        run("grpo", sft_steps=0, output_dir=folder, entropy_coef=coefficient, max_steps=1)
    assert rows("without")[0]["grad_norm"] == 0 < rows("with")[0]["grad_norm"]


@pytest.mark.slow
def test_a_lower_temperature_lowers_the_entropy_of_the_rollout(run):
    for folder, temperature in (("one", 1.0), ("lower", 0.7)):
        run("grpo", output_dir=folder, temperature=temperature, max_steps=1)
    assert rows("lower")[0]["entropy"] < rows("one")[0]["entropy"]
    # the evaluation has a temperature of its own
    assert rows("lower", "eval")[0] == rows("one", "eval")[0]


@pytest.mark.usefixtures("no_evaluation")
def test_constant_aggregation_divides_by_max_completion_length(run):
    for length in (40, 80):
        run(
            "grpo",
            output_dir=str(length),
            aggregation="constant",
            max_completion_length=length,
            max_steps=1,
            minibatch_size=16,
        )
    shorter, longer = rows("40")[0], rows("80")[0]
    assert shorter["truncated"] == 0  # so it is the same rollout
    assert shorter["reward"] == longer["reward"]
    assert shorter["grad_norm"] == pytest.approx(2 * longer["grad_norm"], rel=1e-4)
    assert longer["grad_norm"] > 0


def test_numbers_of_several_sizes(run, monkeypatch):
    sizes = []
    sample_groups = rlvr.rollout.rollouts.sample_groups

    def spy(sampler, problems, *given, **named):
        sizes.extend(len(problem.gold.split(":")[0].split()) for problem in problems)
        return sample_groups(sampler, problems, *given, **named)

    monkeypatch.setattr(rlvr.rollout.rollouts, "sample_groups", spy)
    result = run(
        "grpo",
        numbers="2,3,4",
        sft_steps=0,
        max_steps=1,
        max_completion_length=4,
        prompts_per_step=16,
        eval_problems=6,
    )
    assert result.code == 0, result.err
    assert set(sizes) == {2, 3, 4}
    assert sizes[:6] == [2, 3, 4, 2, 3, 4]  # the first six are the held-out ones


@pytest.mark.usefixtures("no_evaluation")
def test_gradient_checkpointing_changes_nothing_but_memory(run):
    for flag in (False, True):
        assert run("grpo", gradient_checkpointing=flag, output_dir=str(flag)).code == 0
    for plain, checkpointed in zip(rows("False"), rows("True"), strict=True):
        for key in ("reward", "entropy", "grad_norm", "clip_low"):
            assert plain[key] == pytest.approx(checkpointed[key], rel=1e-5)
    assert rows("True")[0]["grad_norm"] > 0


@pytest.mark.parametrize("script", first_fast(SCRIPTS))
@pytest.mark.usefixtures("no_evaluation")
def test_truncated_importance_weights(run, monkeypatch, script):
    """Of `generate` they are 1. Of a sampler whose log-probs are 0.1 too low they are e^0.1 each.

    The cap cuts them off.
    """

    def gradient_norm(folder, cap):
        run(
            script,
            max_steps=1,
            minibatch_size=16,
            vllm_importance_sampling_cap=cap,
            output_dir=folder,
        )
        return rows(folder)[0]["grad_norm"]

    norms = [gradient_norm("off", 0), gradient_norm("on", 2)]
    true = rlvr.rollout.rollouts.sampled_logprobs
    monkeypatch.setattr(
        rlvr.rollout.rollouts, "sampled_logprobs", lambda *given: true(*given) - 0.1
    )
    norms += [gradient_norm("low", 2), gradient_norm("cut", 1.05)]
    assert norms[0] > 0
    expected = [1, 1, math.exp(0.1), 1.05]
    assert [norm / norms[0] for norm in norms] == pytest.approx(expected, rel=1e-3)
    assert rows("low")[0]["mismatch"] == pytest.approx(0.1, rel=1e-3)


@pytest.mark.slow
@pytest.mark.usefixtures("no_evaluation")
def test_clip_cov_fraction_is_of_the_tokens_that_are_detached(run, monkeypatch):
    cwgrpo = importlib.import_module("cwgrpo")
    monkeypatch.setattr(cwgrpo, "clip_cov_mask", partial(cwgrpo.clip_cov_mask, low=0.0))
    losses = {}
    for variant, fraction in (("grpo", 2e-4), ("clip-cov", 2e-4), ("clip-cov", 0.5)):
        folder = f"{variant}-{fraction}"
        result = run("cwgrpo", variant=variant, clip_cov_fraction=fraction, output_dir=folder)
        assert result.code == 0, result.err
        losses[variant, fraction] = [row["loss"] for row in rows(folder)]
    # a minibatch has too few tokens for one to be detached
    assert losses["clip-cov", 2e-4] == losses["grpo", 2e-4]
    assert losses["clip-cov", 0.5] != losses["grpo", 2e-4]
    assert refused(run("cwgrpo", clip_cov_fraction=1.5), "cwgrpo", "--clip_cov_fraction")


@pytest.mark.usefixtures("no_evaluation")
@pytest.mark.parametrize("script", first_fast(["grpo", "agrae"]))
@pytest.mark.parametrize(
    "flags, passed",
    [
        (dict(minibatch_size=16), 0),
        (dict(minibatch_size=4), 12),
        (dict(minibatch_size=8, num_iterations=2), 8),
    ],
)
def test_no_pass_where_the_old_policy_is_the_current_one(run, monkeypatch, script, flags, passed):
    """It still is in the first minibatch, whose update computes these log-probs anyway."""
    done = []
    frozen_logprobs = rlvr.policy.logprobs.frozen_logprobs

    def counted(policy, samples, config, rows):
        done.extend(rows)
        return frozen_logprobs(policy, samples, config, rows)

    monkeypatch.setattr(rlvr.policy.logprobs, "frozen_logprobs", counted)
    run(script, max_steps=1, microbatch_tokens=100, log_tokens=0, **flags)
    assert len(done) == len(set(done)) == passed
    assert rows("run")[0]["mismatch"] < 1e-5  # each row has its log-probs all the same


# ------------------------------------------------------------- other policies, sets and protocols

CHAT = (
    "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<think>{% endif %}"
)


@pytest.fixture
def chat_policy(cache_dir, tmp_path):
    """A folder with the warmed-up tiny policy and a chat template, as a tuned model has one."""
    config = Config(
        numbers=str(SMALL["numbers"]), sft_steps=SMALL["sft_steps"], cache_dir=str(cache_dir)
    )
    policy, tokenizer = rlvr.policy.models.load_policy(config, torch.device("cpu"))
    tokenizer.chat_template = CHAT
    rlvr.policy.saving.save_folder(tmp_path / "chat", policy, tokenizer)
    return "chat"


@pytest.mark.parametrize("script", first_fast(SCRIPTS))
def test_a_local_model_and_a_local_data_set(run, chat_policy, monkeypatch, script):
    """The defaults become those of large models, and the prompt goes through the chat template."""
    monkeypatch.setattr(rlvr.tasks.datasets, "load_problems", real_load_problems)
    result = run(
        script,
        model=chat_policy,
        dataset=write_sums("sums.jsonl", 20),
        verifier="number",
        max_steps=1,
        system_prompt="none",
        prompt_column="question",
        answer_column="gold",
        max_completion_length=16,
        gradient_checkpointing=True,
        microbatch_tokens=16384,
    )
    assert result.code == 0, result.err
    config = json.loads(Path("run/config.json").read_text())
    assert config["learning_rate"] == 1e-6
    assert re.search(r"^chosen for a memory of \d+ GB: --rollout_batch_size 256$", result.out, re.M)
    memory = r"^memory a rank: 0\.0 GB weights, gradients.*; 0\.6 GB activations"
    assert re.search(memory, result.out, re.M)
    (row,) = rows("run")
    assert row["length"] <= 16
    assert 0 < row["unparsed"] < 1
    assert row["mismatch"] < 1e-4
    assert not rows("run", "samples")[0]["text"].startswith("<think>")  # it is of the prompt


def test_evaluating_several_sets_by_a_protocol(run, chat_policy, monkeypatch):
    """Without training. The set's name stands before each metric, in the table as in the JSON."""
    monkeypatch.setattr(rlvr.tasks.datasets, "load_problems", real_load_problems)
    sums = write_sums("sums.jsonl", 6)
    seen = []
    sample_groups = rlvr.rollout.rollouts.sample_groups

    def spy(sampler, problems, size, temperature, length, top_p=1.0):
        seen.append((len(problems), size, temperature, top_p))
        return sample_groups(sampler, problems, size, temperature, length, top_p)

    monkeypatch.setattr(rlvr.rollout.rollouts, "sample_groups", spy)
    result = run(
        "grpo",
        model=chat_policy,
        eval_dataset=f"countdown,{sums}",
        verifier="number",
        max_steps=0,
        prompt_column="question",
        answer_column="gold",
        eval_protocol="agrae",
        eval_samples=3,
        eval_max_completion_length=16,
    )
    assert result.code == 0, result.err
    # the flag's 3 samples win over the protocol's 16
    assert seen == [(4, 3, 0.6, 0.95), (4, 1, 0.0, 1.0)] * 2
    (row,) = rows("run", "eval")
    for name in ("countdown", sums):
        assert {f"{name}/pass@1", f"{name}/pass@2", f"{name}/pass@3"} <= row.keys()
        assert f"{name}/greedy" in row
    for key in (f"{sums}/pass@1", "countdown/token_entropy"):
        assert re.search(rf"^{re.escape(key)} +{row[key]:.3f}$", result.out, re.M)


# -------------------------------------------------------------------------- processes and signals


@pytest.mark.slow
@pytest.mark.parametrize("script, number", [("grpo", signal.SIGINT), ("cwgrpo", signal.SIGTERM)])
def test_a_signal_ends_the_run_with_a_checkpoint_that_resumes(
    resume, cache_dir, tmp_path, script, number
):
    endless = dict(max_steps=10**6, eval_steps=10**6, save_steps=10**6)
    flags = arguments(**SMALL | endless, cache_dir=cache_dir, output_dir="run")
    process = subprocess.Popen(
        [sys.executable, ROOT / f"{script}.py", *flags],
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        for line in process.stdout:
            if line.startswith("metrics 1/"):
                break
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert "Traceback" not in err, err
    (checkpoint,) = Path("run").glob("checkpoint-*")
    assert str(checkpoint) in out
    last = int(checkpoint.name.split("-")[1])
    assert steps("run") == list(range(1, last + 1))
    result = resume(script, "run", max_steps=last + 2)
    assert result.code == 0, result.err
    assert steps("run") == list(range(1, last + 3))
    assert steps("run", "eval") == [0, last + 2]


@pytest.mark.parametrize("number", first_fast([signal.SIGTERM, signal.SIGINT]))
def test_a_signal_ends_the_step_and_the_run_can_be_resumed(run, resume, monkeypatch, number):
    """In this process, by the handlers that a process of its own has."""
    log = rlvr.training.run.Run.log

    def log_and_signal(self, name, *given):
        log(self, name, *given)
        if name == "metrics":
            os.kill(os.getpid(), number)

    with monkeypatch.context() as patch:
        patch.setattr(rlvr.training.run.Run, "log", log_and_signal)
        result = run("grpo", max_steps=5, eval_steps=100, save_steps=100)
    assert result.code == 0, result.err
    assert "saved run/checkpoint-1\n" in result.out
    assert steps("run") == [1]
    assert resume("grpo", "run", max_steps=2).code == 0
    assert steps("run") == [1, 2]
    assert steps("run", "eval") == [0, 2]


@pytest.mark.usefixtures("no_evaluation")
@pytest.mark.parametrize("seconds, code, saved", [(0, 0, True), (3, 130, False)])
def test_a_second_ctrl_c(run, monkeypatch, seconds, code, saved):
    """At once it is the launcher's, which passes it on to the ranks.

    Later it is the user's, who wants to quit.
    """
    log, monotonic = rlvr.training.run.Run.log, time.monotonic

    def log_and_signal(self, name, *given):
        log(self, name, *given)
        if name == "metrics":
            os.kill(os.getpid(), signal.SIGINT)
            monkeypatch.setattr(time, "monotonic", lambda: monotonic() + seconds)
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(rlvr.training.run.Run, "log", log_and_signal)
    result = run("grpo", max_steps=5, save_steps=100)
    assert result.code == code
    assert steps("run") == [1]
    assert "Traceback" not in result.err
    assert Path("run/checkpoint-1").exists() == saved


@pytest.mark.parametrize("script", first_slow(SCRIPTS))
def test_two_ranks(cache_dir, tmp_path, script):
    torchrun = f"-m torch.distributed.run --nproc_per_node 2 --master_port {free_port()}"
    flags = dict(eval_steps=2, save_steps=2, cache_dir=cache_dir)
    out, folder = in_a_process(script, tmp_path, *torchrun.split(), **flags)
    lines = [line for line in out.splitlines() if line.startswith(("metrics ", "eval "))]
    headings = [line.split(" | ")[0] for line in lines]
    assert headings == ["eval 0/2", "metrics 1/2", "metrics 2/2", "eval 2/2"]
    assert_finite(folder)
    assert steps(folder) == [1, 2]
    assert steps(folder, "eval") == [0, 2]
    assert 16 * rows(folder)[0]["reward"] % 1 == 0  # a share of all 16 completions
    assert weights(folder / "checkpoint-2")


# Runs a script where torch cannot be imported, and tells how threads would have waited.
WITHOUT_TORCH = """
import os
import runpy
import sys

sys.modules["torch"] = None
try:
    runpy.run_path(sys.argv[1], run_name="__main__")
except ImportError:
    print(os.environ["OMP_WAIT_POLICY"])
"""

# Runs a script as an older Python would, as far as it gets.
OLD_PYTHON = """
import runpy
import sys

sys.version_info = (3, 10, 14, "final", 0)
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def before_torch(program, script):
    """A process that runs a program, which runs a script up to where torch is imported."""
    environment = {k: v for k, v in ENVIRONMENT.items() if k != "OMP_WAIT_POLICY"}
    return subprocess.run(
        [sys.executable, "-c", program, f"{script}.py"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("script", SCRIPTS)
def test_how_threads_wait_is_settled_before_torch_is_imported(script):
    """Torch reads it when it is imported."""
    done = before_torch(WITHOUT_TORCH, script)
    assert done.stdout == "PASSIVE\n", done.stderr


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_older_python_gets_one_line(script):
    done = before_torch(OLD_PYTHON, script)
    assert done.returncode == 2
    assert done.stderr.startswith("Python 3.11 or newer is needed")
    assert done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize("file", [*(f"{script}.py" for script in SCRIPTS), "rlvr/__init__.py"])
def test_an_older_python_can_read_what_says_so(file):
    """Newer syntax would be an error before the line can be written."""
    ast.parse((ROOT / file).read_text(), feature_version=(3, 8))
