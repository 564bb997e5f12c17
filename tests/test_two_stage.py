"""Two-stage dynamics in numbers: Lemma 1, Theorem 1 and Remarks 1-3, with grpo.py's advantages.

A bandit has V actions with rewards r and logits z. A group is G actions drawn from pi = softmax(z).
Every expectation is a sum over all V^G groups with their probabilities, so that the only tolerance
is rounding.
"""

import itertools
import math

import pytest
import torch
from groups import f64, near

import common
from grpo import grpo_advantage, negative_only

ETA = 0.1
ADVANTAGES = {
    "grpo": grpo_advantage,
    # Algorithm 1: r - mean
    "dr_grpo": lambda rewards: grpo_advantage(rewards, scale_rewards=False),
    "grpo_n": lambda rewards: negative_only(grpo_advantage(rewards)),
}
BANDITS = [
    pytest.param(z, r, G, id=f"V{len(z)}-G{G}")
    for z, r in (
        # the paper's: a1 likely and good, a2 unlikely and best, a3 bad
        ([2.0, -1.5, 1.5], [0.6, 1.0, 0.0]),
        ([0.3, -0.2, 1.1, -2.0], [0.0, 1.0, 0.5, 0.8]),
    )
    for G in (2, 3, 4)
]


def test_remark_1_supervised_learning_with_a_weight():
    # On right answers alone, with A = 1 and a ratio of 1, GRPO's gradient is that of the mean
    # log-prob of a response's tokens; A weighs it (Eq. 2, A-GRAE Eq. 4).
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 4, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    tokens = torch.randint(6, (3, 4, 1), generator=generator)
    mask = f64([[1, 1, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]])
    logprobs = logits.log_softmax(-1).gather(-1, tokens)[..., 0]
    of_responses = (logprobs * mask).sum(1) / mask.sum(1)
    for advantages in (torch.ones(3).double(), f64([0.5, -2.0, 1.5])):
        loss, _ = common.ppo_clip_loss(
            logprobs=logprobs,
            old_logprobs=logprobs.detach(),
            advantages=advantages[:, None],
            loss_mask=mask,
            token_weights=common.token_weights(mask, "sequence"),
        )
        supervised = -(advantages * of_responses).mean()
        (found,) = torch.autograd.grad(loss, logits, retain_graph=True)
        (expected,) = torch.autograd.grad(supervised, logits, retain_graph=True)
        near(found, expected)


def all_groups(z, G):
    """Every group of G actions [V^G, G] and its probability [V^G]."""
    groups = torch.tensor(list(itertools.product(range(len(z)), repeat=G)))
    return groups, z.softmax(0)[groups].prod(1)


def algorithm_1(z, actions, advantages):
    """One update of Algorithm 1 in its own loops: eta g / G. Every sample moves all the logits."""
    pi = [math.exp(x) / sum(math.exp(y) for y in z.tolist()) for x in z.tolist()]
    g = [0.0] * len(pi)
    for action, advantage in zip(actions.tolist(), advantages.tolist(), strict=True):
        for u in range(len(pi)):
            g[u] += ((1 - pi[u]) if u == action else -pi[u]) * advantage
    return ETA * f64(g) / len(actions)


def expected_update(z, G, advantage):
    """The mean of Algorithm 1's update over all groups, whose advantages are advantage(groups)."""
    groups, probability = all_groups(z, G)
    pairs = zip(groups, advantage(groups), strict=True)
    updates = torch.stack([algorithm_1(z, actions, A) for actions, A in pairs])  # [V^G, V]
    return (probability[:, None] * updates).sum(0)


def theorem_1(z, advantage):
    """E dz_v = eta pi_v [(1 - pi_v) A_v - sum over u != v of pi_u A_u]; A [V] is of the action."""
    pi = z.softmax(0)
    others = (pi * advantage).sum() - pi * advantage
    return ETA * pi * ((1 - pi) * advantage - others)


def policies(count):
    """Logits of five actions, at random."""
    generator = torch.Generator().manual_seed(0)
    return 2 * torch.randn(count, 5, generator=generator, dtype=torch.float64)


# ------------------------------------------------------------------------------- Lemma 1, Remark 2


@pytest.mark.parametrize("advantage", [0.7, -1.3])
def test_lemma_1_and_remark_2_how_one_sample_moves_the_logits(advantage):
    # The sampled logit moves with the sign of A, and every other logit against it.
    for z in policies(20):
        for sampled in range(5):
            leaf = z.clone().requires_grad_()
            (advantage * leaf.log_softmax(0)[sampled]).backward()
            pi = z.softmax(0)
            expected = -ETA * advantage * pi  # dz_u for u != sampled
            expected[sampled] = ETA * advantage * (1 - pi[sampled])
            near(ETA * leaf.grad, expected)
            step = algorithm_1(z, torch.tensor([sampled]), f64([advantage]))
            near(step, expected)
            assert (step * advantage > 0).tolist() == [u == sampled for u in range(5)]


# ---------------------------------------------------------------------------------------- Theorem 1


@pytest.mark.parametrize("z, r, G", BANDITS)
def test_theorem_1_for_an_advantage_of_the_action_alone(z, r, G):
    # The case the proof treats: A is a fixed function of the action, whatever else is in the group.
    z, advantage = f64(z), f64(r) - 0.37
    near(expected_update(z, G, lambda groups: advantage[groups]), theorem_1(z, advantage))


@pytest.mark.parametrize("z, r, G", BANDITS)
def test_theorem_1_is_the_exact_policy_gradient(z, r, G):
    # Subtracting the mean of a group that contains the sample itself costs a factor (G - 1) / G,
    # which the theorem leaves out: with it, the update is the gradient of the expected reward, got
    # here by autograd.
    z, r = f64(z).requires_grad_(), f64(r)
    (z.softmax(0) * r).sum().backward()
    z, gradient = z.detach(), z.grad
    update = expected_update(z, G, lambda groups: ADVANTAGES["dr_grpo"](r[groups]))
    near(update, ETA * (G - 1) / G * gradient)
    near(update, (G - 1) / G * theorem_1(z, r))
    baseline = (z.softmax(0) * r).sum()  # none changes it
    near(update, (G - 1) / G * theorem_1(z, r - baseline))


@pytest.mark.parametrize("name", ADVANTAGES)
@pytest.mark.parametrize("z, r, G", BANDITS)
def test_theorem_1_for_advantages_of_the_group(z, r, G, name):
    # A group-relative advantage depends on the other samples too. The theorem still holds once A_v
    # is read as the expected advantage of action v: computed from the other G - 1 samples alone.
    z, r = f64(z), f64(r)
    advantage = []
    others, chance = all_groups(z, G - 1)
    for v in range(len(z)):
        rewards = torch.cat((r[v].expand(len(others), 1), r[others]), 1)  # [V^(G-1), G], v first
        advantage.append((chance * ADVANTAGES[name](rewards)[:, 0]).sum())
    update = expected_update(z, G, lambda groups: ADVANTAGES[name](r[groups]))
    near(update, theorem_1(z, torch.stack(advantage)))
    # Appendix C.4: the expected logit of the best action rises, and that of the worst one falls.
    if name != "grpo_n":
        assert update[r.argmax()] > 0 > update[r.argmin()]


# ----------------------------------------------------------------------------- Remark 3: two stages


def test_unlikely_actions_hardly_move():
    # pi_v -> 0 gives dz_v -> 0, in proportion. With z_2 -> -inf and G = 2, dz_2 / pi_2 tends to
    # eta/2 times r_2 - mean r over the other two.
    r = f64([0.6, 1.0, 0.0])
    for rare in (-10.0, -14.0, -18.0):
        z = f64([0.0, rare, 0.0])
        update = expected_update(z, 2, lambda groups: ADVANTAGES["dr_grpo"](r[groups]))
        ratio = update[1] / z.softmax(0)[1]
        # the mean itself moves by less than pi_2, which is below exp(rare)
        assert abs(ratio - ETA / 2 * 0.7) < math.exp(rare)


def test_the_two_stages():
    # First a1 (likely, r 0.6) gains and the best action a2 hardly moves; once a1 dominates and the
    # bad a3 is gone, a1 is the relatively negative action and a2 gains.
    r = f64([0.6, 1.0, 0.0])
    exploitation, exploration = f64([[0.495, 0.01, 0.495], [0.95, 0.0499, 0.0001]]).log()
    first, second = (
        expected_update(z, 2, lambda groups: ADVANTAGES["dr_grpo"](r[groups]))
        for z in (exploitation, exploration)
    )
    assert first[0] > 0 > first[2] and 0 < first[1] < first[0] / 10
    assert second[0] < 0 < second[1] and abs(second[2]) < second[1] / 100


# ------------------------------------------------------------ negatives alone (Proposition 1, B.5)
# What they do to the logits that no sample is of: test_theorem1_logit_update in test_agrae.py.


def test_log_probability_slope_of_one_negative_sample():
    # Proposition 1, identity kernel: for u != v,
    # d log pi_u / d eta = |A| (pi_u + pi_v - sum_k pi_k^2).
    # Remark 2 (2), where it always holds: sum pi_k^2 <= max pi, so if the likeliest action is
    # suppressed, all the others become likelier, and the more the likelier they are.
    for z in policies(20):
        pi = z.softmax(0)
        for v in range(5):
            direction = algorithm_1(z, torch.tensor([v]), f64([-0.8])) / ETA
            slope = torch.autograd.functional.jvp(lambda x: x.log_softmax(0), z, direction)[1]
            expected = 0.8 * (pi + pi[v] - (pi**2).sum())
            expected[v] = -0.8 * (1 - 2 * pi[v] + (pi**2).sum())
            near(slope, expected)
            assert slope[v] < 0
            if v == pi.argmax():
                others = slope[pi.argsort()[:-1]]
                assert others[0] > 0 and (others.diff() > 0).all()


def test_suppressing_a_rare_action_lowers_other_rare_actions():
    # Remark 2 says that a negative advantage raises the probability of the others. It raises their
    # logits; but the dominant action's rises most, and takes the mass of the rare ones with it.
    pi = f64([0.90, 0.06, 0.04])
    step = algorithm_1(pi.log(), torch.tensor([2]), f64([-1.0]))
    after = (pi.log() + step).softmax(0)
    assert step[0] > step[1] > 0 > step[2]
    assert after[0] > pi[0] and after[1] < pi[1] and after[2] < pi[2]
