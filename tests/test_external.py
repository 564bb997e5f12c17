"""Values that the tests of other libraries and of Stanford's course CS336 hold.

Numbers only, each with its source. What a case stands for was put into this project's terms: one
row is a completion, and where the source divides by G - 1 or adds a penalty of its own, the comment
says so. verl's own tests hold few numbers: its advantages are compared with one another there.

    NeMo-RL, NVIDIA-NeMo/RL at 7ea279a: tests/unit/algorithms/
    SkyRL, NovaSky-AI/SkyRL at a956457: tests/train/algorithms/, tests/backends/skyrl_train/utils/
    verl, volcengine/verl at b178a3c: tests/trainer/ppo/, tests/utils/
    prime-rl, PrimeIntellect-ai/prime-rl at 559b447: tests/unit/orchestrator/

The values are printed with three to five digits, which is how closely they are compared.
"""

import math
from types import SimpleNamespace

import pytest
import torch
from baseline_advantages import maxrl
from losses import kl_penalty, ppo_clip_loss, token_losses

import agrae
import cwgrpo
from common import Batch, token_weights
from grpo import grpo_advantage

# What NeMo-RL and SkyRL take for most of their cases: ratios of 0.5, 1 and 1.5.
LOGPROBS = torch.tensor([[-1.69315, -1.0, -0.59453]])
OLD = torch.full((1, 3), -1.0)
ADVANTAGES = torch.tensor([[1.0, -1.0, 2.0]])
ALL = torch.ones(1, 3)


def close(found, expected, digits):
    """The tensor holds the numbers, each to the digits behind the point that are printed."""
    torch.testing.assert_close(
        found, torch.tensor(expected).to(found), rtol=0, atol=0.5 * 10**-digits + 1e-6
    )


# ------------------------------------------------------------------------------------- the loss


# Each: log-probs, old log-probs, advantages, level, the loss of each token and of all,
# and how many tokens are clipped from above. None is from below.
CLIPPED = [
    # NeMo-RL, test_loss_functions.py, test_clipped_pg_loss_ppo_clipping
    (LOGPROBS, OLD, ADVANTAGES, "token", [[-0.5, 1.0, -2.4]], -0.6333, 1),
    # test_clipped_pg_loss_gspo: one ratio of 0.9086
    (LOGPROBS, OLD, ADVANTAGES, "sequence", [[-0.9086, 0.9086, -1.8171]], -0.6057, 0),
    # test_clipped_pg_loss_gspo_batch_size_2: ratios of 0.9086 and 2.4697
    (
        LOGPROBS.repeat(2, 1),
        torch.tensor([[-1.0], [-2.0]]).expand(2, 3),
        ADVANTAGES.repeat(2, 1),
        "sequence",
        [[-0.9086, 0.9086, -1.8171], [-1.2000, 2.4697, -2.4000]],
        -0.4912,
        2,
    ),
]


@pytest.mark.parametrize("logprobs, old, advantages, level, tokens, loss, clipped", CLIPPED)
def test_ppo_clip(logprobs, old, advantages, level, tokens, loss, clipped):
    given = logprobs, old, advantages, torch.ones_like(logprobs)
    close(token_losses(*given, level=level), tokens, 4)
    for aggregation in ("token", "sequence"):  # the same, as all rows are as long
        found = ppo_clip_loss(*given, importance_sampling_level=level, aggregation=aggregation)
        close(found.loss, loss, 4)
    assert found.clipped_low == 0
    assert found.clipped_high == clipped


def test_ppo_clip_has_no_second_bound_for_negative_advantages():
    """NeMo-RL, test_clipped_pg_loss_dual_clip; SkyRL, test_losses.py, test_policy_loss_dual_clip.

    The value before their dual clip, which this project does not have: 40 instead of 12.
    """
    logprobs, old = torch.tensor([[-1.69315, -1.0, -0.69741]]), torch.tensor([[-1.0, -1.0, -3.0]])
    found = token_losses(logprobs, old, torch.tensor([[1.0, -1.0, -4.0]]), ALL)
    torch.testing.assert_close(found, torch.tensor([[-0.5, 1.0, 40.0]]), rtol=1e-3, atol=0)


def test_kl_penalty():
    """NeMo-RL, test_clipped_pg_loss_kl_penalty: k3 with a coefficient of 0.1."""
    kl = kl_penalty(torch.tensor([[0.0, -1.0, -2.0]]), OLD)
    close(kl, [[0.368, 0.0, 0.718]], 3)
    close(kl.mean(), 0.362, 3)
    close((0.1 * token_weights(ALL, "sequence") * kl).sum(), 0.0362, 4)


# Each: aggregation, the longest completion, values of the tokens, mask, what they come to.
REDUCTIONS = [
    ("token", 3, [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [[1, 1, 0], [1, 1, 1]], 3.6),
    ("token", 2, [[1.0, 2.0]], [[0, 0]], 0.0),
    ("sequence", 2, [[1.0, 2.0], [3.0, 4.0]], [[1, 1], [1, 0]], 2.25),
    ("constant", 10, [[2.0, 3.0], [9.0, 12.0]], [[1, 1], [1, 0]], 0.7),
]


@pytest.mark.parametrize(("aggregation", "longest", "values", "mask", "expected"), REDUCTIONS)
def test_aggregation(aggregation, longest, values, mask, expected):
    """SkyRL, test_ppo_utils.py, TestApplyLossReductionToAdvantagesMinibatch.

    Their token_mean, sequence_mean and seq_mean_token_sum_norm.
    """
    weights = token_weights(torch.tensor(mask).float(), aggregation, longest)
    assert (weights * torch.tensor(values)).sum().item() == pytest.approx(expected, rel=1e-6)


# Each: the cap, log-probs of the old policy, those of the sampler, and the truncated weights.
TRUNCATED = [
    # NeMo-RL, test_clipped_pg_loss_on_policy_truncated_importance_sampling
    (0.8, [-1.0, -1.0, -1.0], [-0.5, -1.5, -0.8], [0.6065, 0.8, 0.8], 4),
    # SkyRL, test_off_policy_correction.py, test_compute_tis_ratio_token_level
    (2.0, [-1.0, -1.5, -0.5], [-1.5, -1.0, -1.5], [1.6487, 0.6065, 2.0], 4),
    # verl, test_rollout_corr.py, the token weights of its mask mode
    (2.0, [-2.0, -2.0, -2.0], [-1.0, -2.5, -2.5], [0.368, 1.649, 1.649], 3),
]


def correction(cap, old, sampled):
    batch = SimpleNamespace(
        token_weights=ALL.clone(),
        sampler=SimpleNamespace(cap=cap),
        old_logprobs=torch.zeros(1, 3),
        sampled_logprobs=torch.tensor([sampled]),
    )
    Batch.set_old_logprobs(batch, [0], torch.tensor([old]))
    return batch.token_weights


@pytest.mark.parametrize(("cap", "old", "sampled", "expected", "digits"), TRUNCATED)
def test_truncated_importance_weights(cap, old, sampled, expected, digits):
    close(correction(cap, old, sampled), [expected], digits)


def test_truncated_importance_weights_in_the_loss():
    """NeMo-RL, the same test: the loss with a cap of 0.8."""
    weighted = correction(0.8, [-1.0, -1.0, -1.0], [-0.5, -1.5, -0.8])
    loss = weighted * token_losses(LOGPROBS, OLD, ADVANTAGES, ALL)
    close(loss, [[-0.3033, 0.8, -1.92]], 4)
    close((token_weights(ALL, "token") * loss).sum(), -0.4744, 4)


# ------------------------------------------------------------------------------------ advantages

GRPO_COPIES = {
    "grpo": grpo_advantage,
    "agrae": agrae.grpo_advantage,
    "cwgrpo": cwgrpo.grpo_advantage,
}
# Each: rewards of groups, and advantages. The standard deviation is divided by G - 1 there.
NORMED = [
    # NeMo-RL, test_grpo.py, test_grpo_advantage_estimator_zero_std
    ([[2.0, 2.0], [1.0, 3.0]], [[0.0, 0.0], [-0.7071, 0.7071]]),
    # test_grpo_advantage_estimator_zero_std_and_zero_advantage
    ([[5.0, 5.0, 5.0, 5.0]], [[0.0, 0.0, 0.0, 0.0]]),
    # test_grpo_advantage_estimator_small_nonzero_std
    ([[1.0, 1.01]], [[-0.7071, 0.7071]]),
    # verl, test_groupwise.py, test_group_mean_std_simple: mean 2, standard deviation sqrt(2)
    ([[1.0, 3.0]], [[(1 - 2) / math.sqrt(2), (3 - 2) / math.sqrt(2)]]),
]


@pytest.mark.parametrize("name", GRPO_COPIES)
@pytest.mark.parametrize(("rewards", "expected"), NORMED)
def test_grpo_advantage(name, rewards, expected):
    rewards = torch.tensor(rewards)
    size = rewards.shape[1]
    close(GRPO_COPIES[name](rewards) * math.sqrt((size - 1) / size), expected, 4)


@pytest.mark.parametrize("name", GRPO_COPIES)
def test_advantage_without_the_standard_deviation(name):
    """SkyRL, test_ppo_utils.py, test_compute_grpo_outcome_advantage_norm_std_false."""
    rewards = torch.tensor([[6.0, 3.0], [9.0, 12.0]])
    found = GRPO_COPIES[name](rewards, scale_rewards=False)
    assert found.tolist() == [[1.5, -1.5], [-1.5, 1.5]]


# Each: rewards of groups, and MaxRL's advantages.
MAXRL = [
    # SkyRL, test_compute_maxrl_advantage
    ([[6.0, 3.0], [9.0, 12.0]], [[1.5 / 4.5, -1.5 / 4.5], [-1.5 / 10.5, 1.5 / 10.5]]),
    # prime-rl, test_advantage.py, test_max_rl_mean_normalized
    ([[1.0, 0.0, 0.0, 0.0]], [[3.0, -1.0, -1.0, -1.0]]),
    ([[0.0, 0.0], [1.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]]),
]


@pytest.mark.parametrize(("rewards", "expected"), MAXRL)
def test_maxrl_weight(rewards, expected):
    close(maxrl(torch.tensor(rewards)), expected, 5)


# -------------------------------------------------------------------------- Stanford's CS336

# stanford-cs336/assignment5-alignment at eb2c562: the inputs that tests/conftest.py draws, and
# what tests/_snapshots holds of test_grpo.py. The old log-probs are twice the log-probs there.
CS336_LOGPROBS = torch.tensor(
    [
        [1.92692, 1.48728, 0.90072, -2.10552, -0.75813, 1.07832, 0.80080, 1.68062, 0.35586,
         -0.68662],
        [-0.49336, 0.24149, -0.23162, 0.04176, -0.25158, 0.85986, -0.30973, -0.39571, 0.80341,
         -0.62160],
    ]
)  # fmt: skip
CS336_ADVANTAGES = torch.tensor([[-0.0163673], [0.0163674]])
CS336_MASK = torch.tensor([[1, 1, 0, 1, 0, 1, 0, 1, 1, 0], [1, 1, 1, 1, 1, 0, 1, 1, 0, 1]])
CS336_LOSSES = {  # by epsilon, in thousandths
    0.1: [
        [14.73, 14.73, 14.73, 134.40, 34.93, 14.73, 14.73, 14.73, 14.73, 32.52],
        [-18.00, -12.86, -18.00, -15.70, -18.00, -6.93, -18.00, -18.00, -7.33, -18.00],
    ],
    0.5: [
        [8.18, 8.18, 8.18, 134.40, 34.93, 8.18, 8.18, 8.18, 11.47, 32.52],
        [-24.55, -12.86, -20.63, -15.70, -21.05, -6.93, -22.31, -24.31, -7.33, -24.55],
    ],
    10.0: [
        [2.38, 3.70, 6.65, 134.40, 34.93, 5.57, 7.35, 3.05, 11.47, 32.52],
        [-26.81, -12.86, -20.63, -15.70, -21.05, -6.93, -22.31, -24.31, -7.33, -30.47],
    ],
}


@pytest.mark.parametrize("epsilon", CS336_LOSSES)
def test_cs336_grpo_clip(epsilon):
    """test_compute_grpo_clip_loss and test_compute_policy_gradient_loss_grpo_clip."""
    given = CS336_LOGPROBS, 2 * CS336_LOGPROBS, CS336_ADVANTAGES, torch.ones(2, 10)
    close(1000 * token_losses(*given, epsilon), CS336_LOSSES[epsilon], 2)


def test_cs336_microbatch_train_step():
    """test_grpo_microbatch_train_step_grpo_clip: two such microbatches make an update."""
    logprobs = CS336_LOGPROBS.clone().requires_grad_()
    given = logprobs, 2 * CS336_LOGPROBS, CS336_ADVANTAGES, CS336_MASK.float(), 0.1
    loss = ppo_clip_loss(*given).loss / 2
    close(loss, 0.00440, 5)
    loss.backward()
    slopes = torch.zeros(2, 10)
    slopes[0, 3], slopes[1, 1], slopes[1, 3] = 0.00560, -0.00040, -0.00049
    close(logprobs.grad, slopes.tolist(), 5)


def test_cs336_group_normalized_rewards():
    """Both tests of that name: with the standard deviation, divided by G - 1, and without it."""
    rewards = torch.tensor([[0.2, 0.5, 0.0, 0.4], [0.9, 0.7, 0.2, 0.0]])
    centred = [[-0.075, 0.225, -0.275, 0.125], [0.45, 0.25, -0.25, -0.45]]
    close(grpo_advantage(rewards, scale_rewards=False), centred, 5)
    normed = [[-0.33824, 1.01472, -1.24021, 0.56373], [1.07062, 0.59479, -0.59479, -1.07062]]
    close(grpo_advantage(rewards) * math.sqrt(3 / 4), normed, 4)  # 1e-6 is added to theirs
