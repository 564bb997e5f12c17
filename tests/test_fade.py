"""fade.py against FADE's derivations (sections 4, 8-10, 13) and numbers worked out by hand."""

import io
import math
from functools import partial
from types import SimpleNamespace

import rlvr.machine.ranks
from rlvr import world

import pytest
import torch
from groups import binomial, every_group, near

from fade import (
    POLICY_WEIGHTS,
    VARIANTS,
    Config,
    FadeController,
    choose_weight,
    compute_advantages,
    entropy_drift,
    fade_advantage,
    gradient_mass,
    learning_rate_factor,
    log_schedule,
    make_controller,
)

F64 = torch.float64


# Gradient masses (section 8)


def scaled_mass(p, q, alpha):
    """C p q^alpha, where C makes the largest of these 1/4; the largest is at p = 1/(1+alpha)."""
    peak = 1 / (1 + alpha)
    return p * q**alpha / (4 * peak * (1 - peak) ** alpha)


def analytic_mass(n, G, k):
    """p sqrt((1 - R) / R): R is the chance that k of the G, n of them right, hold a right one."""
    missed = math.comb(G - n, k) / math.comb(G, k)
    return n / G * math.sqrt(missed / (1 - missed)) if n else 0.0


def mix_mass(n, G, k):
    """p (p A_S(k) + q A_S(1)), A_S(j) = (1 - R_j) / sigma_j = sqrt((1 - R_j) / R_j) (8.4.3)."""
    return (n / G) * analytic_mass(n, G, k) + (1 - n / G) * analytic_mass(n, G, 1)


def softmax_mass(p, q, G, beta):
    """c p q / (1 + c p) / G, with c = e^beta - 1 (8.9)."""
    c = math.expm1(beta)
    return c * p * q / (1 + c * p) / G


def left_out(n, G, beta, own):
    """Log-mean-exp of a group less that without the member whose reward is `own`, by Z of 8.9."""
    Z = n * math.exp(beta) + G - n
    return math.log(Z / G * (G - 1) / (Z - math.exp(beta * own))) / beta


def logmeanexp_masses(p, q, n, G, beta):
    """For a finite G, from the definition; the printed masses are another matter, see below."""
    m_S = p * left_out(n, G, beta, 1) if n else 0.0
    m_F = -q * left_out(n, G, beta, 0) if n < G else 0.0
    return m_S, m_F


def balanced(mass):
    """m_S and m_F are the same."""
    return lambda *given, **parameters: (mass(*given, **parameters),) * 2


# (m_S, m_F) of a group with n successes of G, p = n / G and q = 1 - p; and what each weight is
# called with, where that is not all defaults.
MASSES = {
    "reinforce": (lambda p, q, n, G: (p, q), {}),
    "mean": (balanced(lambda p, q, n, G: p * q), {}),
    "grpo": (balanced(lambda p, q, n, G: math.sqrt(p * q)), {}),
    "skew_r": (balanced(lambda p, q, n, G: p * q * math.sqrt(p * q)), {}),
    # lengths that are all the same leave GRPO: the rewards are 1 - alpha p L and alpha q L
    "t2t": (
        balanced(lambda p, q, n, G, lengths, alpha: math.sqrt(p * q)),
        dict(lengths=0.3, alpha=0.5),
        dict(lengths=1.0, alpha=0.2),
    ),
    "maxrl": (balanced(lambda p, q, n, G: q if p else 0.0), {}),  # p = 0: 0 by definition
    "pass_k": (lambda p, q, n, G: ((n == 1) / G, 0.0), {}),
    "analytic_pass_k": (
        balanced(lambda p, q, n, G, k: analytic_mass(n, G, k)),
        *(dict(k=k) for k in (1, 2, 8, 16)),
    ),
    "mix_pass_k": (
        balanced(lambda p, q, n, G, k: mix_mass(n, G, k)),
        *(dict(k=k) for k in (1, 4, 16)),
    ),
    "power": (
        balanced(lambda p, q, n, G, alpha=2.0: p * q**alpha),
        *({}, dict(alpha=1.0), dict(alpha=1.5), dict(alpha=3.0)),
    ),
    "scaled_power": (
        balanced(lambda p, q, n, G, alpha=2.0: scaled_mass(p, q, alpha)),
        *({}, dict(alpha=1.0), dict(alpha=1.5), dict(alpha=3.0)),
    ),
    "easy_power": (
        balanced(lambda p, q, n, G, alpha=2.0: scaled_mass(q, p, alpha)),
        *({}, dict(alpha=1.0), dict(alpha=1.5), dict(alpha=3.0)),
    ),
    "asym_power": (
        lambda p, q, n, G, alpha_s, alpha_f: (p * q**alpha_s, p**alpha_f * q),
        dict(alpha_s=1.0, alpha_f=1.0),
        dict(alpha_s=2.0, alpha_f=1.5),
        dict(alpha_s=0.5, alpha_f=3.0),
    ),
    "asym": (
        lambda p, q, n, G, delta=0.5: (p * q, p * q / delta),
        *({}, dict(delta=0.3), dict(delta=1.0), dict(delta=2.0)),
    ),
    "shifted": (
        lambda p, q, n, G, delta=0.01: (p * (q - delta), q * (p + delta)),
        *({}, dict(delta=-0.1), dict(delta=0.0), dict(delta=0.2)),
    ),
    "quantile": (
        lambda p, q, n, G, tau: (p * (p <= tau), q * (p > tau)),
        *(dict(tau=tau) for tau in (0.0, 0.25, 0.3, 0.5, 0.9)),
    ),
    "median": (lambda p, q, n, G: (p * (p <= 0.5), q * (p > 0.5)), {}),
    "binary_contrastive": (lambda p, q, n, G: (p, p if q else 0.0), {}),  # p = 1: no failures
    # 0 by definition where successes or failures are missing
    "power_norm": (
        balanced(lambda p, q, n, G, gamma: (p * q) ** (1 - gamma) if p * q else 0.0),
        *(dict(gamma=gamma) for gamma in (-0.5, 0.0, 0.25, 0.5, 1.0)),
    ),
    "softmax": (
        balanced(lambda p, q, n, G, beta: softmax_mass(p, q, G, beta)),
        *(dict(beta=beta) for beta in (0.1, 2.0, 5.0)),
    ),
    "logmeanexp": (logmeanexp_masses, *(dict(beta=beta) for beta in (0.1, 2.0, 5.0))),
    "ha_dw": (
        lambda p, q, n, G, baseline, scale=1.0: (
            scale * p * q * math.exp(baseline - p),
            scale * p * q * math.exp(p - baseline),
        ),
        dict(baseline=0.4),
        dict(baseline=0.9, scale=1.5),
    ),
    "relu": (lambda p, q, n, G: (p * q, 0.0), {}),
}


@pytest.mark.parametrize(
    "name, parameters",
    [(name, each) for name, (_, *calls) in MASSES.items() for each in calls],
    ids=str,
)
def test_gradient_masses_of_section_8(name, parameters):
    """Also that the successes of a group share m_S equally, and the failures m_F."""
    G, (mass, *_) = 16, MASSES[name]
    rewards = every_group(G)
    weigh = partial(POLICY_WEIGHTS[name], **parameters)
    advantages = weigh(rewards)
    assert advantages.dtype == rewards.dtype
    found = torch.stack(gradient_mass(advantages, rewards), dim=1)
    masses = [mass(n / G, 1 - n / G, n, G, **parameters) for n in range(G + 1)]
    near(found, torch.tensor(masses, dtype=F64), atol=1e-13)
    n = rewards.sum(1).clamp(min=1), (1 - rewards).sum(1).clamp(min=1)
    of_success, of_failure = (G * found / torch.stack(n, dim=1))[..., None].unbind(1)
    near(advantages, torch.where(rewards == 1, of_success, -of_failure), atol=1e-13)
    near(weigh(rewards.flip(1)), advantages.flip(1), atol=1e-14)
    if parameters == MASSES[name][-1]:
        single = weigh(rewards.float())
        assert single.dtype == torch.float32
        torch.testing.assert_close(single.double(), advantages, rtol=2e-6, atol=2e-6)


def test_every_policy_weight_has_its_masses_checked():
    assert MASSES.keys() == POLICY_WEIGHTS.keys()


QUARTER = (torch.arange(1024) < 256).to(F64)  # a large group of success rate 1/4


@pytest.mark.parametrize(
    "name, parameters, limit",
    [
        # m -> p sqrt(q^k / (1 - q^k)) (8.4.2)
        ("analytic_pass_k", dict(k=2), math.sqrt(0.75**2 / (1 - 0.75**2)) / 4),
        ("analytic_pass_k", dict(k=4), math.sqrt(0.75**4 / (1 - 0.75**4)) / 4),
        ("analytic_pass_k", dict(k=8), math.sqrt(0.75**8 / (1 - 0.75**8)) / 4),
        # G m -> c p q / (1 + c p) / beta for both masses, c = e^beta - 1, that is softmax's / beta.
        # Section 8.9 prints p e^beta / (p e^beta + q) and q / (p e^beta + q), a ratio of 2.46 here.
        ("logmeanexp", dict(beta=2.0), math.expm1(2) * 3 / 16 / (1 + math.expm1(2) / 4) / 2),
    ],
)
def test_masses_of_large_groups_are_sign_balanced_and_near_their_limit(name, parameters, limit):
    """The distance from the limit falls as 1 / G."""
    gaps = []
    for rewards in (QUARTER[None, ::2], QUARTER[None]):
        masses = gradient_mass(POLICY_WEIGHTS[name](rewards, **parameters), rewards)
        times = rewards.shape[1] if name == "logmeanexp" else 1
        gaps.append(times * torch.cat(masses) - limit)  # [2]
    assert gaps[1].abs().max() < 4e-3
    near(gaps[0] / gaps[1], [2.0, 2.0], atol=0.05)


def test_resampling_failures_is_power_2():
    """Section 9.2: a first attempt fails with q, and then a fresh group follows.

    q E[m of mean] and E[m of Power 2] are both p q^2 in the population. Power 2 takes q from the
    group itself, which leaves a gap that vanishes as 1 / G. By the factorial moments of the
    binomial the gap is (G - 1) / G^2 p q (1 - 2 q).
    """
    for G, p in ((4, 0.3), (16, 0.3), (16, 0.5), (64, 0.9)):
        rewards, q = every_group(G), 1 - p
        once, _ = gradient_mass(POLICY_WEIGHTS["mean"](rewards), rewards)  # [G + 1]
        power, _ = gradient_mass(POLICY_WEIGHTS["power"](rewards, alpha=2.0), rewards)
        gap = binomial(G, p) @ power - q * (binomial(G, p) @ once)
        assert gap.item() == pytest.approx((G - 1) / G**2 * p * q * (1 - 2 * q), abs=1e-14)
        # within one group: the first attempt is each member in turn, and only failures fire the
        # second round
        near(power, (1 - rewards).mean(dim=1) * once, atol=1e-15)


@pytest.mark.parametrize("alpha", [0.1, 0.5, 1.0])
def test_t2t_masses_for_any_lengths(alpha):
    """p q C / std of the shaped rewards, C = 1 - alpha p L_S - alpha q L_F (Eqs. 12-14)."""
    G = 12
    rewards = every_group(G)
    lengths = torch.rand(G + 1, G, dtype=F64, generator=torch.Generator().manual_seed(0))
    advantages = POLICY_WEIGHTS["t2t"](rewards, lengths, alpha)
    m_S, m_F = gradient_mass(advantages, rewards)
    for n in range(G + 1):  # the first n of row n are right
        p, q = n / G, 1 - n / G
        right, wrong = lengths[n, :n].tolist(), lengths[n, n:].tolist()
        shaped = [1 - alpha * p * x for x in right] + [alpha * q * x for x in wrong]
        C = 1 - alpha * sum(p * x / n for x in right) - alpha * sum(q * x / (G - n) for x in wrong)
        mean = sum(shaped) / G
        std = math.sqrt(sum((x - mean) ** 2 for x in shaped) / G)
        assert m_S[n].item() == pytest.approx(p * q * C / std, abs=1e-12)
        assert m_F[n].item() == pytest.approx(p * q * C / std, abs=1e-12)


def test_t2t_by_hand():
    """All wrong: the longest wins. All right: the shortest does. Two of each: C = 1 - L / 2."""
    rewards = torch.tensor([[0.0, 0.0], [1.0, 1.0], [1.0, 0.0], [0.0, 0.0], [1.0, 1.0]]).double()
    lengths = torch.tensor([[0.2, 0.8], [0.2, 0.8], [0.6, 0.6], [0.4, 0.4], [0.4, 0.4]]).double()
    expected = [[-1.0, 1.0], [1.0, -1.0], [1.0, -1.0], [0.0, 0.0], [0.0, 0.0]]
    near(POLICY_WEIGHTS["t2t"](rewards, lengths, alpha=0.5), expected)


DEVIATION = math.sqrt((2 * 0.45**2 + 2 * 0.15**2) / 4)


@pytest.mark.parametrize(
    "name, parameters, expected",
    [
        ("pass_k", {}, [0.0, 0.3, 0.0, 0.0]),
        ("quantile", dict(tau=0.5), [-0.3, 0.6, 0.0, 0.3]),
        ("quantile", dict(tau=0.25), [-0.6, 0.3, -0.3, 0.0]),
        ("quantile", dict(tau=0.0), [-0.9, 0.0, -0.6, -0.3]),
        ("median", {}, [-0.3, 0.6, 0.0, 0.3]),
        ("maxrl", {}, [-9 / 11, 9 / 11, -3 / 11, 3 / 11]),
        ("relu", {}, [0.0, 0.45, 0.0, 0.15]),
        ("asym", dict(delta=0.5), [-0.9, 0.45, -0.3, 0.15]),
        ("power", dict(alpha=2.0), [-0.2025, 0.2025, -0.0675, 0.0675]),
        ("grpo", {}, [x / DEVIATION for x in (-0.45, 0.45, -0.15, 0.15)]),
    ],
)
def test_policy_weights_of_graded_rewards(name, parameters, expected):
    """By hand, of rewards with a mean of 0.55."""
    rewards = torch.tensor([[0.1, 1.0, 0.4, 0.7]], dtype=F64)
    near(POLICY_WEIGHTS[name](rewards, **parameters), [expected])


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_equal_rewards_weigh_exactly_nothing(dtype):
    """A mean of equal numbers is often not that number.

    Dividing by the rounding error would blow it up.
    """
    rewards = (torch.arange(98, dtype=dtype) / 97).unsqueeze(1).repeat(1, 11)
    assert (rewards.mean(dim=1) != rewards[:, 0]).any()
    assert torch.equal(POLICY_WEIGHTS["grpo"](rewards), torch.zeros_like(rewards))
    assert torch.equal(POLICY_WEIGHTS["power_norm"](rewards, gamma=0.75), torch.zeros_like(rewards))


def test_logmeanexp_with_a_large_beta_stays_finite():
    """One success of four: lme = (beta - log 4) / beta with it, and 0 without it.

    A failure costs log(4/3) / beta.
    """
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    expected = [[(200 - math.log(4)) / 200] + 3 * [math.log(3 / 4) / 200]]
    near(POLICY_WEIGHTS["logmeanexp"](rewards, beta=200.0), expected, atol=1e-6)


@pytest.mark.parametrize(
    "name, parameters, message",
    [
        *(("analytic_pass_k", dict(k=k), f"from 1 to G = 4, got {k}") for k in (0, -1, 5, 2.5)),
        *(("mix_pass_k", dict(k=k), f"from 1 to G = 4, got {k}") for k in (0, 5)),
        *(("asym", dict(delta=x), f"delta must be positive, got {x}") for x in (0.0, -1.0)),
    ],
)
def test_parameters_out_of_range_are_refused(name, parameters, message):
    with pytest.raises(ValueError, match=message):
        POLICY_WEIGHTS[name](every_group(4), **parameters)


# FADE (Eq. 11, Algorithm 2)

ROOT = math.sqrt(0.75)


@pytest.mark.parametrize(
    "alpha, delta, mean, expected",  # of groups with no success, with one of four, and with four
    [
        # (3/4)^2 is taken times 3/4 for the success, and times -1/4 x 2 for a failure
        (3.0, 0.5, None, [[0.0] * 4, [27 / 64] + 3 * [-9 / 32], [0.0] * 4]),
        # 7/12 x 7/12 for a success, 7/12 x -5/12 x 2 for a failure, and no group is without
        (
            2.0,
            0.5,
            5 / 12,
            [[-70 / 144] * 4, [49 / 144] + 3 * [-70 / 144], [49 / 144] * 4],
        ),
        # (1 - r_mean)^(alpha - 1) would be infinite where all are right
        (0.5, 1.0, None, [[0.0] * 4, [ROOT] + 3 * [-0.25 / ROOT], [0.0] * 4]),
    ],
)
def test_fade_advantage_by_hand(alpha, delta, mean, expected):
    rewards = torch.tensor([[0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1]], dtype=F64)
    near(fade_advantage(rewards, alpha, delta, mean), expected)


@pytest.mark.parametrize("alpha, delta", [(1.0, 1.0), (1.5, 0.3), (3.0, 0.7), (2.0, 2.0)])
def test_fade_masses(alpha, delta):
    """m_S = p q^alpha and m_F = p q^alpha / delta (section 10)."""
    rewards = every_group(16)
    m_S, m_F = gradient_mass(fade_advantage(rewards, alpha, delta), rewards)
    p = torch.arange(17, dtype=F64) / 16
    near(m_S, p * (1 - p) ** alpha)
    near(m_F, p * (1 - p) ** alpha / delta)


# mean rewards and entropies; with ema_beta 0.5 the solve rates are 0.5, 0.3, 0.5, 0.75
SIGNALS = [(0.5, 1.0), (0.1, 0.0), (0.7, 0.0), (1.0, 0.0)]
CONTROLLED = [  # alpha and delta, for a target entropy of 0.5
    (1.5, 1.0),  # delta would be 1.5
    (3.0, 1.0),  # alpha would be 3.5
    (1.5, 0.75),
    (1.0, 0.625),  # alpha would be 0.5
]


def test_controller_by_hand():
    """The entropies are 1, 0.5, 0.25 and 0.125, and the target is half of the first one."""
    controller = FadeController(1.0, ema_beta=0.5)
    steps = [controller.step(*signal) for signal in SIGNALS]
    near(torch.tensor(steps, dtype=F64), CONTROLLED)
    assert controller.target_entropy == 0.5


BY_ENTROPY = dict(target_entropy=0.5, alpha_from_entropy=True)


@pytest.mark.parametrize(
    "settings, signal, expected",
    [
        ({}, (0.0, 1.5), (3.0, 1.0)),  # nothing solved: alpha would be infinite
        (dict(alpha_max=7.0), (0.0, 9.0), (7.0, 1.0)),
        ({}, (1.0, 0.8), (1.0, 0.3)),
        ({}, (1.0, 0.0), (1.0, 0.3)),
        ({}, (0.75, 1.5), (1.0, 1.0)),
        ({}, (0.5, 1.0), (1.5, 0.5)),
        ({}, (0.6, 1.5), (1.0, 1.0)),
        ({}, (1 / 3, 1.5), (3.0, 1.0)),
        ({}, (0.2, 1.5), (3.0, 1.0)),
        # Figure 9: whatever is solved, alpha is 3, 2 and 1 at entropies of 1, 0.75 and 0.5
        *((BY_ENTROPY, (rate, 9.0), (3.0, 1.0)) for rate in (0.0, 0.3, 1.0)),
        *((BY_ENTROPY, (rate, 1.0), (3.0, 1.0)) for rate in (0.0, 0.3, 1.0)),
        *((BY_ENTROPY, (rate, 0.75), (2.0, 1.0)) for rate in (0.0, 0.3, 1.0)),
        *((BY_ENTROPY, (rate, 0.5), (1.0, 1.0)) for rate in (0.0, 0.3, 1.0)),
        *((BY_ENTROPY, (rate, 0.25), (1.0, 0.75)) for rate in (0.0, 0.3, 1.0)),
        # by default the target is half of the start's 1, where alpha therefore is at its limit
        (dict(target_entropy=None, alpha_from_entropy=True), (0.9, 1.0), (3.0, 1.0)),
    ],
)
def test_controller_bounds(settings, signal, expected):
    """With a past that does not count, and a target of 1.5."""
    controller = FadeController(1.0, **dict(target_entropy=1.5, ema_beta=0.0) | settings)
    assert controller.step(*signal) == pytest.approx(expected, abs=1e-12)


def test_the_first_step_sets_the_entropy_and_the_target():
    """H begins at 0.6 and moves to (0.6 + 0.2) / 2; the target stays at a half of the first 0.6."""
    controller = FadeController(ema_beta=0.5)
    assert controller.step(torch.tensor(0.5), torch.tensor(0.6, dtype=F64)) == (1.5, 1.0)
    assert (controller.entropy, controller.target_entropy) == pytest.approx((0.6, 0.3))
    alpha, delta = controller.step(0.5, -0.2)
    assert (controller.entropy, controller.target_entropy) == pytest.approx((0.2, 0.3))
    assert (alpha, delta) == (1.5, pytest.approx(0.9))
    assert type(alpha) is type(delta) is float  # also where it was given tensors
    given = FadeController(target_entropy=0.9, ema_beta=0.5)
    assert given.step(0.5, 0.6) == (1.5, pytest.approx(0.7))


@pytest.mark.parametrize("settings", [dict(ema_beta=1.0), dict(ema_beta=-0.1), dict(alpha_max=0.5)])
def test_controller_refuses(settings):
    with pytest.raises(ValueError, match="0 <= ema_beta < 1 <= alpha_max"):
        FadeController(1.0, **settings)


def test_log_schedule():
    """Eqs. 17-18: both ends, and the middle, where 1 + t / tau is the root of 1 + T / tau."""
    delta = partial(log_schedule, total_steps=20000, start=1.0, end=0.802, tau=12264)
    quarter = 1 - 0.198 * math.log(1 + 5000 / 12264) / math.log(1 + 20000 / 12264)
    found = [delta(0), delta(5000), delta(20000)]
    assert found == pytest.approx([1.0, quarter, 0.802], abs=1e-12)
    assert log_schedule(3, 15, 2.0, 1.0, 1) == pytest.approx(1.5, abs=1e-12)  # log 4 / log 16
    assert type(delta(5000)) is float


# What main does with them


def batch_of(successes, logprobs, first=None, written=None):
    """A batch of which only this is known: successes and mean log-probs, [B, G] each."""
    return SimpleNamespace(
        rewards=0.5 * successes,  # which no weight looks at
        successes=successes,
        first_successes=successes if first is None else first,
        mean_logprobs=lambda: logprobs,
        written=torch.ones(successes.numel(), 1) if written is None else written,
    )


def test_a_controller_goes_on_exactly_after_a_checkpoint():
    """Its attributes go through torch.save, as in a checkpoint, between any two steps.

    By hand: alpha and delta as in test_controller_by_hand, and what is logged of the entropies.
    """
    config = Config(ema_beta=0.5)
    kept, logged = make_controller(config), []
    for step, (solve_rate, entropy) in enumerate(SIGNALS, start=1):
        memory = io.BytesIO()
        torch.save(vars(kept), memory)
        memory.seek(0)
        restored = make_controller(config)
        vars(restored).update(torch.load(memory, weights_only=True))
        successes = (torch.arange(10, dtype=F64) < 10 * solve_rate).to(F64)[None]
        batch = batch_of(successes, torch.full((1, 10), -entropy, dtype=F64))
        found = [compute_advantages(batch, config, each, step) for each in (kept, restored)]
        assert torch.equal(found[0][0], found[1][0])
        assert found[0][1] == found[1][1]
        logged.append(found[0][1])
    near(torch.tensor([[row["alpha"], row["delta"]] for row in logged], dtype=F64), CONTROLLED)
    assert [row["entropy_change"] for row in logged] == [0, -1, 0, 0]
    assert [row["entropy_ema"] for row in logged] == [1, 0.5, 0.25, 0.125]


def test_the_controller_by_flags():
    """The flags set the target and the limit: delta = 1 + 0.5 - 0.9, and alpha = 4.5 unclipped."""
    config = Config(ema_beta=0.0, target_entropy=0.9, alpha_max=9.0)
    assert make_controller(config).step(0.25, 0.5) == pytest.approx((4.5, 0.6))


@pytest.mark.parametrize("solve_rate", [0.0, 0.2, 0.9])
@pytest.mark.parametrize("entropy", [0.0, 0.1, 2.0])
def test_the_ablations_of_figure_9(solve_rate, entropy):
    """alpha alone has delta 1 throughout, delta alone alpha 1; the other one is as with both."""

    def controlled(variant):
        controller = make_controller(Config(**VARIANTS[variant]))
        if variant != "alpha-only":  # whose target is 0
            controller.target_entropy = 0.5
        return controller.step(solve_rate, entropy)

    alpha, delta = controlled("fade")
    assert controlled("alpha-only") == (alpha, 1.0)
    assert controlled("delta-only") == (1.0, delta)
    assert controlled("entropy-only") == ({0.0: 1.0, 0.1: 1.0, 2.0: 3.0}[entropy], delta)


@pytest.mark.parametrize("step", [7, 20])
def test_control_by_the_schedule(step):
    """It does not look at the signals, though the controller goes on with them."""
    config = Config(weight="log_schedule", max_steps=20, ema_beta=0.5)
    successes = torch.eye(4, dtype=F64)
    alpha = log_schedule(step, 20, 2.0, 1.917, 8500)
    delta = log_schedule(step, 20, 1.0, 0.802, 12264)
    assert step < 20 or (alpha, delta) == pytest.approx((1.917, 0.802))
    for logprobs in (-0.2, -0.8):
        controller = make_controller(config)
        batch = batch_of(successes, torch.full((4, 4), logprobs, dtype=F64))
        advantages, logged = compute_advantages(batch, config, controller, step)
        assert (logged["alpha"], logged["delta"]) == (alpha, delta)
        assert torch.equal(advantages, fade_advantage(successes, alpha, delta))
        assert controller.solve_rate == pytest.approx((0.5 + 0.25) / 2)


@pytest.mark.parametrize(
    "weight, arguments, expected",
    [
        ("fade", "", partial(fade_advantage, alpha=2.5, delta=0.4)),
        ("log_schedule", "", partial(fade_advantage, alpha=2.5, delta=0.4)),
        ("power", "alpha=3", partial(fade_advantage, alpha=3.0, delta=1.0)),
        ("mix_pass_k", "k=2", partial(POLICY_WEIGHTS["mix_pass_k"], k=2)),
        (
            "asym_power",
            "alpha_s=2,alpha_f=1.5",
            partial(POLICY_WEIGHTS["asym_power"], alpha_s=2.0, alpha_f=1.5),
        ),
        ("shifted", "delta=-0.1", partial(POLICY_WEIGHTS["shifted"], delta=-0.1)),
    ],
)
def test_choose_weight(weight, arguments, expected):
    """FADE alone takes the controller's alpha and delta; the others have their own parameters."""
    config = Config(weight=weight, weight_args=arguments)
    config.check()
    chosen = choose_weight(config, alpha=2.5, delta=0.4)
    assert torch.equal(chosen(every_group(4)), expected(every_group(4)))


def test_a_bug_of_ones_own_weight_is_not_taken_for_a_wrong_flag(monkeypatch):
    """It shows where it is used, and not as one line about --weight."""
    monkeypatch.setitem(POLICY_WEIGHTS, "mine", lambda rewards: {}["no such key"])
    Config(weight="mine").check()
    with pytest.raises(KeyError, match="no such key"):
        choose_weight(Config(weight="mine"))(torch.zeros(1, 4))


def test_a_batch_tells_the_weight_what_it_looks_at():
    """The means of this batch and of the controller, and lengths as shares of the longest allowed.

    Dynamic sampling has replaced groups: 1 of 8 was right at first, and 3 of 8 are now.
    """
    first, now = torch.zeros(2, 4, dtype=F64), torch.zeros(2, 4, dtype=F64)
    first[0, 0] = now[0, 1] = now[1, 0] = now[1, 3] = 1
    written = (torch.arange(12) < torch.tensor([[3], [6], [12], [0], [3], [6], [9], [12]])).to(F64)
    lengths = torch.tensor([[3, 6, 12, 1], [3, 6, 9, 12]], dtype=F64) / 24  # an empty one is of 1
    batch = batch_of(now, -torch.ones(2, 4, dtype=F64), first, written)

    def advantages(**flags):
        config = Config(max_completion_length=24, **flags)
        return compute_advantages(batch, config, make_controller(config), 1)[0]

    near(advantages(weight="power", batch_mean=True), fade_advantage(now, 2.0, 1.0, mean=3 / 8))
    running = 0.5 * 0.5 + 0.5 * 1 / 8
    ha_dw = advantages(weight="ha_dw", ema_beta=0.5)
    near(ha_dw, POLICY_WEIGHTS["ha_dw"](now, baseline=running))
    t2t = advantages(weight="t2t", weight_args="alpha=0.5")
    near(t2t, POLICY_WEIGHTS["t2t"](now, lengths, 0.5))


@pytest.mark.parametrize(
    "flags, largest",
    [
        (dict(weight="grpo"), math.sqrt(7)),  # so that the learning rate stays
        (dict(weight="mean"), 7 / 8),  # of one success in eight, or of one failure
        (dict(weight="asym"), 7 / 4),  # of one failure
        (dict(weight="reinforce"), 1.0),
        (dict(weight="maxrl"), 7.0),  # of one success
        (dict(weight="binary_contrastive"), 7.0),  # of one failure
        (dict(weight="relu"), 7 / 8),
        # FADE has (1-p)^alpha of a success, at most at p = 1/8; alpha is 3 (1 - s) / (2 s) at 1/2
        (dict(), (7 / 8) ** 1.5),
        (dict(alpha_max=1.2), (7 / 8) ** 1.2),
        # its limit, since the entropy is twice its target
        (dict(alpha_from_entropy=True), (7 / 8) ** 3.0),
        (dict(weight="log_schedule"), (7 / 8) ** 2.0),  # where it starts
        # 1/2 stands for the mean of the batch: (1/2)^(alpha-1) times 1/2 for all of them
        (dict(weight="log_schedule", batch_mean=True), 0.5**2),
    ],
)
def test_the_factor_of_the_learning_rate_by_hand(flags, largest):
    """lr times the largest |A| in groups of eight is as GRPO's, which is sqrt(8 - 1)."""
    config = Config(num_generations=8, equalize_learning_rate=True, **flags)
    assert learning_rate_factor(config) * largest == pytest.approx(math.sqrt(7), rel=1e-6)
    assert learning_rate_factor(Config(num_generations=8, **flags)) == 1


def test_what_is_logged_by_hand():
    """Masses and drift as in test_entropy_drift_by_hand, at entropies of 2, 1.5 and 1.6.

    What is logged of the drift was predicted in the step before, for the change that is seen now.
    """
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0]] * 2, dtype=F64)
    centred = torch.tensor([[1.0, 0.0, -1.0, 0.0]] * 2, dtype=F64)
    config = Config(weight="asym", weight_args="delta=0.5")
    controller, logged = make_controller(config), []
    for entropy in (2.0, 1.5, 1.6):
        batch = batch_of(rewards, centred - entropy)
        advantages, found = compute_advantages(batch, config, controller, 1)
        near(advantages, POLICY_WEIGHTS["asym"](rewards, delta=0.5))
        assert (found["m_S"], found["m_F"]) == pytest.approx((3 / 16, 3 / 8))
        logged.append((found["entropy_drift"], found["entropy_change"]))
    # (m_S - m_F) H - Cov = -3/16 H - 5/16
    assert logged[0] == (0, 0)
    assert logged[1] == pytest.approx((-0.6875, -0.5))
    assert logged[2] == pytest.approx((-0.59375, 0.1))


def test_what_is_logged_is_a_mean_over_the_ranks(monkeypatch):
    """First the means 1/2, 1/2 and entropy 2 of this rank, with another's; then masses and drift.

    There the other rank has 0.7, 0.9, 1.0 and then 0.5, 0.7, -0.1.
    """
    others = iter([[0.7, 0.9, 1.0], [0.5, 0.7, -0.1]])
    monkeypatch.setattr(world, "WORLD_SIZE", 2)
    monkeypatch.setattr(rlvr.machine.ranks, "gather", lambda rows: [*rows, next(others)])
    config = Config(weight="mean")
    controller = make_controller(config)
    batch = batch_of(torch.tensor([[1.0, 0.0]]), torch.full((1, 2), -2.0))
    _, logged = compute_advantages(batch, config, controller, 1)
    assert logged["solve_rate_ema"] == pytest.approx(0.02 * 0.5 + 0.98 * 0.6)
    assert logged["entropy_ema"] == pytest.approx(1.5)
    assert logged["m_S"] == pytest.approx((0.25 + 0.5) / 2)
    assert logged["m_F"] == pytest.approx((0.25 + 0.7) / 2)
    assert controller.predicted_drift == pytest.approx((0.0 - 0.1) / 2)


# Entropy (Eq. 7, Theorem 13.1)


def test_entropy_drift_by_hand():
    """m_S = 3/16, m_F = 3/8, centred log-probs (1, 0, -1, 0), Cov = (3/4 + 1/2) / 4.

    H is 2, and then 4 for the second prompt.
    """
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0]] * 2, dtype=F64)
    logprobs = torch.tensor([[-1.0, -2.0, -3.0, -2.0]] * 2, dtype=F64)
    advantages = POLICY_WEIGHTS["asym"](rewards, delta=0.5)
    near(entropy_drift(advantages, logprobs, 2.0), [-0.6875, -0.6875])
    near(entropy_drift(advantages, logprobs, 2.0), -(advantages * logprobs).mean(dim=1))  # Eq. 25
    entropy = torch.tensor([2.0, 4.0], dtype=F64)  # one of each prompt
    near(entropy_drift(advantages, logprobs, entropy), [-0.6875, -1.0625])


# A policy over four actions, and a group of eight rollouts with exactly its frequencies, so that
# averages over the group are expectations. Actions 1 and 3 succeed: p = 3/8.
PI = torch.tensor([4, 2, 1, 1], dtype=F64) / 8
ROLLOUTS = torch.tensor([0, 0, 0, 0, 1, 1, 2, 3])
SUCCEEDS = torch.tensor([0, 1, 0, 1], dtype=F64)
SCORES = torch.eye(4, dtype=F64) - PI  # [action, logit]: d log pi(a) / d logits


def entropy_of(logits):
    return -(logits.softmax(0) * logits.log_softmax(0)).sum()


def setting(name, **parameters):
    """The weight of each action, Eq. 7's prediction and its drift term."""
    rewards = SUCCEEDS[ROLLOUTS].unsqueeze(0)  # [1, 8]
    advantages = POLICY_WEIGHTS[name](rewards, **parameters)
    H = entropy_of(PI.log())
    m_S, m_F = gradient_mass(advantages, rewards)
    weights = torch.zeros(4, dtype=F64).scatter(0, ROLLOUTS, advantages[0])
    predicted = entropy_drift(advantages, PI.log()[ROLLOUTS].unsqueeze(0), H)
    return weights, predicted.item(), ((m_S - m_F) * H).item()


def assert_first_order(rate, direction):
    """The entropy changes by eta * rate, with an error that falls fourfold when eta is halved."""
    before, errors = entropy_of(PI.log()), []
    for eta in (0.02, 0.01, 0.005):
        errors.append((entropy_of(PI.log() + eta * direction) - before).item() - eta * rate)
    assert abs(rate) > 0.01
    assert abs(errors[-1]) < 0.02 * abs(rate) * 0.005
    assert [errors[0] / errors[1], errors[1] / errors[2]] == pytest.approx([4, 4], abs=0.05)


def natural(weights):
    """Fisher^+ E[A grad log pi] for the tabular softmax policy."""
    fisher = SCORES.T @ (PI.unsqueeze(1) * SCORES)
    return torch.linalg.pinv(fisher, rtol=1e-10) @ (SCORES.T @ (PI * weights))


@pytest.mark.parametrize("name", ["mean", "grpo", "skew_r", "power", "maxrl", "binary_contrastive"])
def test_theorem_13_1_for_sign_balanced_weights(name):
    weights, predicted, drift = setting(name)
    assert abs(drift) < 1e-15
    assert_first_order(predicted, natural(weights))


@pytest.mark.parametrize("name", ["asym", "shifted", "reinforce", "relu"])
def test_theorem_13_1_drift_is_not_there_for_a_normalised_policy(name):
    """Score vectors have mean zero, so that a constant added to all weights moves nothing.

    Eq. 24 overlooks that. Under natural gradients the first order is -Cov alone, and Eq. 7 is off
    by exactly (m_S - m_F) H.
    """
    parameters = {"delta": 0.3} if name == "shifted" else {}
    weights, predicted, drift = setting(name, **parameters)
    covariance = (PI * weights * PI.log()).sum() - (PI * weights).sum() * (PI * PI.log()).sum()
    assert abs(drift) > 0.1
    assert predicted - drift == pytest.approx(-covariance.item(), abs=1e-14)
    assert_first_order(predicted - drift, natural(weights))


@pytest.mark.parametrize("name", ["mean", "asym", "reinforce"])
def test_equation_23_for_the_plain_gradient(name):
    """Without the projection of step 4: -eta E[log pi grad log pi] . E[A grad log pi]."""
    weights, _, _ = setting(name)
    gradient = SCORES.T @ (PI * weights)
    rate = -((PI * PI.log()) @ SCORES) @ gradient
    assert_first_order(rate.item(), gradient)
