"""grpo.py: its advantages, and that a minibatch's gradient does not depend on how it is cut up."""

import copy
import dataclasses
import math
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import rlvr.run
from rlvr import world
from rlvr.config import Config
from rlvr.logprobs import microbatches
from rlvr.records import Sample
from rlvr.rollouts import completion_mask
from rlvr.tasks.countdown import make_countdown
from rlvr.tiny import build_tiny

import pytest
import torch
from losses import ppo_clip_loss
from runs import ENVIRONMENT, ROOT, free_port

import common
import grpo

LEVELS = ("token", "sequence")
AGGREGATIONS = ("sequence", "token", "constant")


# ------------------------------------------------------------------------------------ variants


@pytest.mark.parametrize(
    "variant, clipped",
    [
        ("gspo", [1.0004, 1.0004, 0.9, -1.1, -0.9997, -0.9997]),
        ("two-stage-gspo", [1.1, 1.2, 0.9, -1.1, -0.9, -0.8]),
    ],
)
def test_the_two_clip_ranges_of_gspo_by_hand(variant, clipped):
    """GSPO's own 3e-4 and 4e-4, and the 0.2 that two-stage dynamics prints."""
    config = grpo.Config(**grpo.VARIANTS[variant])
    ratio = torch.tensor([[1.1], [1.3], [0.9], [1.1], [0.9], [0.7]], dtype=torch.float64)
    signs = torch.tensor([[1.0], [1], [1], [-1], [-1], [-1]], dtype=torch.float64)
    found = common.ppo_clip(ratio, signs, config.epsilon, config.epsilon_high).objective
    assert found.flatten().tolist() == pytest.approx(clipped, abs=1e-12)
    assert config.importance_sampling_level == "sequence"


# ------------------------------------------------------------------------------------ advantages


@pytest.mark.parametrize(
    "rewards, scaled, unscaled",
    [
        # G = 2: the population's std is 1/2; Bessel's would give 1/sqrt(2)
        ([1, 0], [1, -1], [1 / 2, -1 / 2]),
        ([0, 1], [-1, 1], [-1 / 2, 1 / 2]),
        # p = 1/4: sqrt(q / p), -sqrt(p / q)
        ([1, 0, 0, 0], [3**0.5, *[-1 / 3**0.5] * 3], [3 / 4, *[-1 / 4] * 3]),
        ([1, 1, 0, 1], [*[1 / 3**0.5] * 2, -(3**0.5), 1 / 3**0.5], [1 / 4, 1 / 4, -3 / 4, 1 / 4]),
        ([1, 0, 1, 0], [1, -1, 1, -1], [1 / 2, -1 / 2, 1 / 2, -1 / 2]),
        ([0, 1, 2], [-(1.5**0.5), 0, 1.5**0.5], [-1, 0, 1]),  # rewards beside 0 and 1: variance 2/3
        ([-1, 3], [-1, 1], [-2, 2]),
        ([0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]),  # p = 0
        ([1, 1, 1, 1], [0, 0, 0, 0], [0, 0, 0, 0]),  # p = 1
        ([0], [0], [0]),  # G = 1
        ([1], [0], [0]),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_grpo_advantage(rewards, scaled, unscaled, dtype):
    rewards = torch.tensor([rewards], dtype=dtype)
    tolerance = 1e-6 if dtype == torch.float32 else 1e-14
    for scale_rewards, expected in ((True, scaled), (False, unscaled)):
        got = grpo.grpo_advantage(rewards, scale_rewards)
        expected = torch.tensor([expected], dtype=dtype)  # of the same dtype
        torch.testing.assert_close(got, expected, rtol=0, atol=tolerance)


def test_groups_are_judged_apart():
    rewards = torch.tensor([[1, 0, 0, 0], [1, 1, 1, 1], [1, 1, 0, 1]], dtype=torch.float64)
    whole = grpo.grpo_advantage(rewards)
    apart = torch.cat([grpo.grpo_advantage(row[None]) for row in rewards])
    torch.testing.assert_close(whole, apart, rtol=0, atol=1e-14)


@pytest.mark.parametrize("scale_rewards", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("reward", [0.7, 0.1, 1 / 3, -2.3, 1e-8, 12345.678])
def test_equal_rewards_get_exactly_zero(reward, dtype, scale_rewards):
    """Their mean and std can be off by a rounding error.

    The quotient of two rounding errors is of order 1.
    """
    for size in range(1, 65):
        rewards = torch.full((2, size), reward, dtype=dtype)
        assert (grpo.grpo_advantage(rewards, scale_rewards) == 0).all()


@pytest.mark.parametrize("size", [2, 3, 8, 16])
def test_advantages_of_a_mixed_group_have_mean_0_and_variance_1(size):
    torch.manual_seed(0)
    advantages = grpo.grpo_advantage(torch.rand(5, size, dtype=torch.float64))
    zeros, ones = torch.zeros(5, dtype=torch.float64), torch.ones(5, dtype=torch.float64)
    torch.testing.assert_close(advantages.sum(1), zeros, rtol=0, atol=1e-12)
    torch.testing.assert_close(advantages.square().mean(1), ones, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(5,), (1, 5), (5, 1)])
def test_negative_only(shape, dtype):
    advantages = torch.tensor([-1.5, 0.0, 2.0, -0.0, -1e-30], dtype=dtype).view(shape)
    expected = torch.tensor([-1.5, 0, 0, 0, -1e-30], dtype=dtype).view(shape)
    torch.testing.assert_close(grpo.negative_only(advantages), expected, rtol=0, atol=0)


# --------------------------------------------------------------------------------------- presets


@pytest.mark.parametrize("name", grpo.VARIANTS)
def test_presets_are_flags(name):
    names = {field.name for field in dataclasses.fields(grpo.Config)}
    assert set(grpo.VARIANTS[name]) <= names
    config = grpo.Config(variant=name, **grpo.VARIANTS[name])
    assert grpo.VARIANTS[name].items() <= vars(config).items()


def test_presets_change_what_the_papers_change():
    defaults = vars(grpo.Config())
    changed = {}
    for name, preset in grpo.VARIANTS.items():
        flags = vars(grpo.Config(**preset))
        changed[name] = {flag for flag, value in flags.items() if value != defaults[flag]}
    gspo = {"importance_sampling_level", "epsilon", "epsilon_high"}
    two_stage = {"beta", "entropy_coef"}
    assert changed == {
        "grpo": set(),
        "dr-grpo": {"scale_rewards", "aggregation"},
        "dapo": {"epsilon_high", "aggregation", "dynamic_sampling"},
        "gspo": gspo,
        "grpo-n": {"negatives_only"},
        "gspo-n": {"negatives_only", *gspo},
        "two-stage-grpo": two_stage,
        "two-stage-grpo-n": {"negatives_only", *two_stage},
        "two-stage-gspo": {"importance_sampling_level", *two_stage},
        "two-stage-gspo-n": {"importance_sampling_level", "negatives_only", *two_stage},
    }


# ----------------------------------------------------------------- the loss, from its definition


def loss_in_plain_python(
    logprobs, old_logprobs, advantages, mask, low, high, level, aggregation, max_length
):
    """The definition, a token at a time, with floats only."""
    total, N = 0.0, len(mask)
    all_tokens = sum(map(sum, mask))
    for i in range(N):
        tokens = [t for t in range(len(mask[i])) if mask[i][t]]
        differences = {t: logprobs[i][t] - old_logprobs[i][t] for t in tokens}
        divisors = {
            "sequence": N * len(tokens),
            "token": all_tokens,
            "constant": N * max_length,
        }
        for t in tokens:
            log_ratio = differences[t]
            if level == "sequence":
                log_ratio = sum(differences.values()) / len(tokens)
            ratio = math.exp(log_ratio)
            clipped = min(max(ratio, 1 - low), 1 + high)
            advantage = advantages[i][t] if isinstance(advantages[i], list) else advantages[i]
            total -= min(ratio * advantage, clipped * advantage) / divisors[aggregation]
    return total


@pytest.mark.parametrize("by_token", [False, True])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("high", [None, 0.28])
def test_the_loss_in_plain_python(high, level, aggregation, by_token):
    for seed in range(5):
        torch.manual_seed(seed)
        old_logprobs = -torch.rand(6, 9, dtype=torch.float64)
        logprobs = old_logprobs + 0.5 * torch.randn(6, 9, dtype=torch.float64)
        advantages = torch.randn((6, 9) if by_token else 6, dtype=torch.float64)
        lengths = torch.tensor([9, 1, 4, 0, 7, 3])  # one row is masked entirely
        mask = (torch.arange(9) < lengths[:, None]).double()
        inputs = logprobs, old_logprobs, advantages, mask
        got = ppo_clip_loss(*inputs, 0.2, high, level, aggregation, 12).loss
        floats = [tensor.tolist() for tensor in inputs]
        expected = loss_in_plain_python(*floats, 0.2, high or 0.2, level, aggregation, 12)
        assert got.item() == pytest.approx(expected, abs=1e-12)


# ------------------------------------------------------------- one microbatch and many of them


def make_minibatch(tokenizer, count=12):
    """Rollouts of different lengths, advantages of both signs, and a mask without row 5."""
    rng = random.Random(0)
    samples = []
    for i in range(count):
        problem, solution = make_countdown(rng, 2 + i % 3)
        completion = tokenizer.encode(solution + tokenizer.eos_token)[: rng.randint(3, 60)]
        prompt = tokenizer.encode(problem.prompt)
        samples.append(Sample(prompt, completion, truncated=i == 5))
    advantages = torch.tensor([rng.gauss(0, 1) for _ in samples], dtype=torch.float64)
    return samples, advantages, completion_mask(samples, "cpu", skip_truncated=True)


def clip_loss(logprobs, old_logprobs, advantages, mask, weights, config):
    """The loss of a microbatch, as the scripts write it."""
    ratio = common.importance_ratio(logprobs, old_logprobs, mask, config.importance_sampling_level)
    clipped = common.ppo_clip(ratio, advantages[:, None], config.epsilon, config.epsilon_high)
    return -(weights * clipped.objective).sum()


def accumulated_gradient(policy, config, minibatch, old_logprobs, ref_logprobs, budget):
    """What the training loop adds up in `grad` over the microbatches of a minibatch.

    Beside it, the number of microbatches and the loss.
    """
    samples, advantages, mask = minibatch
    policy.zero_grad()
    weights = common.token_weights(mask, config.aggregation, config.max_completion_length)
    parts = microbatches(samples, range(len(samples)), budget)
    total = 0.0
    for rows in parts:
        logprobs, entropy = common.token_logprobs(policy, samples, rows, config.temperature)
        loss = clip_loss(
            logprobs, old_logprobs[rows], advantages[rows], mask[rows], weights[rows], config
        )
        kl = common.kl_penalty(logprobs, ref_logprobs[rows])
        loss = loss + (weights[rows] * (config.beta * kl - config.entropy_coef * entropy)).sum()
        loss.backward()
        total += loss.item()
    gradient = torch.cat([parameter.grad.flatten() for parameter in policy.parameters()])
    policy.zero_grad()
    return gradient, len(parts), total


@pytest.fixture(scope="module")
def minibatch_in_float64(sharp):
    """The policy, a minibatch, and log-probs of an old policy and of a reference policy."""
    policy = copy.deepcopy(sharp[0]).double()
    minibatch = make_minibatch(sharp[1])
    torch.manual_seed(0)
    with torch.no_grad():
        logprobs, _ = common.token_logprobs(policy, minibatch[0], range(12))
    old_logprobs, ref_logprobs = (logprobs + 0.3 * torch.randn_like(logprobs) for _ in range(2))
    return policy, minibatch, old_logprobs, ref_logprobs


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("level", LEVELS)
def test_one_microbatch_is_many(minibatch_in_float64, level, aggregation):
    """Weights are those of the whole minibatch.

    So the parts of its loss and of its gradient add up exactly.
    """
    policy, minibatch, old_logprobs, ref_logprobs = minibatch_in_float64
    samples, advantages, mask = minibatch
    config = Config(
        importance_sampling_level=level,
        aggregation=aggregation,
        temperature=0.9,
        beta=0.1,
        entropy_coef=0.05,
    )
    # One pass, written without weights and microbatches.
    logprobs, entropy = common.token_logprobs(policy, samples, range(12), 0.9)
    loss = ppo_clip_loss(
        logprobs, old_logprobs, advantages, mask, 0.2, None, level, aggregation, 48
    ).loss
    extra = mask * (0.1 * common.kl_penalty(logprobs, ref_logprobs) - 0.05 * entropy)  # [N, T]
    if aggregation == "sequence":
        loss = loss + (extra.sum(1) / mask.sum(1).clamp(min=1)).mean()
    else:
        loss = loss + extra.sum() / (mask.sum() if aggregation == "token" else 12 * 48)
    gradients = torch.autograd.grad(loss, list(policy.parameters()))
    expected = torch.cat([gradient.flatten() for gradient in gradients])
    assert expected.norm() > 1e-3
    counts = set()
    for budget in (1, 100, 150, 300, 10**6):
        got, count, total = accumulated_gradient(
            policy, config, minibatch, old_logprobs, ref_logprobs, budget
        )
        counts.add(count)
        assert total == pytest.approx(loss.item(), abs=1e-7)  # mask and weights are in float32
        assert (got - expected).norm() < 1e-7 * expected.norm()
    assert len(counts) == 5
    assert {1, 12} < counts


# ----------------------------------------------------------------------------- optimizer updates


def optimizer_step(policy, optimizer, max_grad_norm, loss=0.0):
    """Run.optimizer_step without a run folder."""
    config = grpo.Config(max_grad_norm=max_grad_norm)
    run = SimpleNamespace(skipped=0, skipped_in_a_row=0, config=config)
    return rlvr.run.Run.optimizer_step(run, policy, optimizer, torch.tensor(loss))


@pytest.mark.parametrize("value", [0.0, math.nan, math.inf, -math.inf])
def test_no_update_by_a_gradient_of_nothing_or_not_finite(value):
    """Adam's momentum of an update before would move the weights by itself."""
    layer = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.1)
    layer(torch.ones(1, 3)).sum().backward()
    optimizer_step(layer, optimizer, 1.0)
    before = copy.deepcopy(layer.state_dict())
    for parameter in layer.parameters():
        parameter.grad = torch.zeros_like(parameter)
    layer.weight.grad[0, 0] = value
    norm = optimizer_step(layer, optimizer, 1.0)
    assert norm == abs(value) or math.isnan(norm) and math.isnan(value)
    assert all(torch.equal(after, before[name]) for name, after in layer.state_dict().items())
    assert all(parameter.grad is None for parameter in layer.parameters())


# --------------------------------------------------------------------- two ranks and one process


def train_two_steps(tokenizer, policy, rows):
    """Two optimizer steps on this process's rows of the minibatch -> norms and weights.

    For each aggregation there are the norms of both steps, and the weights after them. It is plain
    SGD, as Adam would hide a gradient of the wrong scale. The second step's gradient is scaled
    down.
    """
    samples, advantages, mask = make_minibatch(tokenizer)
    samples, advantages, mask = [samples[i] for i in rows], advantages[rows], mask[rows]
    longest = max(len(sample.completion_ids) for sample in samples)
    mask = mask[:, :longest]  # ranks differ in their width
    results = []
    for aggregation, level in zip(AGGREGATIONS, ("token", "sequence", "token"), strict=True):
        config = Config(aggregation=aggregation, importance_sampling_level=level)
        trained = copy.deepcopy(policy)
        optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
        with torch.no_grad():
            old_logprobs, _ = common.token_logprobs(trained, samples, range(len(samples)))
        for max_grad_norm in (1e6, 1e-2):
            weights = common.token_weights(mask, aggregation, config.max_completion_length)
            for part in microbatches(samples, range(len(samples)), 150):
                logprobs, _ = common.token_logprobs(trained, samples, part)
                clip_loss(
                    logprobs,
                    old_logprobs[part],
                    advantages[part],
                    mask[part],
                    weights[part],
                    config,
                ).backward()
            results.append(torch.tensor(optimizer_step(trained, optimizer, max_grad_norm)))
        results.append(
            torch.cat([parameter.detach().flatten() for parameter in trained.parameters()])
        )
    return results


def rows_by_length(tokenizer):
    """The rows of the minibatch, the long ones last."""
    samples, _, _ = make_minibatch(tokenizer)
    return sorted(range(len(samples)), key=lambda i: len(samples[i].completion_ids))


@pytest.mark.slow
def test_two_ranks_equal_one_process(sharp, tmp_path):
    """Each rank takes a half. One has many more tokens, so that no half's own mean would do.

    tests/test_ranks.py shows the same of whole runs.
    """
    policy, tokenizer = copy.deepcopy(sharp[0]).double(), sharp[1]
    torch.save(policy.state_dict(), tmp_path / "start.pt")
    settings = {
        **ENVIRONMENT,
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": free_port(),
        "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}",
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, str(tmp_path)],
            env={**settings, "RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        # meanwhile, in this process
        expected = train_two_steps(tokenizer, policy, rows_by_length(tokenizer))
        for rank in ranks:
            _, errors = rank.communicate(timeout=120)
            assert rank.returncode == 0, errors
    finally:
        for rank in ranks:
            rank.kill()
    for rank in range(2):
        got = torch.load(tmp_path / f"{rank}.pt")
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)
    start = torch.cat([parameter.detach().flatten() for parameter in policy.parameters()])
    for i in range(len(AGGREGATIONS)):
        first_norm, second_norm, weights = expected[3 * i : 3 * i + 3]
        assert 1e-2 < first_norm < 1e6  # only the second one was scaled down
        assert second_norm > 1e-2
        # lr times the first gradient, and at most lr * 1e-2 by the second one
        moved = (weights - start).norm().item()
        assert moved == pytest.approx(0.1 * first_norm.item(), abs=0.1 * 1e-2)


def run_rank(folder):
    """One of the two ranks, in a process of its own."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    policy, tokenizer = build_tiny()
    policy = policy.double()
    policy.load_state_dict(torch.load(folder / "start.pt"))
    rows = rows_by_length(tokenizer)
    half = rows[:6] if world.RANK == 0 else rows[6:]
    torch.save(train_two_steps(tokenizer, policy, half), folder / f"{world.RANK}.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    run_rank(Path(sys.argv[1]))
