"""fade.py against FADE's derivations (sections 4, 8-10, 13, 15) and numbers worked out by hand."""

import json
import math
from functools import partial

import rlvr.ranks
from rlvr import world

import pytest
import torch
from groups import every_group, near

from fade import (
    POLICY_WEIGHTS,
    Config,
    FadeController,
    choose_weight,
    control,
    entropy_drift,
    equalized_learning_rate,
    fade_advantage,
    fade_metrics,
    gradient_mass,
    log_schedule,
    rank1_statistics,
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
    "maxrl": balanced(lambda p, q, n, G: q if p else 0.0),  # p = 0: 0 by definition
    "pass_k": lambda p, q, n, G: ((n == 1) / G, 0.0),
    "analytic_pass_k": balanced(lambda p, q, n, G, k: analytic_mass(n, G, k)),
    "mix_pass_k": balanced(lambda p, q, n, G, k: mix_mass(n, G, k)),
    "power": balanced(lambda p, q, n, G, alpha=2.0: p * q**alpha),
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
    "relu": lambda p, q, n, G: (p * q, 0.0),
}
# What each is called with; {} where all parameters have a default, or where there are none.
PARAMETERS = {name: [{}] for name in MASSES} | {
    "analytic_pass_k": [dict(k=k) for k in (1, 2, 8, 16)],
    "mix_pass_k": [dict(k=k) for k in (1, 4, 16)],
    "power": [{}, *(dict(alpha=alpha) for alpha in (1.0, 1.5, 3.0))],
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
    [("analytic_pass_k", dict(k=k)) for k in (0, -1, 5)]
    + [("mix_pass_k", dict(k=k)) for k in (0, 5)]
    + [("asym", dict(delta=0.0)), ("asym", dict(delta=-1.0))],
)
def test_parameters_out_of_range_are_refused(name, parameters):
    with pytest.raises(ValueError) as error:
        POLICY_WEIGHTS[name](every_group(4), **parameters)
    (value,) = parameters.values()
    assert str(value) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_single_completion_has_no_others():
    with pytest.raises(ValueError, match="k must be between 1 and G = 1"):
        POLICY_WEIGHTS["analytic_pass_k"](every_group(1), k=2)


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


def test_fade_at_one_and_one_is_dr_grpo():
    rewards = torch.rand(5, 7, dtype=F64, generator=torch.Generator().manual_seed(0))
    assert torch.equal(
        fade_advantage(rewards, 1.0, 1.0), rewards - rewards.mean(dim=1, keepdim=True)
    )


def test_fade_with_one_mean_for_the_batch():
    """Through a view: batch mean 1/2, alpha 2, delta 1/2. A success has 1/4, a failure -1/2."""
    rewards = torch.tensor([[1.0, 1.0], [0.0, 0.0]], dtype=F64)
    near(
        fade_advantage(rewards.view(1, -1), 2.0, 0.5).view_as(rewards), [[0.25, 0.25], [-0.5, -0.5]]
    )


@pytest.mark.parametrize("delta", [0.0, -0.5])
def test_fade_advantage_refuses(delta):
    with pytest.raises(ValueError, match="delta must be positive"):
        fade_advantage(every_group(4), 1.0, delta)


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


def test_controller_with_the_printed_ema_hardly_remembers():
    """b = 0.02: p = 0.02 * 0.5 + 0.98 * 0.6 = 0.598 and H = 0.02 * 1 + 0.98 * 0.3 = 0.314."""
    alpha, delta = FadeController(1.0).step(0.6, 0.3)
    assert alpha == pytest.approx(3 * 0.402 / (2 * 0.598), abs=1e-12)
    assert delta == pytest.approx(0.814, abs=1e-12)


def test_controller_takes_tensors_and_returns_floats():
    controller = FadeController(torch.tensor(1.0), ema_beta=0.5)
    out = controller.step(torch.tensor(0.5), torch.tensor(0.25, dtype=F64))
    assert out == (1.5, 1.0)
    assert all(type(x) is float for x in out)


def test_controller_state_round_trip():
    """Through JSON, into a controller that was built from a later policy's entropy."""
    signals = [(0.2, 0.9), (0.4, 0.1), (0.5, 0.05), (0.9, 0.4), (0.6, 0.2)]
    first = FadeController(1.2, ema_beta=0.7)
    for signal in signals[:2]:
        first.step(*signal)
    second = FadeController(0.3, ema_beta=0.7)
    vars(second).update(json.loads(json.dumps(vars(first))))
    rest = [first.step(*signal) for signal in signals[2:]]
    assert [second.step(*signal) for signal in signals[2:]] == rest
    assert len(set(rest)) == 3  # a frozen or clipped controller would pass the line above


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


def test_control_keeps_its_state_in_the_memory():
    """The memory goes through a checkpoint between any two steps, and the first target stays."""
    config = Config(ema_beta=0.5)
    memory = {}
    found = []
    for step, (solve_rate, entropy) in enumerate(SIGNALS, start=1):
        memory = json.loads(json.dumps(memory))
        found.append(control(config, memory, step, solve_rate, entropy))
    near(torch.tensor(found, dtype=F64), CONTROLLED)
    assert memory["controller"]["target_entropy"] == 0.5
    assert memory["controller"]["solve_rate"] == pytest.approx(0.75)


def test_control_by_flags():
    """The flags set the target and the limit: delta = 1 + 0.5 - 0.9, and alpha = 4.5 unclipped."""
    config = Config(ema_beta=0.0, target_entropy=0.9, alpha_max=9.0)
    assert control(config, {}, 1, 0.25, 0.5) == pytest.approx((4.5, 0.6))


@pytest.mark.parametrize("step", [1, 7, 20])
def test_control_by_the_schedule(step):
    """It does not look at the signals, though the controller goes on with them."""
    config = Config(weight="log_schedule", max_steps=20, ema_beta=0.5)
    memory = {}
    found = control(config, memory, step, 0.1, 0.2)
    assert found == control(config, {}, step, 0.9, 0.8)
    assert found[0] == log_schedule(step, 20, 2.0, 1.917, 8500)
    assert found[1] == log_schedule(step, 20, 1.0, 0.802, 12264)
    assert memory["controller"]["solve_rate"] == pytest.approx(0.3)
    if step == 20:
        assert found == pytest.approx((1.917, 0.802))


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
    chosen = choose_weight(Config(weight=weight, weight_args=arguments), alpha=2.5, delta=0.4)
    assert torch.equal(chosen(rewards), expected(rewards))


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
def test_equalized_learning_rate_by_hand(name, largest):
    """lr times the largest |A| in groups of four is as GRPO's, which is sqrt(4 - 1)."""
    config = Config(learning_rate=0.1, num_generations=4)
    rate = equalized_learning_rate(config, POLICY_WEIGHTS[name])
    assert rate * largest == pytest.approx(0.1 * math.sqrt(3), abs=1e-7)


def test_fade_metrics_by_hand():
    """Masses and drift as in test_entropy_drift_by_hand.

    What is logged of the drift was predicted in the step before, for the change that is seen now.
    """
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0]] * 2, dtype=F64)
    logprobs = torch.tensor([[-1.0, -2.0, -3.0, -2.0]] * 2, dtype=F64)
    advantages = POLICY_WEIGHTS["asym"](rewards, delta=0.5)
    memory = {"controller": {"solve_rate": 0.3, "entropy": 1.7}}
    first = {
        "solve_rate_ema": 0.3,
        "entropy_ema": 1.7,
        "m_S": 3 / 16,
        "m_F": 3 / 8,
        "entropy_drift": 0.0,
        "entropy_change": 0.0,
    }
    assert fade_metrics(advantages, rewards, logprobs, 2.0, memory) == pytest.approx(first)
    memory = json.loads(json.dumps(memory))
    second = fade_metrics(advantages, rewards, logprobs, 1.5, memory)
    assert second == pytest.approx({**first, "entropy_drift": -0.6875, "entropy_change": -0.5})
    third = fade_metrics(advantages, rewards, logprobs, 1.6, memory)
    # (m_S - m_F) H - Cov = -3/16 x 1.5 - 5/16
    assert third["entropy_drift"] == pytest.approx(-0.59375)
    assert third["entropy_change"] == pytest.approx(0.1)


def test_fade_metrics_are_means_over_the_ranks(monkeypatch):
    """The other rank's m_S, m_F and drift are 0.5, 0.7 and -0.1."""
    rewards, advantages = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.6, -0.2]])
    memory = {"controller": {"solve_rate": 0.3, "entropy": 1.7}}
    monkeypatch.setattr(world, "WORLD_SIZE", 2)
    monkeypatch.setattr(rlvr.ranks, "gather", lambda rows: [*rows, [0.5, 0.7, -0.1]])
    metrics = fade_metrics(advantages, rewards, torch.zeros(1, 2), 2.0, memory)
    assert metrics["m_S"] == pytest.approx((0.3 + 0.5) / 2)
    assert metrics["m_F"] == pytest.approx((0.1 + 0.7) / 2)
    assert memory["drift"] == pytest.approx((0.2 * 2.0 - 0.1) / 2)


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


# The output head (sections 4.2 and 15)


def decomposition(atoms=6, V=9, d=7, seed=0):
    """Equally likely atoms (A, v, h), with G = E[A v h^T], its u_1, alpha and h_perp as in 15.1."""
    A, v, h = (
        random(atoms, seed=seed),
        random(atoms, V, seed=seed + 1),
        random(atoms, d, seed=seed + 2),
    )
    G = torch.einsum("i,iv,id->vd", A, v, h) / atoms
    u1 = torch.linalg.svd(G).Vh[0]
    alpha = h @ u1
    return A, v, h, G, u1, alpha, h - alpha.unsqueeze(1) * u1


@pytest.mark.parametrize("seed", range(5))
def test_proposition_15_1(seed):
    A, v, h, G, u1, alpha, h_perp = decomposition(seed=100 * seed)
    signal = (A * alpha).unsqueeze(1) * v  # [atoms, V]
    residual = torch.einsum("i,iv,id->ivd", A, v, h_perp)  # [atoms, V, d]
    near((h_perp @ u1), torch.zeros(6), atol=1e-13)
    # M_1 and M_2 of any sample are orthogonal, so that their energies add up: here 20 draws
    drawn = torch.randint(6, (20,), generator=torch.Generator().manual_seed(seed))
    M1, M2 = torch.outer(signal[drawn].sum(0), u1), residual[drawn].sum(0)
    W = torch.einsum("i,iv,id->vd", A[drawn], v[drawn], h[drawn])
    near(M1 + M2, W, atol=1e-11)
    near((M1 * M2).sum() / (M1.norm() * M2.norm()), 0.0)
    near(W.square().sum() / (M1.square().sum() + M2.square().sum()), 1.0)
    # Eq. 33 is exact for the expectation itself
    signal_energy, residual_energy = signal.mean(0).square().sum(), residual.mean(0).square().sum()
    limit = (signal_energy / (signal_energy + residual_energy)).item()
    assert 0.2 < limit < 0.95
    assert rank1_statistics(G)["r1"] == pytest.approx(limit, abs=1e-12)
    # larger and larger samples come near it, under the bound of Weyl's inequality at any size
    for N, tolerance in ((1_000, 0.1), (100_000, 0.01), (4_000_000, 0.0015)):
        drawn = torch.randint(6, (N,), generator=torch.Generator().manual_seed(seed))
        W = torch.einsum("i,i,iv,id->vd", drawn.bincount(minlength=6).to(F64) / N, A, v, h)
        assert rank1_statistics(W)["r1"] == pytest.approx(limit, abs=tolerance)
        assert (torch.linalg.svdvals(W)[0] - torch.linalg.svdvals(G)[0]).abs() <= (W - G).norm()


def test_proposition_15_1_without_a_residual():
    """r_1 = 1 exactly if R = 0: each atom meets its twin with the opposite perpendicular part."""
    A, v, _, _, u1, alpha, h_perp = decomposition()
    h = alpha.unsqueeze(1) * u1 + torch.stack([h_perp, -h_perp])  # [2, atoms, d]
    assert rank1_statistics(torch.einsum("i,iv,sid->vd", A, v, h))["r1"] == pytest.approx(
        1, abs=1e-12
    )
    assert rank1_statistics(torch.einsum("i,iv,id->vd", A, v, h[0]))["r1"] < 0.95


@pytest.mark.parametrize("K", [2, 5, 8])
def test_corollary_15_2_more_failure_modes_leave_a_smaller_residual(K):
    """||R_F||^2 = c^2 mu^2 / K for K equally likely modes with orthogonal means.

    Here c = 3 and mu = 2.
    """
    means = 2 * torch.linalg.qr(random(8, 8)).Q[:K]  # [K, d]
    pushes = 3 * torch.nn.functional.normalize(random(K, 11, seed=1), dim=1)  # [K, V]
    R_F = torch.einsum("kv,kd->vd", pushes, means) / K
    assert R_F.square().sum().item() == pytest.approx(36 / K, abs=1e-12)


def test_corollary_15_3_a_shared_direction_accumulates_to_rank_one():
    steps = torch.einsum("tv,d->tvd", random(30, 9), random(7, seed=1))
    assert rank1_statistics(steps.sum(0))["r1"] == pytest.approx(1, abs=1e-12)


def test_rank1_statistics_of_rank_one():
    out = rank1_statistics(torch.outer(random(12), random(5, seed=1)))
    assert out["r1"] == pytest.approx(1, abs=1e-12) and out["srank"] == 1 and out["ratio"] > 1e12


@pytest.mark.parametrize("n, srank", [(3, 3), (10, 10), (150, 149), (250, 248)])
def test_rank1_statistics_of_an_orthogonal_matrix(n, srank):
    """All singular values are equal: r1 = 1 / n, ratio 1, srank = ceil(0.99 n)."""
    out = rank1_statistics(torch.linalg.qr(random(n, n)).Q)
    assert out == {"r1": pytest.approx(1 / n), "ratio": pytest.approx(1), "srank": srank}


def test_rank1_statistics_by_hand():
    """s = 80, 20, 16, 4: 120 x 0.99 = 118.8 takes all four.

    s = 100, 99, 1: 200 x 0.99 = 198 takes two.
    """
    turn, tilt = torch.linalg.qr(random(6, 6)).Q[:, :4], torch.linalg.qr(random(4, 4, seed=1)).Q
    weight = turn @ torch.diag(torch.tensor([80.0, 20.0, 16.0, 4.0], dtype=F64)) @ tilt
    four = {
        "r1": pytest.approx(6400 / 7072, abs=1e-12),
        "ratio": pytest.approx(4, abs=1e-12),
        "srank": 4,
    }
    assert rank1_statistics(weight) == four and rank1_statistics(weight.T) == four
    assert rank1_statistics(-weight * 1e-200) == four  # squares of 1e-200 are 0 in float64
    out = rank1_statistics(torch.diag(torch.tensor([99.0, 1.0, 100.0])))
    assert out == {"r1": pytest.approx(10000 / 19802), "ratio": pytest.approx(100 / 99), "srank": 2}
    assert type(out["r1"]) is float and type(out["ratio"]) is float and type(out["srank"]) is int


@pytest.mark.parametrize("scale", [1.0, 1e-25], ids=["as large", "squares underflow in float32"])
def test_rank1_statistics_of_a_large_head(monkeypatch, scale):
    """They are those of svdvals in float64, and svdvals itself is never called.

    The head's change is one strong direction, some weaker ones and noise, in float32 as in a run.
    """
    sizes = torch.tensor([10.0, 3.0, 2.0, 1.0], dtype=F64)
    strong = (
        torch.linalg.qr(random(9000, 4)).Q * sizes @ torch.linalg.qr(random(512, 4, seed=1)).Q.T
    )
    weight = ((strong + 1e-4 * random(9000, 512, seed=2)) * scale).float()
    s = torch.linalg.svdvals(weight.double())
    srank = next(k for k in range(1, 513) if s[:k].sum() >= 0.99 * s.sum())
    expected = {
        "r1": pytest.approx((s[0] ** 2 / s.square().sum()).item(), rel=1e-9),
        "ratio": pytest.approx((s[0] / s[1]).item(), rel=1e-9),
        "srank": srank,
    }
    assert 4 < srank < 500
    monkeypatch.setattr(torch.linalg, "svdvals", None)
    assert rank1_statistics(weight) == expected
    assert rank1_statistics(weight.T) == expected
    assert rank1_statistics(torch.zeros(600, 600)) == {"r1": 0.0, "ratio": 1.0, "srank": 0}
    exact = rank1_statistics(torch.outer(random(600), random(600, seed=1)))
    assert exact["r1"] == pytest.approx(1) and exact["srank"] == 1 and 1e7 < exact["ratio"] < 1e9


def test_rank1_statistics_before_anything_is_learned():
    assert rank1_statistics(torch.zeros(5, 4)) == {"r1": 0.0, "ratio": 1.0, "srank": 0}
