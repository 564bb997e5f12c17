"""asymgrpo.py against AsymGRPO's propositions, by hand; more of Eqs. 2-8 is in golden.json."""

import math

import pytest
import torch
from groups import every_group, f64, rollout_of

import asymgrpo
from asymgrpo import asymgrpo_advantage, global_kappa, success_gain


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
    assert global_kappa(rewards[2:], mean_logprobs[2:]) == pytest.approx(3 / 16 * math.log(3))
    monkeypatch.setattr("rlvr.machine.ranks.gather", lambda rows: [*rows, [0.3, 1.0]])
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
    batch.successes = f64([[1, 0], [0, 0], [0, 0]])  # of 3 tokens, each 0.1 likelier
    assert [*success_gain(batch, "policy", "config").values()] == pytest.approx([0.1, 0.3])
    batch.successes = successes
    # on another rank the 2 tokens of a single success lose 1
    monkeypatch.setattr("rlvr.machine.ranks.gather", lambda rows: [*rows, [-1.0, 2.0, 1.0]])
    total = 0.3 + 0.4 + 0.3 - 1.4 - 1.0
    expected = {"success_gain": total / 10, "success_gain_completion": total / 5}
    assert success_gain(batch, "policy", "config") == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("values", [(0.9, 0.4, "both"), (-0.1, 0.4), (0.9, -0.1)])
def test_wrong_values_raise(values):
    told = str(values[2:] or values).strip("(),")
    with pytest.raises(ValueError, match=f" must be .* got {told}$"):
        asymgrpo_advantage(every_group(4), *values)
