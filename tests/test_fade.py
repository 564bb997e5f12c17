"""fade.py against FADE's derivations (sections 4, 8-10, 13) and numbers worked out by hand."""

import io
import math
from functools import partial
from types import SimpleNamespace

import rlvr.machine.ranks
from rlvr import world
from rlvr.errors import UserError

import pytest
import torch
from groups import every_group, near

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


def binomial(G, p):
    """[G + 1]: the probability of k successes among G rollouts."""
    chances = [math.comb(G, k) * p**k * (1 - p) ** (G - k) for k in range(G + 1)]
    return torch.tensor(chances, dtype=F64)


def random(*shape, seed=0):
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


def group_with(p, G):
    """[1, G]: a group of this size and success rate."""
    return (torch.arange(G) < p * G).to(F64).unsqueeze(0)


# Gradient masses (section 8)


def pass_rate(k, n, G):
    """R_k: the chance that k of the G completions, n of them right, hold a right one."""
    return 1 - math.comb(G - n, k) / math.comb(G, k)


def scaled_mass(p, q, alpha):
    """C p q^alpha, where C makes the largest of these 1/4; the largest is at p = 1/(1+alpha)."""
    peak = 1 / (1 + alpha)
    return p * q**alpha / (4 * peak * (1 - peak) ** alpha)


def analytic_mass(n, G, k):
    return n / G * math.sqrt(1 / pass_rate(k, n, G) - 1) if n else 0.0


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


# (m_S, m_F) of a group with n successes of G; p = n / G and q = 1 - p
MASSES = {
    "reinforce": lambda p, q, n, G: (p, q),
    "mean": balanced(lambda p, q, n, G: p * q),
    "grpo": balanced(lambda p, q, n, G: math.sqrt(p * q)),
    "skew_r": balanced(lambda p, q, n, G: p * q * math.sqrt(p * q)),
    # lengths that are all the same leave GRPO: the rewards are 1 - alpha p L and alpha q L
    "t2t": balanced(lambda p, q, n, G, lengths, alpha: math.sqrt(p * q)),
    "maxrl": balanced(lambda p, q, n, G: q if p else 0.0),  # p = 0: 0 by definition
    "pass_k": lambda p, q, n, G: ((n == 1) / G, 0.0),
    "analytic_pass_k": balanced(lambda p, q, n, G, k: analytic_mass(n, G, k)),
    "mix_pass_k": balanced(lambda p, q, n, G, k: mix_mass(n, G, k)),
    "power": balanced(lambda p, q, n, G, alpha=2.0: p * q**alpha),
    "scaled_power": balanced(lambda p, q, n, G, alpha=2.0: scaled_mass(p, q, alpha)),
    "easy_power": balanced(lambda p, q, n, G, alpha=2.0: scaled_mass(q, p, alpha)),
    "asym_power": lambda p, q, n, G, alpha_s, alpha_f: (p * q**alpha_s, p**alpha_f * q),
    "asym": lambda p, q, n, G, delta=0.5: (p * q, p * q / delta),
    "shifted": lambda p, q, n, G, delta=0.01: (p * (q - delta), q * (p + delta)),
    "quantile": lambda p, q, n, G, tau: (p * (p <= tau), q * (p > tau)),
    "median": lambda p, q, n, G: (p * (p <= 0.5), q * (p > 0.5)),
    "binary_contrastive": lambda p, q, n, G: (p, p if q else 0.0),  # p = 1: no failures
    # 0 by definition where successes or failures are missing
    "power_norm": balanced(lambda p, q, n, G, gamma: (p * q) ** (1 - gamma) if p * q else 0.0),
    "softmax": balanced(lambda p, q, n, G, beta: softmax_mass(p, q, G, beta)),
    "logmeanexp": logmeanexp_masses,
    "ha_dw": lambda p, q, n, G, baseline, scale=1.0: (
        scale * p * q * math.exp(baseline - p),
        scale * p * q * math.exp(p - baseline),
    ),
    "relu": lambda p, q, n, G: (p * q, 0.0),
}
# What each is called with; {} where all parameters have a default, or where there are none.
PARAMETERS = {name: [{}] for name in MASSES} | {
    "analytic_pass_k": [dict(k=k) for k in (1, 2, 8, 16)],
    "mix_pass_k": [dict(k=k) for k in (1, 4, 16)],
    "power": [{}, *(dict(alpha=alpha) for alpha in (1.0, 1.5, 3.0))],
    "t2t": [dict(lengths=0.3, alpha=0.5), dict(lengths=1.0, alpha=0.2)],
    "scaled_power": [{}, *(dict(alpha=alpha) for alpha in (1.0, 1.5, 3.0))],
    "easy_power": [{}, *(dict(alpha=alpha) for alpha in (1.0, 1.5, 3.0))],
    "ha_dw": [dict(baseline=0.4), dict(baseline=0.9, scale=1.5)],
    "asym_power": [
        dict(alpha_s=1.0, alpha_f=1.0),
        dict(alpha_s=2.0, alpha_f=1.5),
        dict(alpha_s=0.5, alpha_f=3.0),
    ],
    "asym": [{}, *(dict(delta=delta) for delta in (0.3, 1.0, 2.0))],
    "shifted": [{}, *(dict(delta=delta) for delta in (-0.1, 0.0, 0.2))],
    "quantile": [dict(tau=tau) for tau in (0.0, 0.25, 0.3, 0.5, 0.9)],
    "power_norm": [dict(gamma=gamma) for gamma in (0.0, 0.25, 0.5, 1.0)],
    "softmax": [dict(beta=beta) for beta in (0.1, 2.0, 5.0)],
    "logmeanexp": [dict(beta=beta) for beta in (0.1, 2.0, 5.0)],
}


@pytest.mark.parametrize(
    "name, parameters", [(name, each) for name in MASSES for each in PARAMETERS[name]], ids=str
)
def test_gradient_masses_of_section_8(name, parameters):
    G = 16
    rewards = every_group(G)
    advantages = POLICY_WEIGHTS[name](rewards, **parameters)
    assert advantages.dtype == rewards.dtype
    assert advantages.shape == rewards.shape
    masses = [MASSES[name](n / G, 1 - n / G, n, G, **parameters) for n in range(G + 1)]
    expected = torch.tensor(masses, dtype=F64)
    near(torch.stack(gradient_mass(advantages, rewards), dim=1), expected, atol=1e-13)


def test_every_policy_weight_has_its_masses_checked():
    assert MASSES.keys() == POLICY_WEIGHTS.keys()


def test_pass_k_mass_on_average():
    """8.4.1 sums over the k = G samples where gradient_mass averages: G E[m_S] = k p q^(k-1)."""
    rewards = every_group(8)
    m_S, _ = gradient_mass(POLICY_WEIGHTS["pass_k"](rewards), rewards)
    for p in (0.1, 0.5, 0.8):
        assert 8 * (binomial(8, p) @ m_S).item() == pytest.approx(8 * p * (1 - p) ** 7, abs=1e-13)


@pytest.mark.parametrize("k", [2, 4, 8])
def test_analytic_pass_k_converges_to_its_population_limit(k):
    """m -> p sqrt(q^k / (1 - q^k)) as G grows, at a speed of 1 / G (8.4.2)."""
    p, gaps = 0.25, []
    limit = p * math.sqrt((1 - p) ** k / (1 - (1 - p) ** k))
    for G in (512, 1024):
        rewards = group_with(p, G)
        m_S, m_F = gradient_mass(POLICY_WEIGHTS["analytic_pass_k"](rewards, k=k), rewards)
        near(m_S, m_F, atol=1e-14)
        gaps.append(m_S.item() - limit)
    assert abs(gaps[1]) < 4e-3
    assert gaps[0] / gaps[1] == pytest.approx(2, abs=0.05)


def test_logmeanexp_is_sign_balanced_for_large_groups():
    """G m -> c p q / (1 + c p) / beta for both masses, c = e^beta - 1, that is softmax's / beta.

    Section 8.9 prints p e^beta / (p e^beta + q) and q / (p e^beta + q), a ratio of 2.46 here.
    """
    p, beta = 0.25, 2.0
    c, gaps = math.expm1(beta), []
    limit = c * p * (1 - p) / (1 + c * p) / beta
    for G in (256, 512):
        rewards = group_with(p, G)
        advantages = POLICY_WEIGHTS["logmeanexp"](rewards, beta=beta)
        masses = torch.cat(gradient_mass(advantages, rewards))  # [2]
        gaps.append(G * masses - limit)
    assert gaps[1].abs().max() < 5e-3
    near(gaps[0] / gaps[1], [2.0, 2.0], atol=0.05)


def test_softmax_with_small_beta_is_dr_grpo():
    """8.9: beta -> 0, where the next term is beta^2.

    The paper's sentence leaves out the factor beta / G.
    """
    rewards, beta = every_group(8), 1e-6
    advantages = POLICY_WEIGHTS["softmax"](rewards, beta=beta) * 8 / beta
    near(advantages, rewards - rewards.mean(1, keepdim=True), atol=1e-6)


def test_identities_between_policy_weights():
    rewards = every_group(12)
    weigh = {name: partial(f, rewards) for name, f in POLICY_WEIGHTS.items()}
    dr_grpo, grpo = weigh["mean"](), weigh["grpo"]()
    for same in (weigh["power"](alpha=1.0), weigh["asym"](delta=1.0), weigh["shifted"](delta=0.0)):
        near(same, dr_grpo)
    near(weigh["asym_power"](alpha_s=1.0, alpha_f=1.0), dr_grpo)
    near(weigh["scaled_power"](alpha=1.0), dr_grpo)
    near(weigh["easy_power"](alpha=1.0), dr_grpo)
    near(weigh["scaled_power"](alpha=2.0), 27 / 16 * weigh["power"](alpha=2.0))  # Eq. 27
    # easy prompts are what hard ones are to failures
    near(weigh["easy_power"](alpha=2.0), -weigh["scaled_power"](alpha=2.0).flip(0, 1))
    near(weigh["power_norm"](gamma=0.0), dr_grpo)
    near(weigh["power_norm"](gamma=0.5), grpo)
    near(weigh["power_norm"](gamma=-0.5), weigh["skew_r"]())
    near(weigh["analytic_pass_k"](k=1), grpo)
    near(weigh["mix_pass_k"](k=1), grpo)
    near(weigh["quantile"](tau=0.5), weigh["median"]())


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


# T2T and HA-DW (8.2, 8.10), which look at more than the rewards


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
    rewards = torch.tensor([[0.0, 0.0], [1.0, 1.0], [1.0, 0.0]], dtype=F64)
    lengths = torch.tensor([[0.2, 0.8], [0.2, 0.8], [0.6, 0.6]], dtype=F64)
    near(
        POLICY_WEIGHTS["t2t"](rewards, lengths, alpha=0.5), [[-1.0, 1.0], [1.0, -1.0], [1.0, -1.0]]
    )
    equal = torch.full((3, 2), 0.4, dtype=F64)
    near(POLICY_WEIGHTS["t2t"](rewards[:2], equal[:2], alpha=0.5), [[0.0, 0.0], [0.0, 0.0]])


def test_ha_dw_by_hand():
    """p = 1/4 under a baseline of 1/2: a rare success counts e^(1/4) times, a failure e^(-1/4)."""
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0]], dtype=F64)
    up, down = math.exp(0.25), math.exp(-0.25)
    near(
        POLICY_WEIGHTS["ha_dw"](rewards, 0.5, scale=2.0),
        [[2 * 0.75 * up] + 3 * [-2 * 0.25 * down]],
    )
    # of an easy prompt it is the other way around, and at the baseline nothing changes
    near(POLICY_WEIGHTS["ha_dw"](rewards, 0.0), [[0.75 * down] + 3 * [-0.25 * up]])
    near(POLICY_WEIGHTS["ha_dw"](rewards, 0.25), POLICY_WEIGHTS["mean"](rewards))


# Policy weights beyond binary rewards


def test_policy_weights_of_graded_rewards():
    rewards = torch.tensor([[0.1, 1.0, 0.4, 0.7]], dtype=F64)  # mean 0.55
    near(POLICY_WEIGHTS["pass_k"](rewards), [[0.0, 0.3, 0.0, 0.0]])
    near(POLICY_WEIGHTS["quantile"](rewards, tau=0.5), [[-0.3, 0.6, 0.0, 0.3]])
    near(POLICY_WEIGHTS["quantile"](rewards, tau=0.25), [[-0.6, 0.3, -0.3, 0.0]])
    near(POLICY_WEIGHTS["quantile"](rewards, tau=0.0), [[-0.9, 0.0, -0.6, -0.3]])
    near(POLICY_WEIGHTS["median"](rewards), [[-0.3, 0.6, 0.0, 0.3]])
    near(POLICY_WEIGHTS["maxrl"](rewards), [[-9 / 11, 9 / 11, -3 / 11, 3 / 11]])
    near(POLICY_WEIGHTS["relu"](rewards), [[0.0, 0.45, 0.0, 0.15]])
    near(POLICY_WEIGHTS["asym"](rewards, delta=0.5), [[-0.9, 0.45, -0.3, 0.15]])
    near(POLICY_WEIGHTS["power"](rewards, alpha=2.0), [[-0.2025, 0.2025, -0.0675, 0.0675]])
    deviation = math.sqrt((2 * 0.45**2 + 2 * 0.15**2) / 4)
    near(POLICY_WEIGHTS["grpo"](rewards), [[x / deviation for x in (-0.45, 0.45, -0.15, 0.15)]])


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_equal_rewards_weigh_exactly_nothing(dtype):
    """A mean of equal numbers is often not that number.

    Dividing by the rounding error would blow it up.
    """
    rewards = (torch.arange(98, dtype=dtype) / 97).unsqueeze(1).repeat(1, 11)
    assert (rewards.mean(dim=1) != rewards[:, 0]).any()
    assert torch.equal(POLICY_WEIGHTS["grpo"](rewards), torch.zeros_like(rewards))
    assert torch.equal(POLICY_WEIGHTS["power_norm"](rewards, gamma=0.75), torch.zeros_like(rewards))


@pytest.mark.parametrize("name", POLICY_WEIGHTS)
def test_float32_keeps_its_type_and_agrees(name):
    rewards = every_group(16)
    single = POLICY_WEIGHTS[name](rewards.float(), **PARAMETERS[name][-1])
    assert single.dtype == torch.float32 and single.isfinite().all()
    double = POLICY_WEIGHTS[name](rewards, **PARAMETERS[name][-1])
    torch.testing.assert_close(single.double(), double, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("name", POLICY_WEIGHTS)
def test_order_within_a_group_and_other_groups_do_not_matter(name):
    rewards = every_group(6)
    parameters = PARAMETERS[name][-1]
    if "k" in parameters:
        parameters = dict(k=3)  # the 16 above exceeds this G
    weigh = partial(POLICY_WEIGHTS[name], **parameters)
    whole = weigh(rewards)
    near(weigh(rewards.flip(1)), whole.flip(1), atol=1e-15)
    near(torch.cat([weigh(rewards[i : i + 1]) for i in range(7)]), whole, atol=1e-15)


def test_logmeanexp_with_a_large_beta_stays_finite():
    """One success of four: lme = (beta - log 4) / beta with it, and 0 without it.

    A failure costs log(4/3) / beta.
    """
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    expected = [[(200 - math.log(4)) / 200] + 3 * [math.log(3 / 4) / 200]]
    near(POLICY_WEIGHTS["logmeanexp"](rewards, beta=200.0), expected, atol=1e-6)


@pytest.mark.parametrize(
    "name, parameters",
    [("analytic_pass_k", dict(k=k)) for k in (0, -1, 5, 2.5)]
    + [("mix_pass_k", dict(k=k)) for k in (0, 5)]
    + [("asym", dict(delta=0.0)), ("asym", dict(delta=-1.0))],
)
def test_parameters_out_of_range_are_refused(name, parameters):
    with pytest.raises(ValueError) as error:
        POLICY_WEIGHTS[name](every_group(4), **parameters)
    (value,) = parameters.values()
    assert str(value) in str(error.value)
    assert "\n" not in str(error.value)


# FADE (Eq. 11, Algorithm 2)


def test_fade_advantage_by_hand():
    """p = 1/4, alpha = 3, delta = 1/2.

    (3/4)^2 is taken times 3/4 for the success, and times -1/4 x 2 for a failure.
    """
    rewards = torch.tensor([[0, 0, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]], dtype=F64)
    near(
        fade_advantage(rewards, 3.0, 0.5),
        [[-9 / 32, -9 / 32, 27 / 64, -9 / 32], [0.0] * 4, [0.0] * 4],
    )


@pytest.mark.parametrize("alpha, delta", [(1.0, 1.0), (1.5, 0.3), (3.0, 0.7), (2.0, 2.0)])
def test_fade_masses(alpha, delta):
    """m_S = p q^alpha and m_F = p q^alpha / delta (section 10)."""
    rewards = every_group(16)
    m_S, m_F = gradient_mass(fade_advantage(rewards, alpha, delta), rewards)
    p = torch.arange(17, dtype=F64) / 16
    near(m_S, p * (1 - p) ** alpha)
    near(m_F, p * (1 - p) ** alpha / delta)


def test_groups_without_contrast_count_under_the_mean_of_the_batch():
    """Mean 5/12, alpha 2, delta 1/2: 7/12 x 7/12 for a success, 7/12 x -5/12 x 2 for a failure."""
    rewards = torch.tensor([[0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1]], dtype=F64)
    success, failure = 49 / 144, -70 / 144
    near(
        fade_advantage(rewards, 2.0, 0.5, mean=5 / 12),
        [[failure] * 4, [success] + 3 * [failure], [success] * 4],
    )


def test_fade_advantage_with_alpha_below_1_stays_finite():
    """(1 - r_mean)^(alpha - 1) is infinite at r_mean = 1, where r - r_mean is 0.

    By hand at r_mean = 1/4 with alpha 0.5.
    """
    rewards = torch.tensor([[1.0, 1.0, 1.0, 1.0], [1.0, 0.0, 0.0, 0.0]], dtype=F64)
    mixed = [math.sqrt(0.75)] + 3 * [-0.25 / math.sqrt(0.75)]
    near(fade_advantage(rewards, 0.5, 1.0), [[0.0] * 4, mixed])


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


def test_controller_bounds():
    # a past that does not count
    now = partial(FadeController, initial_entropy=1.0, target_entropy=1.5, ema_beta=0.0)
    assert now().step(0.0, 1.5) == (3.0, 1.0)  # nothing solved: alpha would be infinite
    assert now(alpha_max=7.0).step(0.0, 9.0) == (7.0, 1.0)
    assert now().step(1.0, 0.8) == (1.0, pytest.approx(0.3))
    assert now().step(1.0, 0.0)[1] == 0.3
    assert now().step(0.75, 1.5)[0] == 1.0
    assert now().step(0.5, 1.0) == (1.5, 0.5)
    assert now().step(0.6, 1.5)[0] == pytest.approx(1.0)
    assert now().step(1 / 3, 1.5)[0] == pytest.approx(3.0)
    assert now().step(0.2, 1.5)[0] == 3.0


def test_controller_by_the_entropy_alone():
    """Target 0.5, limit 3: at H = 1, 0.75 and 0.5 alpha is 3, 2 and 1, whatever is solved."""
    now = partial(FadeController, target_entropy=0.5, ema_beta=0.0, alpha_from_entropy=True)
    for solve_rate in (0.0, 0.3, 1.0):
        assert now(1.0).step(solve_rate, 1.0) == (3.0, 1.0)
        assert now(1.0).step(solve_rate, 0.75) == (2.0, 1.0)
        assert now(1.0).step(solve_rate, 0.5) == (1.0, 1.0)
        assert now(1.0).step(solve_rate, 9.0) == (3.0, 1.0)
        assert now(1.0).step(solve_rate, 0.25) == (1.0, 0.75)
    # by default the target is half of the start's, where alpha therefore is at its limit
    assert FadeController(0.8, alpha_from_entropy=True).step(0.9, 0.8) == (3.0, 1.0)


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
    assert delta(0) == 1.0
    assert delta(20000) == pytest.approx(0.802, abs=1e-12)
    assert log_schedule(3, 15, 2.0, 1.0, 1) == pytest.approx(1.5, abs=1e-12)  # log 4 / log 16
    middle = log_schedule(8500, 3 * 8500, 2.0, 1.917, 8500)
    assert middle == pytest.approx((2.0 + 1.917) / 2, abs=1e-12)
    quarter = 1 - 0.198 * math.log(1 + 5000 / 12264) / math.log(1 + 20000 / 12264)
    assert type(delta(5000)) is float
    assert delta(5000) == pytest.approx(quarter, abs=1e-12)


# What main does with them


def batch_of(successes, logprobs, first=None, written=None):
    """A batch of which only this is known: successes and mean log-probs, [B, G] each."""
    return SimpleNamespace(
        rewards=successes,
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


@pytest.mark.parametrize("step", [1, 7, 20])
def test_control_by_the_schedule(step):
    """It does not look at the signals, though the controller goes on with them."""
    config = Config(weight="log_schedule", max_steps=20, ema_beta=0.5)
    successes = torch.eye(4, dtype=F64)
    for logprobs in (-0.2, -0.8):
        controller = make_controller(config)
        batch = batch_of(successes, torch.full((4, 4), logprobs, dtype=F64))
        advantages, logged = compute_advantages(batch, config, controller, step)
        alpha = log_schedule(step, 20, 2.0, 1.917, 8500)
        delta = log_schedule(step, 20, 1.0, 0.802, 12264)
        assert (logged["alpha"], logged["delta"]) == (alpha, delta)
        assert torch.equal(advantages, fade_advantage(successes, alpha, delta))
        assert controller.solve_rate == pytest.approx((0.5 + 0.25) / 2)
    if step == 20:
        assert (alpha, delta) == pytest.approx((1.917, 0.802))


@pytest.mark.parametrize(
    "weight, arguments, expected",
    [
        ("fade", "", partial(fade_advantage, alpha=2.5, delta=0.4)),
        ("log_schedule", "", partial(fade_advantage, alpha=2.5, delta=0.4)),
        ("grpo", "", POLICY_WEIGHTS["grpo"]),
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
    rewards = every_group(4)
    config = Config(weight=weight, weight_args=arguments)
    config.check()
    chosen = choose_weight(config, alpha=2.5, delta=0.4)
    assert torch.equal(chosen(rewards), expected(rewards))


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
    "flags, message",
    [
        (dict(weight="grpo", batch_mean=True), "--batch_mean is for --weight fade, log_schedule"),
        (dict(weight="power", target_entropy=0.5), "^--target_entropy is for --weight fade, not"),
        (dict(weight="power", ema_beta=0.5), "^--ema_beta is for --weight fade, ha_dw, not power"),
        (dict(weight="asym", alpha_max=2.0), "^--alpha_max is for --weight fade, not asym"),
        (dict(weight="log_schedule", alpha_from_entropy=True), "^--alpha_from_entropy is for"),
        (
            dict(weight="t2t", weight_args="alpha=0.2", equalize_learning_rate=True),
            "--equalize_learning_rate",
        ),
        (dict(weight="t2t"), "--weight t2t"),  # its alpha is not given
        (dict(weight="none"), "^--weight none is none of fade, log_schedule, power, asym, "),
        (dict(ema_beta=1.0), "^--ema_beta must be below 1$"),
        (dict(alpha_max=0.5), "^--alpha_max must be 1 or more$"),
        (dict(weight="power", weight_args="unknown=1"), "--weight power --weight_args 'unknown=1'"),
        (dict(weight="mix_pass_k", weight_args="k=0.5"), "--weight_args 'k=0.5'"),
        (dict(weight="power", weight_args="alpha=nan"), "advantages are no finite numbers"),
        (dict(weight="scaled_power", weight_args="alpha=-0.5"), "advantages are no finite numbers"),
        (dict(weight="quantile", weight_args="tau=-1"), "advantages are no finite numbers"),
        (dict(weight="asym_power", weight_args="alpha_s=-1,alpha_f=1"), "no finite numbers"),
        (dict(weight="ha_dw", weight_args="scale=0"), "all advantages are 0"),
        (dict(weight_args="alpha=2"), "--weight fade takes no --weight_args"),
        (dict(weight="log_schedule", weight_args="alpha=2"), "log_schedule takes no --weight_args"),
        (dict(alpha_from_entropy=True, target_entropy=0.0), "needs a --target_entropy above 0"),
    ],
)
def test_flags_that_do_not_fit_are_refused(flags, message):
    with pytest.raises(UserError, match=message):
        Config(**flags).check()


@pytest.mark.parametrize(
    "name, largest",
    [
        ("grpo", math.sqrt(3)),  # so that the learning rate stays
        ("mean", 3 / 4),  # of one success in four, or of one failure
        ("asym", 3 / 2),  # of one failure
        ("reinforce", 1.0),
        ("maxrl", 3.0),  # of one success
        ("binary_contrastive", 3.0),  # of one failure
        ("relu", 3 / 4),
    ],
)
def test_the_factor_of_the_learning_rate_by_hand(name, largest):
    """lr times the largest |A| in groups of four is as GRPO's, which is sqrt(4 - 1)."""
    config = Config(weight=name, num_generations=4, equalize_learning_rate=True)
    assert learning_rate_factor(config) * largest == pytest.approx(math.sqrt(3), abs=1e-6)
    assert learning_rate_factor(Config(weight=name, num_generations=4)) == 1


@pytest.mark.parametrize(
    "flags, alpha",
    [
        ({}, 1.5),  # 3 (1 - s) / (2 s) at s = 1/2
        (dict(alpha_max=1.2), 1.2),
        (dict(alpha_from_entropy=True), 3.0),  # its limit, since entropy is twice its target
        (dict(weight="log_schedule"), 2.0),  # where it starts
        (dict(weight="log_schedule", batch_mean=True), 2.0),
    ],
)
def test_the_factor_for_the_weights_that_move(flags, alpha):
    """delta is 1 at first, so that |A| is (1-p)^(alpha-1) (1-p) of a success, at most at p = 1/8.

    Under --batch_mean 1/2 stands for the mean: (1/2)^(alpha-1) times 1/2 for all of them.
    """
    config = Config(num_generations=8, equalize_learning_rate=True, **flags)
    largest = 0.5**alpha if "batch_mean" in flags else (7 / 8) ** alpha
    assert learning_rate_factor(config) * largest == pytest.approx(math.sqrt(7), rel=1e-6)


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
