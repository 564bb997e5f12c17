"""The learning rate of each update by hand, and what is logged of updates."""

import math

import rlvr.machine.ranks
import rlvr.tasks.datasets
from rlvr.flags.config import Config
from rlvr.training.updates import UpdateMetrics, make_optimizer

import pytest
import torch

# 2 updates of 8 completions in each of 5 steps
FIVE_STEPS = dict(max_steps=5, prompts_per_step=4, num_generations=4, minibatch_size=8)


def rates(learning_rate=1.0, factor=1.0, **flags):
    """The learning rates of the ten updates of FIVE_STEPS."""
    config = Config(**{**FIVE_STEPS, **flags}, learning_rate=learning_rate)
    optimizer, scheduler = make_optimizer(torch.nn.Linear(1, 1), config, factor)
    assert optimizer.param_groups[0]["weight_decay"] == 0
    found = []
    for _ in range(10):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


@pytest.mark.parametrize(
    "flags, expected",
    [
        (dict(warmup_ratio=0.31), [0, 1 / 4, 1 / 2, 3 / 4, *[1] * 6]),  # 3.1 updates are 4
        # 2 updates up, and 8 down
        (
            dict(lr_scheduler_type="cosine", warmup_ratio=0.2),
            [0, 1 / 2, *[(1 + math.cos(math.pi * i / 8)) / 2 for i in range(8)]],
        ),
        # twice as many updates: the first ten of twenty
        (
            dict(lr_scheduler_type="linear", num_iterations=2),
            [1 - i / 20 for i in range(10)],
        ),
    ],
    ids=str,
)
def test_schedules_by_hand(flags, expected):
    assert rates(**flags) == pytest.approx(expected, abs=1e-15)
    assert rates(learning_rate=3e-6, **flags) == pytest.approx([3e-6 * x for x in expected])
    # FADE's --equalize_learning_rate gives a run another rate, which the schedule scales
    assert rates(0.5, 4.0, **flags) == pytest.approx([2 * x for x in expected], abs=1e-15)


def test_the_seed_orders_the_problems(monkeypatch):
    monkeypatch.setattr(rlvr.tasks.datasets, "load_problems", lambda *_: ([], {}))
    stream, _ = rlvr.tasks.datasets.open_problems(Config(seed=5), None)
    assert stream.seed == 5


def test_update_metrics_by_hand(monkeypatch):
    """Two updates, of two microbatches and of one: means over updates, and over tokens.

    Truth values become shares. The losses of two ranks add up.
    """
    update = UpdateMetrics()
    first, both = torch.tensor(0.5, requires_grad=True), torch.tensor([[1.0, 1.0], [1.0, 0.0]])
    clipped = torch.tensor([[True, False], [True, True]])
    update.add(first, both, kl=torch.full((2, 2), 2.0), clip=clipped)
    row, nothing = torch.tensor([[1.0, 0.0]]), torch.tensor([[False, True]])
    update.add(torch.tensor(0.25), row, kl=torch.tensor([[6.0, 9.0]]), clip=nothing)
    assert not update.loss.requires_grad
    update.end(grad_norm=3.0, learning_rate=2.0)
    kl = torch.tensor([[0.0, 3.0]])
    update.add(torch.tensor(-0.15), torch.ones(1, 2), kl=kl, clip=~nothing)
    update.end(grad_norm=1.0, learning_rate=0.5)
    kl, clip = (3 * 2 + 6 + 0 + 3) / 6, (2 + 0 + 1) / 6
    expected = {"loss": 0.6 / 2, "kl": kl, "clip": clip, "grad_norm": 4.0 / 2}
    expected |= {"skipped": 0, "learning_rate": 0.5}
    assert update.metrics() == pytest.approx(expected, abs=1e-6)
    monkeypatch.setattr(rlvr.machine.ranks, "gather", lambda items: items * 2)
    assert update.metrics() == pytest.approx(expected | {"loss": 0.6}, abs=1e-6)
