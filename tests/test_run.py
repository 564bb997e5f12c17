"""A run from its first to its last line: its folder, its logs, its updates, and how it fails."""

import gc
import json
import math
import platform
import sys
from pathlib import Path
from types import SimpleNamespace

import rlvr.policy.tiny
import rlvr.training.run
from rlvr import world
from rlvr.tasks.problems import Sample

import pytest
import torch
from runs import (
    ROOT,
    SCRIPTS,
    assert_finite,
    first_fast,
    refused,
    rows,
    run_python,
    small_config,
    steps,
    weights,
)
from samples import writer_of_batch

import common


@pytest.fixture
def start(cache_dir):
    """The weights that a run with the small flags begins with."""
    return weights(rlvr.policy.tiny.warmed_up_tiny(small_config(cache_dir)))


def are_equal(first, second):
    """Whether two policies have the same weights."""
    return all(torch.equal(first[name], second[name]) for name in first)


# ------------------------------------------------------------------------------- the run folder


def test_each_rank_draws_by_the_seed_and_its_number(run, monkeypatch):
    monkeypatch.setattr(world, "RANK", 2)
    assert run("grpo", max_steps=0, seed=5).code == 0
    assert torch.initial_seed() == 7


def test_garbage_is_looked_for_once_all_is_loaded(run):
    gc.disable()  # as rlvr/__init__.py does for a script
    assert run("grpo", max_steps=0).code == 0
    assert gc.isenabled()
    gc.unfreeze()


FREE_AND_TAKE = """
import resource
from rlvr.machine import keep_freed_memory

def faults(size=20 * 2**20):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    buffers = [b"1" * size, b"2" * size, b"3" * size]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

keep_freed_memory()
print(faults(), faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have other rules")
def test_freed_memory_is_taken_again_without_a_page_fault():
    """60 MB have 15,360 pages."""
    done = run_python("-c", FREE_AND_TAKE, folder=ROOT)
    assert int(done.stdout.split()[1]) < 1000, done.stderr


@pytest.mark.usefixtures("no_evaluation")
def test_config_json_tells_the_number_of_threads(run, resume, monkeypatch):
    """It changes rounding. So a resumed run has as many, unless it is told another number."""

    def used_and_noted():
        config = json.loads(Path("run/config.json").read_text())
        return torch.get_num_threads(), config["num_threads"]

    torch.set_num_threads(3)
    assert run("grpo", max_steps=1).code == 0
    assert used_and_noted() == (3, 3)
    torch.set_num_threads(1)
    assert resume("grpo", "run", max_steps=2).code == 0
    assert used_and_noted() == (3, 3)
    assert resume("grpo", "run", max_steps=3, num_threads=2).code == 0
    assert used_and_noted() == (2, 2)


# -------------------------------------------------------------------- updates that are left out


def poison(monkeypatch, value, updates):
    """Add a value to the loss of the updates in the set `updates`, counted from 0."""
    ppo_clip_loss, optimizer_step = common.ppo_clip_loss, rlvr.training.run.Run.optimizer_step
    done = []

    def bad_loss(*, logprobs, **given):
        loss, stats = ppo_clip_loss(logprobs=logprobs, **given)
        if len(done) in updates:
            loss = loss + value * logprobs[:, 0].sum()  # a first token is never padding
        return loss, stats

    def counted_step(*given):
        optimizer_step(*given)
        done.append(1)

    monkeypatch.setattr(common, "ppo_clip_loss", bad_loss)
    monkeypatch.setattr(rlvr.training.run.Run, "optimizer_step", counted_step)


@pytest.mark.usefixtures("no_evaluation")
@pytest.mark.parametrize("value", first_fast([math.nan, math.inf]))
@pytest.mark.parametrize("script", first_fast(SCRIPTS))
def test_an_update_that_is_not_finite_is_skipped_and_counted(
    run, start, monkeypatch, script, value
):
    """The update of the first step; the step after it trains as ever."""
    poison(monkeypatch, value, {0})
    # with the KL penalty there is a gradient whatever was solved
    result = run(script, beta=0.1, minibatch_size=16)
    assert result.code == 0, result.err
    assert result.out.count("no update: the gradient is NaN or infinite") == 1
    first, second = rows("run")
    assert [first["skipped"], second["skipped"]] == [1, 1]
    assert first["loss"] is None  # JSON has no word for it
    assert second["grad_norm"] > 0
    assert are_equal(start, weights("run/checkpoint-1"))
    assert torch.load("run/checkpoint-1/state.pt")["optimizer"] == {}
    after = weights("run/checkpoint-2")
    assert all(tensor.isfinite().all() for tensor in after.values())
    assert not are_equal(start, after)


@pytest.mark.usefixtures("no_evaluation")
def test_too_many_in_a_row_end_the_run(run, resume, monkeypatch):
    """Three in a row do; two and one with a good one between them do not.

    Resuming does not forget those before it.
    """
    monkeypatch.setattr(rlvr.training.run, "MAX_SKIPPED_UPDATES", 3)
    with monkeypatch.context() as patch:
        poison(patch, math.nan, {0, 1, 3})
        result = run("grpo", beta=0.1, output_dir="not in a row")
        assert result.code == 0, result.err
    with monkeypatch.context() as patch:
        poison(patch, math.nan, {1, 2, 3})
        result = run("grpo", max_steps=3, beta=0.1)
    assert refused(result, "grpo", "3 updates in a row", "--learning_rate", "run/metrics.jsonl")
    assert steps("run") == [1]
    assert Path("run/checkpoint-1").exists()
    poison(monkeypatch, math.nan, {0, 1})
    assert refused(resume("grpo", "run", max_steps=2), "grpo", "3 updates in a row")


def test_a_long_gradient_is_clipped():
    policy = torch.nn.Linear(2, 1, bias=False)
    before, policy.weight.grad = policy.weight.detach().clone(), torch.tensor([[3.0, 4.0]])
    norms = []
    updates = SimpleNamespace(end=norms.append)
    run = SimpleNamespace(skipped=0, skipped_in_a_row=0, updates=updates)
    optimizer = torch.optim.SGD(policy.parameters(), lr=1.0)
    rlvr.training.run.Run.optimizer_step(run, policy, optimizer)
    assert norms == [5]
    torch.testing.assert_close(before - policy.weight, torch.tensor([[0.6, 0.8]]))


# -------------------------------------------------------------------------- rollouts at the edges


# What a rollout is: groups of (prompt length, token ids, reward).
EDGES = {
    "all wrong": [[(4, [5, 9, 1], 0.0)] * 4] * 4,
    "all right": [[(4, [5, 9, 1], 1.0)] * 4] * 4,
    "some are empty": [
        [(4, [], 0.0), (4, [1], 0.0), (4, [5, 9, 1], 1.0), (4, [5, 1], 0.0)],
        [(3, [], 0.0)] * 4,
        [(3, [], 1.0), (3, [1], 0.0), (3, [], 0.0), (3, [], 0.0)],
        [(3, [1], 1.0), (3, [1], 1.0), (3, [1], 0.0), (3, [1], 0.0)],
    ],
    "a pair": [[(4, [5, 9, 1], 1.0), (4, [6, 1], 0.0)]],
    "all cut off and masked": [[(4, [5, 9, 7], 1.0), (4, [6, 9, 7], 0.0)]],
}


@pytest.mark.usefixtures("no_evaluation")
@pytest.mark.parametrize("edge", EDGES)
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


def test_report_to_wandb(run, resume, monkeypatch):
    """With a stand-in: each row of the .jsonl files is logged once, also by a resumed run."""
    started, written = [], []
    stand_in = SimpleNamespace(
        init=lambda **given: started.append(given),
        log=lambda *given: written.append(given),
        __spec__="found",
    )
    monkeypatch.setitem(sys.modules, "wandb", stand_in)
    assert run("grpo", report_to="wandb", seed=7, max_steps=1).code == 0
    assert resume("grpo", "run", max_steps=2).code == 0
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


def test_report_to_tensorboard_writes_an_event_file(run):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert run("grpo", report_to="tensorboard").code == 0
    events = EventAccumulator("run").Reload()
    for name, key in (("metrics", "reward"), ("eval", "pass@1")):
        found = [(event.step, event.value) for event in events.Scalars(f"{name}/{key}")]
        expected = [(row["step"], row[key]) for row in rows("run", name)]
        assert found == [pytest.approx(pair, rel=1e-6) for pair in expected]
