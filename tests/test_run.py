"""A run from its first to its last line: its folder, its logs, its updates, and how it fails."""

import gc
import math
import sys
from pathlib import Path
from types import SimpleNamespace

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
from runs import (
    SCRIPTS,
    assert_finite,
    first_fast,
    refused,
    rows,
    weights,
)
from samples import writer_of_batch

import common


@pytest.fixture
def start():
    """The weights that a run with the small flags begins with."""
    return weights(rlvr.policy.models.tiny_folder(Config()))


def are_equal(first, second):
    """Whether two policies have the same weights."""
    return all(torch.equal(first[name], second[name]) for name in first)


# ------------------------------------------------------------------------------- the run folder


def test_a_rank_draws_by_seed_and_number_and_looks_for_garbage_once_all_is_loaded(run, monkeypatch):
    monkeypatch.setattr(world, "RANK", 2)
    gc.disable()  # as rlvr/__init__.py does for a script
    assert run("grpo", max_steps=0, seed=5).code == 0
    assert torch.initial_seed() == 7
    assert gc.isenabled()
    gc.unfreeze()


def test_which_checkpoints_are_saved_and_kept(monkeypatch, tmp_path):
    """One after each third of the run, and the last one; the newest two stay."""
    saved = []

    def save(folder, training, step):
        saved.append(step)
        folder.mkdir()

    monkeypatch.setattr(rlvr.training.checkpoints, "save", save)
    config = Config(max_steps=7, save_total_limit=2)
    run = SimpleNamespace(config=config, stopped=0.0, folder=tmp_path, training=None)
    for step in range(1, 8):
        Run.end_step(run, step)
    assert saved == [3, 6, 7]  # ceil(7 / 3) is 3
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint-6", "checkpoint-7"}


# -------------------------------------------------------------------- updates that are left out


@pytest.fixture
def step_with(monkeypatch):
    """step_with(gradient) makes an update of two weights, -> how much they have moved."""
    monkeypatch.setattr(rlvr.training.run, "MAX_SKIPPED_UPDATES", 3)
    policy = torch.nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(policy.parameters(), lr=1.0)
    run = SimpleNamespace(skipped_in_a_row=0, updates=UpdateMetrics(), folder="the folder")

    def step(*gradient):
        before, policy.weight.grad = policy.weight.detach().clone(), torch.tensor([gradient])
        Run.optimizer_step(run, policy, optimizer)
        assert policy.weight.grad is None
        return (before - policy.weight.detach())[0].tolist()

    step.updates = run.updates
    return step


def test_a_long_gradient_is_clipped_and_one_that_is_not_finite_skipped(step_with, capsys):
    assert step_with(3.0, 4.0) == pytest.approx([0.6, 0.8], abs=1e-5)
    assert step_with(0.3, 0.4) == pytest.approx([0.3, 0.4])
    assert capsys.readouterr().out == ""
    assert step_with(0.0, 0.0) == [0, 0]
    assert "no update: the gradient is 0" in capsys.readouterr().out
    for value in (math.nan, math.inf):
        assert step_with(value, 1.0) == [0, 0]
        assert "no update: the gradient is NaN or infinite" in capsys.readouterr().out
    assert step_with.updates.grad_norms[:3] == pytest.approx([5, 0.5, 0])
    assert step_with.updates.metrics()["skipped"] == 2


def test_three_in_a_row_end_the_run(step_with):
    """Two and two with a good one between them do not."""
    for value in (math.nan, math.nan, 1.0, math.nan, math.nan):
        step_with(value, 1.0)
    with pytest.raises(UserError, match="^3 updates in a row .* the folder/metrics.jsonl.*rate"):
        step_with(math.nan, 1.0)


# -------------------------------------------------------------------------- rollouts at the edges


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
def test_a_rollout_at_the_edges(run, monkeypatch, start, script, edge):
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
    assert are_equal(start, weights("run/checkpoint-1")) == has_no_contrast


def test_a_completion_that_outgrows_the_context_is_refused_before_training(run):
    """Together with its prompt, which here has 8 or 9 tokens."""
    result = run("grpo", max_completion_length=1016)
    assert refused(result, "grpo", "context of 1024")
    assert not list(Path("run").glob("*.jsonl"))


# -------------------------------------------------------------------------------------- report_to


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
    assert resume("grpo", "run", max_steps=2).code == 0
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
