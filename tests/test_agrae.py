"""agrae.py against numbers worked out by hand; Eqs. 11-13 are in golden.json."""

import math

import pytest
import torch
from groups import f64, near, rollout_of

import agrae
from agrae import agrae_advantage, difficulty_metrics, format_reward
from studies.baselines.advantages import controlled_advantage

ROOT3 = 3.0**0.5


def test_no_rescaling_at_p_0_and_1_for_a_base_advantage_that_is_not_zero():
    """A reward with a format part still varies where no answer, or every answer, is right."""
    A, p = torch.tensor([[1.0, -1.0], [1.0, -1.0]]), torch.tensor([0.0, 1.0])
    assert torch.equal(agrae_advantage(A, p, 0.3, group_level=False), A)
    assert torch.equal(controlled_advantage(A, p, "hard_focused"), A)
    assert torch.equal(controlled_advantage(A, p, "easy_focused"), A)
    with pytest.raises(ValueError, match="alpha"):
        agrae_advantage(A, p, 0.5, alpha=0.0)
    with pytest.raises(ValueError, match="hard_focused.*'hardest'"):
        controlled_advantage(A, p, "hardest")


def test_difficulty_metrics_by_hand(monkeypatch):
    """Four groups, p = 0, 1/4, 1/2 and 3/4, with |A| summing to 0, 3, 4 and 5 in them."""
    successes = f64([[0, 0, 0, 0], [0, 1, 0, 0], [1, 1, 0, 0], [1, 0, 1, 1]])
    advantages = f64([[0, 0, 0, 0], [-1, 1, -1, 0], [1, 1, -1, -1], [1, -2, 1, 1]])
    names = "mean_success success_factor easy_share hard_share".split()
    none = difficulty_metrics(0 * advantages, successes, 0.375, 0.25)
    assert [none[name] for name in names] == [0.375, 1.0, 0.0, 0.0]  # no share divides by 0
    monkeypatch.setattr("rlvr.machine.ranks.gather", lambda mine: [*mine, [1 / 16, 1 / 8, 1 / 4]])
    found = difficulty_metrics(advantages / 32, successes, 0.375, 0.5)
    assert [found[name] for name in names] == [0.375, 0.75, (5 + 2) / 20, (3 + 4) / 20]


@pytest.mark.parametrize(
    "text, reward",
    [
        ("\n<think>\n2+2\n</think>\n\nIt is $\\boxed{\\frac{1}{2}}$.\n", 1),
        (r"<think>It is \boxed{4}</think>", 0),  # the answer stands behind the thought
        (r"2+2</think>\boxed{4}", 0),
        (r"Well: <think>2+2</think>\boxed{4}", 0),
        (r"<think>2+2</think>\boxed{4", 0),
        (r"<think>2+2</think>\boxed{4}</think>\boxed{", 1),  # the first thought and answer count
    ],
)
def test_the_format(text, reward):
    assert format_reward(text) == reward


def test_the_format_is_nine_tenths_of_the_reward(monkeypatch):
    """0.1 accuracy + 0.9 format (C.2): 1, 0.9, 0.9 and 0.1, of mean 0.725, variance 0.131875.

    p is that of the successes, one of four. w is that of the groups as first drawn: one of eight,
    and none on another rank, where nothing is well-formed. Eq. 12 scales by w/2 / (1/2) +
    (1-w)/2 / (sqrt(3)/2), and Eq. 13 leaves w / (1/2) of A > 0.
    """
    monkeypatch.setattr("rlvr.world.WORLD_SIZE", 2)
    monkeypatch.setattr("rlvr.machine.ranks.gather", lambda mine: [*mine, [0.0] * len(mine[0])])
    good, bad = "<think>1+1</think>\\boxed{2}", "\\boxed{2}"
    rewards, successes = f64([[[1, 0, 0, 1]], [[1, 0, 0, 0]]])
    batch = rollout_of(
        successes,
        rewards=rewards,
        first_successes=f64([[1, 0, 0, 0], [0, 0, 0, 0]]),
        texts=lambda: 3 * [good] + [bad],
    )
    found, logged = agrae.compute_advantages(batch, agrae.Config(alpha=0.5, format_share=0.9))
    w, base = 1 / 16, f64([[0.275, 0.175, 0.175, -0.625]]) / math.sqrt(0.131875)
    near(found, (w + (1 - w) / ROOT3) * torch.where(base > 0, 2 * w * base, base), atol=1e-6)
    of_batch = [logged[name] for name in "format mean_success success_factor hard_share".split()]
    assert of_batch == pytest.approx([3 / 8, w, 2 * w, 1])
    assert "format" not in agrae.compute_advantages(batch, agrae.Config())[1]
