"""agrae.py against the theorems of A-GRAE and numbers worked out by hand; more in golden.json."""

import math
from types import SimpleNamespace

import rlvr.machine.ranks

import pytest
import torch
from baseline_advantages import controlled_advantage
from groups import every_group, f64, near, shared

import agrae
from agrae import agrae_advantage, difficulty_metrics, format_reward, grpo_advantage

ROOT3 = 3.0**0.5


@pytest.mark.parametrize("w, alpha", [(0.0, 1.0), (0.3, 0.5), (0.8, 1.0), (1.0, 0.5)])
def test_eq11_to_13_the_weight_of_a_prompt(w, alpha):
    """Theorem 2 put through Eq. 12: from sqrt(p), easy prompts, to sqrt(1 - p) as w grows.

    It keeps the balance of Eq. 5. Eq. 13 holds the successes back until w has reached alpha.
    """
    rewards = every_group(8)[1:-1]
    A, p = grpo_advantage(rewards), rewards.mean(dim=1)
    weight = (w * (1 - p).sqrt() + (1 - w) * p.sqrt()) / 2
    near(agrae_advantage(A, p, w, alpha, group_level=False), shared(rewards, weight, weight))
    both = shared(rewards, weight * min(1, w / alpha), weight)
    near(agrae_advantage(A, p, w, alpha), both)
    near(agrae_advantage(A.float(), p.float(), w, alpha), both.float(), atol=1e-6)


def test_no_rescaling_at_p_0_and_1_for_a_base_advantage_that_is_not_zero():
    """A reward with a format part still varies where no answer, or every answer, is right."""
    A, p = torch.tensor([[1.0, -1.0], [1.0, -1.0]]), torch.tensor([0.0, 1.0])
    assert torch.equal(agrae_advantage(A, p, 0.3, group_level=False), A)
    assert torch.equal(agrae_advantage(A, p, 0.3, group_level=False, released_weight=True), A)
    assert torch.equal(controlled_advantage(A, p, "hard_focused"), A)
    assert torch.equal(controlled_advantage(A, p, "easy_focused"), A)
    with pytest.raises(ValueError, match="alpha"):
        agrae_advantage(A, p, 0.5, alpha=0.0)
    with pytest.raises(ValueError, match="hard_focused.*'hardest'"):
        controlled_advantage(A, p, "hardest")


# What is logged of the advantages

NAMES = "mean_success success_factor easy_share hard_share".split()


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize(
    "rewards, advantages, w, expected",
    [
        (  # four groups, p = 0, 1/4, 1/2 and 3/4, with |A| summing to 0, 3, 4 and 5 in them
            [[0, 0, 0, 0], [0, 1, 0, 0], [1, 1, 0, 0], [1, 0, 1, 1]],
            [[0, 0, 0, 0], [-1, 1, -1, 0], [1, 1, -1, -1], [1, -2, 1, 1]],
            0.375,
            (0.75, 5 / 12, 3 / 12),
        ),
        ([[0, 0]] * 3, [[0, 0]] * 3, 0.0, (0.0, 0.0, 0.0)),  # neither share divides by 0
        ([[1, 1]], [[1, 1]], 0.9, (1.0, 1.0, 0.0)),  # w is beyond alpha
    ],
)
def test_difficulty_metrics_by_hand(monkeypatch, rewards, advantages, w, expected, ranks):
    """Two ranks with the same groups have the same shares."""
    monkeypatch.setattr(rlvr.machine.ranks, "gather", lambda items: items * ranks)
    found = difficulty_metrics(f64(advantages), f64(rewards), w, 0.5)
    assert found == dict(zip(NAMES, (w, *expected), strict=True))


# The format


@pytest.mark.parametrize(
    "text, reward",
    [
        ("\n<think>\n2+2\n</think>\n\nIt is $\\boxed{\\frac{1}{2}}$.\n", 1),
        (r"<think>It is \boxed{4}</think>", 0),  # the answer stands behind the thought
        (r"2+2</think>\boxed{4}", 0),
        (r"<think>2+2\boxed{4}", 0),
        (r"Well: <think>2+2</think>\boxed{4}", 0),
        (r"<think>2+2</think>\boxed{4", 0),
        ("<think>2+2</think>4", 0),
    ],
)
def test_the_format(text, reward):
    assert format_reward(text) == reward


def batch_of(successes, **known):
    """A batch of which only this is known; the rewards are the successes if nothing is said."""
    return SimpleNamespace(
        **dict(rewards=successes, successes=successes, first_successes=successes) | known
    )


def test_the_format_is_nine_tenths_of_the_reward():
    """0.1 accuracy + 0.9 format (C.2): 1, 0.9, 0 and 0.1, of mean 1/2 and variance 0.205.

    w and p are those of the successes, here one of four.
    """
    good, bad = "<think>1+1</think>\\boxed{2}", "\\boxed{2}"
    rewards, successes = torch.tensor([[[1.0, 0, 0, 1]], [[1, 0, 0, 0]]])
    batch = batch_of(successes, rewards=rewards, texts=lambda: [good, good, bad, bad])
    config = agrae.Config(format_share=0.9, sample_level=False, group_level=False)
    advantages, logged = agrae.compute_advantages(batch, config)
    near(advantages, torch.tensor([[0.5, 0.4, -0.5, -0.4]]) / math.sqrt(0.205), atol=1e-6)
    assert (logged["format"], logged["mean_success"]) == (0.5, 0.25)
    # Eq. 12 scales by (1/8)/(1/2) + (3/8)/(sqrt(3)/2), and Eq. 13 leaves a quarter of A > 0
    found, _ = agrae.compute_advantages(batch, agrae.Config(format_share=0.9))
    held_back = torch.where(advantages > 0, advantages / 4, advantages)
    near(found, (1 + ROOT3) / 4 * held_back, atol=1e-6)


@pytest.mark.parametrize(
    "flags, w, success", [({}, 0.4, 0.689), ({"mean_reward": True}, 0.94, 0.958)]
)
def test_what_w_is_with_a_reward_for_the_format(flags, w, success):
    """Two of five right, all well formed: w is 0.4, or the mean reward 0.1 x 0.4 + 0.9 x 1.

    A success has A = sqrt(3/2), as p = 2/5. Of w = 0.4, Eq. 12 makes 0.2 / sqrt(0.4) + 0.3 /
    sqrt(0.6) of it, and Eq. 13 with alpha 1/2 leaves 0.8. Of w = 0.94, 0.47 / sqrt(0.4) + 0.03 /
    sqrt(0.6) stays.
    """
    texts = ["<think>1+1</think>\\boxed{2}"] * 5
    batch = batch_of(torch.tensor([[1.0, 1, 0, 0, 0]]), texts=lambda: texts)
    config = agrae.Config(**agrae.VARIANTS["images"], **flags)
    advantages, logged = agrae.compute_advantages(batch, config)
    of_batch = [logged[name] for name in ("format", "mean_success", "success_factor")]
    assert of_batch == pytest.approx([1, w, min(1, w / 0.5)])
    assert advantages[0, 0].item() == pytest.approx(success, abs=5e-4)
