"""Rewards other than 0 and 1 in all five scripts: by hand, in whole runs, and the threshold."""

import importlib
import math
from dataclasses import replace

from rlvr.tasks.problems import Sample
from rlvr.verify.verifiers import VERIFIERS

import pytest
import torch
from groups import near
from runs import assert_finite, first_fast, rows

import common
from agrae import agrae_advantage

# ---------------------------------------------------------------------------------------- by hand

# Mean 0.4 and deviation 0.3; mean 0 and deviation 1. From 0.3 on a reward is a success.
GROUPS = [[0.9, 0.3, 0.3, 0.1], [-1.0, 1.0, -1.0, 1.0]]
THRESHOLD = 0.3
GRPO = [[5 / 3, -1 / 3, -1 / 3, -1], [-1, 1, -1, 1]]
# p is 3/4 and 1/2, and w is 5/8
W = 5 / 8
EASY = W / 2 / math.sqrt(3 / 4) + (1 - W) / 2 / math.sqrt(1 / 4)
MIDDLE = math.sqrt(2) / 2
AGRAE = [
    [EASY * W * 5 / 3, -EASY / 3, -EASY / 3, -EASY],
    [-MIDDLE, MIDDLE * W, -MIDDLE, MIDDLE * W],
]
ADVANTAGES = [
    ("agrae", "agrae", AGRAE),
    ("grpo", "grpo", GRPO),
    ("grpo", "grpo-n", [[0, -1 / 3, -1 / 3, -1], [-1, 0, -1, 0]]),
    ("grpo", "dr-grpo", [[0.5, -0.1, -0.1, -0.3], [-1, 1, -1, 1]]),
    ("cwgrpo", "grpo", GRPO),
    ("agrae", "hard-focused", [[a / math.sqrt(3) for a in GRPO[0]], [-MIDDLE, MIDDLE] * 2]),
    ("agrae", "w-reinforce", [[0.1, 0.1, 0.1, -1], [-1, 0.1, -1, 0.1]]),
    ("asymgrpo", "asymgrpo", [[3**-0.9] * 3 + [-(3**0.4)], [-1, 1, -1, 1]]),
    ("fade", "power", [[1 / 16] * 3 + [-3 / 16], [-1 / 4, 1 / 4] * 2]),
]


@pytest.mark.parametrize("script, variant, expected", ADVANTAGES)
def test_advantages_by_hand(script, variant, expected):
    """Of a rollout with these rewards."""
    module = importlib.import_module(script)
    config = module.Config(**module.VARIANTS[variant], num_generations=4)
    samples = [
        Sample([5], [7, 1], reward=r, logprobs=[-1.0] * 2, success=r >= THRESHOLD)
        for group in GROUPS
        for r in group
    ]
    batch = common.make_batch(samples, config, torch.device("cpu"))
    batch.texts = lambda: ["no tag"] * len(samples)  # which earns no format reward
    memory = [module.make_controller(config), 1] if script == "fade" else []
    advantages, _ = module.compute_advantages(batch, config, *memory)
    near(advantages, expected, atol=1e-6)


@pytest.mark.parametrize("success_rate", [0.0, 1.0])
def test_agrae_leaves_a_group_of_one_outcome_as_it_is(success_rate):
    """Its rewards can still differ, and Eq. 12 would divide by 0."""
    base = torch.tensor(GRPO)
    rates = torch.full((2,), success_rate)
    near(agrae_advantage(base, rates, mean_success=0.5, group_level=False), GRPO, atol=1e-6)


# ------------------------------------------------------------------------------------ the threshold


@pytest.fixture
def judged(run, monkeypatch):
    """judged(script, wrong, right): two steps with these rewards -> the rows of the two logs.

    `right` is the threshold. Right is a text of an even length, so that most groups are mixed.
    """

    def train(script, wrong, right):
        by_length = replace(
            VERIFIERS["countdown"], verify=lambda text, gold: (right, wrong)[len(text) % 2]
        )
        monkeypatch.setitem(VERIFIERS, "countdown", by_length)
        folder = f"{wrong} {right}"
        flags = dict(output_dir=folder, success_threshold=right, eval_steps=2)
        result = run(script, **flags)
        assert result.code == 0, result.err
        assert_finite(folder)
        return rows(folder) + rows(folder, "eval")

    return train


@pytest.mark.parametrize("script", first_fast(["asymgrpo", "grpo", "agrae", "fade", "cwgrpo"]))
def test_graded_and_negative_rewards_train(judged, script):
    """Two rewards are 0 and 1 on another scale, which no advantage of these defaults depends on.

    So everything but the mean reward is as with 0 and 1: exactly where it is a matter of success
    alone, and to rounding where rewards are normalised.
    """
    plain = judged(script, 0.0, 1.0)
    assert any(0 < row["reward"] < 1 for row in plain)
    assert plain[-1]["pass@1"] == plain[-1]["reward"]
    for wrong, right in ((0.3, 0.7), (-1.0, -0.5)):
        scaled = judged(script, wrong, right)
        for row, other in zip(plain, scaled, strict=True):
            reward = wrong + (right - wrong) * row["reward"]
            assert other["reward"] == pytest.approx(reward, abs=1e-12)
            other["reward"] = row["reward"]
        tolerance = 0.0 if script in ("asymgrpo", "fade") else 1e-4
        for row, other in zip(plain, scaled, strict=True):
            assert other == pytest.approx(row, rel=tolerance, abs=tolerance)
