"""asymgrpo.py against AsymGRPO's propositions, by hand; more of Eqs. 2-8 is in golden.json."""

import math

import rlvr.machine.ranks

import pytest
import torch
from groups import every_group, f64, near, rollout_of, shared

import asymgrpo
from asymgrpo import asymgrpo_advantage, global_kappa, reward_confidence_alignment, success_gain


@pytest.mark.parametrize("beta", [0.1, 0.7])
def test_proposition2_peaks(beta):
    """Eqs. 9-11 at all success rates k / 200: what successes and what failures press with."""
    rewards = every_group(200)
    p = rewards.mean(1)
    W_pos, W_neg = p ** (1 - beta) * (1 - p) ** beta, p**beta * (1 - p) ** (1 - beta)
    near(asymgrpo_advantage(rewards, beta, beta), shared(rewards, W_pos, W_neg))
    assert (W_pos.argmax(), W_neg.argmax()) == (round((1 - beta) * 200), round(beta * 200))


def test_kappa_is_the_covariance_of_reward_and_confidence_times_log_odds():
    """The identity Cov(L, Z) = p (1 - p) delta of App. B, with the covariance by its definition."""
    r = every_group(8)[1:-1]
    L = -2 * torch.rand(7, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    p = r.mean(1, keepdim=True)
    covariance = ((r - p) * (L - L.mean(1, keepdim=True))).mean(1, keepdim=True)
    near(reward_confidence_alignment(r, L), (covariance * p.logit()).mean())


def test_flips_use_the_strength_of_their_own_channel():
    """G = 6: the reflected odds are 1/5, 1/2, 1, 2, 5 (section 3.2, App. C).

    The missing end is on the line through the last two points, which goes on from 2, 5 to 8, and
    squared from 4, 25 to 46.
    """
    rewards = every_group(6)
    success = rewards == 1
    plain = asymgrpo_advantage(rewards, 1.0, 2.0)
    positive = asymgrpo_advantage(rewards, 1.0, 2.0, flip="positive")
    negative = asymgrpo_advantage(rewards, 1.0, 2.0, flip="negative")
    near(positive[success], [1 / 5, *[1 / 2] * 2, *[1] * 3, *[2] * 4, *[5] * 5, *[8] * 6])
    near(negative[~success], [*[-46] * 6, *[-25] * 5, *[-4] * 4, *[-1] * 3, *[-1 / 4] * 2, -1 / 25])
    assert torch.equal(positive[~success], plain[~success])
    assert torch.equal(negative[success], plain[success])


def test_global_kappa_is_a_mean_over_the_mixed_groups_of_all_ranks(monkeypatch):
    """By hand: 3/16 x 2 x log(1/3), with a gap of -1 + 3, and 3/16 x 1 x log 3.

    Groups that are all right or all wrong do not count. The other rank has a sum of 0.3 over one.
    """
    rewards = f64([[1, 0, 0, 0], [1, 1, 1, 1], [1, 0, 1, 1], [0, 0, 0, 0]])
    mean_logprobs = f64([[-1, -2, -3, -4], [-4, -1, -1, -2], [-1, -2, -2, 0], [-1, -2, -3, -5]])
    total = -3 / 16 * math.log(3)
    batch = rollout_of(rewards, rewards=rewards / 2, mean_logprobs=lambda: mean_logprobs)
    _, logged = asymgrpo.compute_advantages(batch, asymgrpo.Config())
    assert logged == pytest.approx({"kappa": total / 2}, abs=1e-15)
    monkeypatch.setattr(rlvr.machine.ranks, "gather", lambda rows: [*rows, [0.3, 1.0]])
    assert global_kappa(rewards, mean_logprobs) == pytest.approx((total + 0.3) / 3, abs=1e-15)


def test_success_gain_by_hand(monkeypatch):
    """Rows 0, 2, 3 and 5 succeed, with 3 + 2 + 1 + 2 tokens. Off them stand 9s."""
    successes, lengths = f64([[1, 0], [1, 1], [0, 1]]), torch.tensor([[3], [1], [2], [1], [0], [2]])
    written = (torch.arange(3) < lengths).double()
    old = torch.where(written == 1, -1.0, 9.0)
    new = torch.where(written == 1, old + f64([[0.1], [7], [0.2], [0.3], [7], [-0.7]]), -9.0)
    given = "policy", "samples", "config"
    monkeypatch.setattr(asymgrpo, "frozen_logprobs", lambda *asked: {given: (new, None)}[asked])
    batch = rollout_of(0 * successes, samples="samples", completion_mask=written, old_logprobs=old)
    assert {*success_gain(batch, "policy", "config").values()} == {0}
    batch.successes = successes
    # on another rank the 2 tokens of a single success lose 1
    monkeypatch.setattr(rlvr.machine.ranks, "gather", lambda rows: [*rows, [-1.0, 2.0, 1.0]])
    total = 0.3 + 0.4 + 0.3 - 1.4 - 1.0
    expected = {"success_gain": total / 10, "success_gain_completion": total / 5}
    assert success_gain(batch, "policy", "config") == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("G", [1, 2, 49])
def test_finite_and_of_the_sign_of_the_reward_in_float32(G):
    """In a group of one, too: a single point leaves a flip no line to draw."""
    rewards = every_group(G, torch.float32)
    assert reward_confidence_alignment(rewards, -rewards).isfinite()
    for flip in ("none", "positive", "negative"):
        A = asymgrpo_advantage(rewards, flip=flip)
        assert A.dtype == torch.float32 and A.isfinite().all()
        assert (A * (2 * rewards - 1) >= 0).all()


@pytest.mark.parametrize("values", [dict(flip="both"), dict(beta_pos=-0.1), dict(beta_neg=-0.1)])
def test_wrong_values_raise(values):
    with pytest.raises(ValueError, match=next(iter(values))):
        asymgrpo_advantage(every_group(4), **values)
