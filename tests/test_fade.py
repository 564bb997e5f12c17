"""fade.py against FADE's derivations (sections 4, 8-10, 13) and numbers worked out by hand."""

import math

from rlvr.policy.models import tiny_folder

import pytest
from groups import every_group, f64, near, rollout_of
from runs import rows, weights

from fade import (
    VARIANTS,
    Config,
    FadeController,
    compute_advantages,
    entropy_drift,
    fade_advantage,
    learning_rate_factor,
    rank1_statistics,
)
from studies.baselines.advantages import analytic_pass_k

ROOT = math.sqrt(0.75)


def test_no_success_no_advantage_even_where_alpha_is_below_1():
    """There (1 - r_mean)^(alpha - 1) would be infinite where all are right."""
    expected = [[0.0] * 4, [ROOT] + 3 * [-0.25 / ROOT], [0.0] * 4]
    near(fade_advantage(every_group(4)[[0, 1, 4]], alpha=0.5, delta=1.0), expected)


@pytest.mark.parametrize(
    "settings, signal, expected",
    [
        (dict(alpha_max=7.0), (0.0, 9.0), (7.0, 1.0)),  # nothing solved: alpha would be infinite
        (dict(alpha_max=9.0, target_entropy=0.9), (0.25, 0.5), (4.5, 0.6)),
        ({}, (1.0, 0.2), (1.0, 0.3)),
        # the ablations of Figure 9: delta is 1 throughout, or alpha is, or alpha is 3, 2 and 1 at
        # twice, 1.5 times and once the target, whatever is solved
        (VARIANTS["alpha-only"], (0.5, 0.0), (1.5, 1.0)),
        (VARIANTS["delta-only"], (0.2, 1.0), (1.0, 0.5)),
        *((VARIANTS["entropy-only"], (rate, 9.0), (3.0, 1.0)) for rate in (0.0, 1.0)),
        *((VARIANTS["entropy-only"], (rate, 2.25), (2.0, 1.0)) for rate in (0.0, 1.0)),
        *((VARIANTS["entropy-only"], (rate, 1.25), (1.0, 0.75)) for rate in (0.0, 1.0)),
        # by default the target is half of the first entropy, where alpha therefore is at its limit
        (dict(target_entropy=None, alpha_from_entropy=True), (0.9, 1.0), (3.0, 1.0)),
        (dict(target_entropy=None, alpha_from_entropy=True), (0.9, 0.0), (1.0, 1.0)),  # H* = 0
    ],
)
def test_the_controller_by_flags(settings, signal, expected):
    """With a past that does not count, and a target of 1.5. A tensor gives floats, too."""
    controller = FadeController(None, **dict(target_entropy=1.5, ema_beta=0.0) | settings)
    found = controller.step(*f64(signal))
    assert found == pytest.approx(expected, abs=1e-12) and {*map(type, found)} == {float}


@pytest.mark.usefixtures("no_evaluation")
def test_the_controller_of_a_run_that_is_resumed(run, resume):
    """It has the run's flags and goes on where it was; its entropy begins at the first step's.

    The head's change is that from the policy that the run has begun with.
    """
    start = weights(tiny_folder(Config()))["lm_head.weight"]
    flags = dict(target_entropy=0.1, ema_beta=0.25, alpha_max=9.0, alpha_from_entropy=True)
    assert run("fade", max_steps=1, **flags).code == 0
    assert resume("fade", "run", max_steps=2).code == 0
    first, second = rows("run")
    solve_rate = 0.25 * (0.25 * 0.5 + 0.75 * first["reward"]) + 0.75 * second["reward"]
    assert second["solve_rate_ema"] == pytest.approx(solve_rate)
    assert second["alpha"] == pytest.approx(1 + 8 * (second["entropy_ema"] / 0.1 - 1))
    before, *after = rows("run", "eval")
    assert (before["r1"], before["ratio"], before["srank"]) == (0, 1, 0)
    assert [row["step"] for row in after] == [1, 2]
    for row in after:
        head = weights(f"run/checkpoint-{row['step']}")["lm_head.weight"]
        expected = rank1_statistics(head - start)
        assert {key: row[key] for key in expected} == pytest.approx(expected, rel=1e-4)
        assert 0 < row["r1"] < 1


def test_what_is_out_of_range_is_refused():
    for settings in (dict(ema_beta=1.0), dict(ema_beta=-0.1), dict(alpha_max=0.5)):
        with pytest.raises(ValueError, match="0 <= ema_beta < 1 <= alpha_max"):
            FadeController(1.0, **settings)
    for k in (0, -1, 5, 2.5):
        with pytest.raises(ValueError, match=f"^k must be .* got {k}"):
            analytic_pass_k(every_group(4), k=k)
    for delta in (0.0, -1.0):
        with pytest.raises(ValueError, match=f"^delta must be .* got {delta}"):
            fade_advantage(every_group(4), 2.0, delta)


@pytest.mark.parametrize(
    "flags, largest",
    [
        # FADE has (1-p)^alpha of a success, at most at p = 1/8; alpha is 3 (1 - s) / (2 s) at 1/2
        (dict(), (7 / 8) ** 1.5),
        (dict(alpha_max=1.2), (7 / 8) ** 1.2),
        # its limit, since the entropy is twice its target
        (dict(alpha_from_entropy=True), (7 / 8) ** 3.0),
        # 1/2 stands for the mean of the batch: (1/2)^(alpha-1) times 1/2 for all of them
        (dict(alpha_max=1.2, batch_mean=True), 0.5**1.2),
    ],
)
def test_the_factor_of_the_learning_rate_by_hand(flags, largest):
    """lr times the largest |A| in groups of eight is as GRPO's, which is sqrt(8 - 1)."""
    config = Config(num_generations=8, equalize_learning_rate=True, **flags)
    assert learning_rate_factor(config) * largest == pytest.approx(math.sqrt(7), rel=1e-6)
    assert learning_rate_factor(Config(num_generations=8, **flags)) == 1


def test_what_is_logged_by_hand(monkeypatch):
    """First this rank's means 1/2, 1/4 and entropy 2 with another's, then masses and drift.

    The controller sees the groups as first drawn. The mean entropy is 1.5, 0.5 below its target,
    and r_mean of the batch is 0.6, so that A is 0.4 and -0.6 / 0.5. Centred log-probs are
    (1, 0, -1, 0), and Eq. 7 is (m_S - m_F) H - Cov = (0.1 - 0.9) H - (0.4 + 1.2) / 4.
    """
    others = iter([[0.8, 0.95, 1.0], [0.5, 0.7, -0.1]])
    monkeypatch.setattr("rlvr.world.WORLD_SIZE", 2)
    monkeypatch.setattr("rlvr.machine.ranks.gather", lambda rows: [*rows, next(others)])
    controller = FadeController(target_entropy=2.0, ema_beta=0.0, alpha_max=1.0)
    known = dict(rewards=f64([[9, 0, 0, 0]] * 2), first_successes=f64([[1, 0, 0, 1]] * 2))
    known |= dict(mean_logprobs=lambda: f64([[-1, -2, -3, -2]] * 2))
    batch = rollout_of(f64([[1, 0, 0, 0]] * 2), **known)
    _, logged = compute_advantages(batch, Config(batch_mean=True), controller)
    expected = dict(alpha=1.0, delta=0.5, solve_rate_ema=(0.5 + 0.8) / 2, entropy_ema=1.5)
    expected |= dict(m_S=(0.1 + 0.5) / 2, m_F=(0.9 + 0.7) / 2)
    expected |= dict(entropy_drift=(-0.8 * 1.5 - 0.4 - 0.1) / 2)
    assert logged == pytest.approx(expected)
    # each prompt's log-probs have their own mean
    near(entropy_drift(f64([[1, 0], [0, -2]]), f64([[0, -2], [-5, -7]]), 1.0), [0.0, -2.0])
