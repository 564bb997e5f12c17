"""A run from its first to its last line: its folder, its logs, its updates, and how it fails."""

import gc
import math
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import rlvr.policy.models
import rlvr.training.run
from rlvr import world
from rlvr.errors import UserError
from rlvr.flags.config import Config
from rlvr.tasks.problems import Sample
from rlvr.training.run import Run
from rlvr.training.updates import UpdateMetrics

import pytest
import torch
from runs import SCRIPTS, assert_finite, before_calls, first_fast, refused, rows, steps, weights
from samples import writer_of_batch

import common


@pytest.mark.usefixtures("no_evaluation")
def test_a_rank_draws_by_seed_and_number_and_looks_for_garbage_once_all_is_loaded(run, monkeypatch):
    """It leaves files and messages to rank 0."""
    asked = []
    for name in ("process_group", "own"):
        before_calls(monkeypatch, rlvr.machine, name, lambda *given: asked.append(given))
    monkeypatch.setattr(world, "RANK", 2)
    gc.disable()  # as rlvr/__init__.py does for a script
    result = run("grpo", max_steps=1, seed=5)
    assert (result.code, result.out) == (0, "") and not Path("run").exists()
    assert asked == [(torch.device("cpu"),), (Path("run"),)]
    assert torch.initial_seed() == 7
    assert gc.isenabled()
    gc.unfreeze()


def test_which_checkpoints_are_saved_and_kept(monkeypatch, tmp_path):
    """One after each third of the run, and the last one; the newest two stay.

    A signal to another rank ends this one after the same step.
    """
    save = Mock(side_effect=lambda folder, training, step: folder.mkdir())
    monkeypatch.setattr(rlvr.training.checkpoints, "save", save)
    config = Config(max_steps=7, save_total_limit=2)
    run = SimpleNamespace(config=config, stopped=0.0, folder=tmp_path, training=None)
    assert not any(Run.end_step(run, step) for step in range(1, 8))
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint-6", "checkpoint-7"}
    monkeypatch.setattr(rlvr.machine, "gather", lambda mine: [*mine, 1.0])
    assert Run.end_step(run, 8)
    assert [call.args[2] for call in save.call_args_list] == [3, 6, 7, 8]  # ceil(7 / 3) is 3


@pytest.mark.usefixtures("no_evaluation")
def test_the_seconds_of_a_step_are_those_of_its_rollout_and_its_updates(run, monkeypatch):
    """Not those before the first step, nor of evaluations and checkpoints."""
    now = [0.0]

    def tick(seconds):
        now[0] += seconds

    for module in (common, rlvr.training.run):
        clock = SimpleNamespace(**vars(time) | dict(perf_counter=lambda: now[0]))
        monkeypatch.setattr(module, "time", clock)
    for owner, name, seconds in (
        (common, "evaluate", 1000),
        (common, "sample_groups", 10),
        (Run, "optimizer_step", 1),
        (rlvr.training.checkpoints, "save", 100),
    ):
        before_calls(monkeypatch, owner, name, lambda *_, seconds=seconds: tick(seconds))
    assert run("grpo").code == 0  # two steps of two updates
    found = rows("run", timed=True)
    assert [(row["seconds_rollout"], row["seconds_update"]) for row in found] == [(10, 2)] * 2


def test_advantages_are_logged_with_their_weights(monkeypatch):
    log_tokens = Mock()
    monkeypatch.setattr(rlvr.training.run, "log_tokens", log_tokens)
    monkeypatch.setattr(world, "RANK", 1)  # so that nothing is written
    run = SimpleNamespace(updates=SimpleNamespace(metrics=dict), clock=0.0)
    batch = SimpleNamespace(metrics=dict, seconds=0.0)
    weights = torch.full((2, 1), 0.5)
    Run.log_step(run, 1, batch, torch.tensor([[1.0], [-2.0]]), {}, weights)
    *_, advantages, given = log_tokens.call_args.args
    assert advantages.tolist() == [[0.5], [-1.0]] and given is weights


def test_a_long_gradient_is_clipped_and_one_that_is_not_finite_skipped(capsys):
    """Ten in a row end the run. Nine and nine with a good one between them do not."""
    policy = torch.nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(policy.parameters(), lr=1.0)
    run = SimpleNamespace(skipped_in_a_row=0, updates=UpdateMetrics(), folder="the folder")

    def moved_by(*gradient):
        before, policy.weight.grad = policy.weight.detach().clone(), torch.tensor([gradient])
        Run.optimizer_step(run, policy, optimizer)
        assert policy.weight.grad is None
        return (before - policy.weight.detach())[0].tolist()

    assert moved_by(3.0, 4.0) == pytest.approx([0.6, 0.8], abs=1e-5)
    assert moved_by(0.3, 0.4) == pytest.approx([0.3, 0.4])
    assert capsys.readouterr().out == ""
    assert moved_by(0.0, 0.0) == [0, 0]
    assert "no update: the gradient is 0" in capsys.readouterr().out
    for value in (math.nan, math.inf):
        assert moved_by(value, 1.0) == [0, 0]
        assert "no update: the gradient is NaN or infinite" in capsys.readouterr().out
    assert run.updates.grad_norms[:3] == pytest.approx([5, 0.5, 0])
    assert run.updates.metrics()["skipped"] == 2
    for value in (*[math.nan] * 7, 1.0, *[math.nan] * 9):
        moved_by(value, 1.0)
    with pytest.raises(UserError, match="^10 updates in a row .* the folder/metrics.jsonl.*rate"):
        moved_by(math.nan, 1.0)


# What a rollout is: groups of (prompt length, token ids, reward).
EDGES = {
    "all wrong": [[(4, [5, 9, 1], 0.0)] * 4] * 4,
    "some are empty": [
        [(4, [], 0.0), (4, [1], 0.0), (4, [5, 9, 1], 1.0), (4, [5, 1], 0.0)],
        [(3, [], 0.0)] * 4,
        [(3, [], 1.0), (3, [1], 0.0), (3, [], 0.0), (3, [], 0.0)],
        [(3, [1], 1.0), (3, [1], 1.0), (3, [1], 0.0), (3, [1], 0.0)],
    ],
    "all cut off and masked": [[(4, [5, 9, 7], 1.0), (4, [6, 9, 7], 0.0)]],
}


@pytest.mark.usefixtures("no_evaluation")
@pytest.mark.parametrize("edge", first_fast([*EDGES][::-1]))
@pytest.mark.parametrize("script", first_fast(SCRIPTS))
def test_a_rollout_at_the_edges(run, monkeypatch, script, edge):
    """A gradient, or the weights as they were, and a line that says so."""
    groups = EDGES[edge]
    samples = [
        Sample([7] * length, ids, "", reward, 7 in ids, [-1.0] * len(ids), success=reward == 1)
        for group in groups
        for length, ids, reward in group
    ]

    def roll_out(sampler, stream, config):
        return common.make_batch(samples, config, writer_of_batch(sampler.tokenizer))

    monkeypatch.setattr(common, "roll_out", roll_out)
    size, count = len(groups[0]), len(groups)
    has_no_contrast = edge.startswith("all")
    flags = dict(prompts_per_step=count, num_generations=size, minibatch_size=size * count)
    if edge == "all cut off and masked":  # the bonus for entropy is of no masked token, either
        flags |= dict(mask_truncated_completions=True, entropy_coef=0.1)
    elif not has_no_contrast:
        flags |= dict(beta=0.01, entropy_coef=0.01)
    result = run(script, max_steps=1, **flags)
    assert result.code == 0, result.err
    assert_finite("run")
    (row,) = rows("run")
    assert (row["grad_norm"] == 0) == has_no_contrast
    assert (row["entropy"] == 0) == (edge == "all cut off and masked")
    assert row["skipped"] == 0
    assert result.out.count("no update: the gradient is 0") == has_no_contrast
    start, now = weights(rlvr.policy.models.tiny_folder(Config())), weights("run/checkpoint-1")
    assert all(torch.equal(start[name], now[name]) for name in start) == has_no_contrast


def test_a_completion_that_outgrows_the_context_is_refused_before_training(run):
    """Together with its prompt, which here has 8 or 9 tokens."""
    result = run("grpo", max_completion_length=1016)
    assert refused(result, "grpo", "context of 1024")
    assert not list(Path("run").glob("*.jsonl"))


@pytest.mark.usefixtures("no_evaluation")
def test_report_to_wandb(run, resume, monkeypatch):
    """With a stand-in: each row of the .jsonl files is logged once, also by a resumed run.

    This has as many threads, whose number changes rounding.
    """
    started, written = [], []
    stand_in = SimpleNamespace(
        init=lambda **given: started.append(given),
        log=lambda *given: written.append(given),
        __spec__="found",
    )
    monkeypatch.setitem(sys.modules, "wandb", stand_in)
    torch.set_num_threads(3)
    assert run("grpo", report_to="wandb", seed=7, max_steps=1).code == 0
    torch.set_num_threads(1)
    assert "pass@1 .500 -> .500" in resume("grpo", "run", max_steps=2).out
    assert steps("run", "samples") == [1, 1, 2, 2]
    assert torch.get_num_threads() == started[0]["config"]["num_threads"] == 3
    assert [(given["resume"], given["name"]) for given in started] == [
        ("never", "run"),
        ("allow", "run"),
    ]
    assert started[0]["config"]["seed"] == 7
    assert rows("run", timed=True)[0].keys() >= {"seconds_rollout", "seconds_update"}
    expected = [
        ({f"{name}/{key}": value for key, value in row.items() if key != "step"}, row["step"])
        for name in ("metrics", "eval")
        for row in rows("run", name, timed=True)
    ]
    assert sorted(written, key=str) == sorted(expected, key=str)
