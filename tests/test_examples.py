"""studies/examples/: five papers, each in a copy of grpo.py with at most 15 changed lines."""

import difflib
import importlib.util
import math

import pytest
import torch
from runs import ROOT, assert_finite, first_fast, steps

FOLDER = ROOT / "studies" / "examples"
# Each example, and the function that its paper is.
EXAMPLES = {
    "rloo": "rloo_advantage",
    "maxrl": "maxrl_advantage",
    "cispo": "cispo",
    "icepop": "icepop",
    "overlong": "soft_overlong",
}


def load(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def close(found, expected, rel=1e-6):
    torch.testing.assert_close(found, torch.tensor(expected).to(found), rtol=rel, atol=1e-6)


def test_all_examples_are_here():
    assert sorted(file.stem for file in FOLDER.glob("*.py")) == sorted(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_at_most_15_lines_differ_from_grpo(name):
    """A line in place of another counts once; where this fails, carry over what grpo.py changed."""
    grpo = (ROOT / "grpo.py").read_text().splitlines()
    own = (FOLDER / f"{name}.py").read_text().splitlines()
    changes = difflib.SequenceMatcher(a=grpo, b=own, autojunk=False).get_opcodes()
    changed = sum(max(i2 - i1, j2 - j1) for kind, i1, i2, j1, j2 in changes if kind != "equal")
    assert 0 < changed <= 15


@pytest.mark.parametrize("name", first_fast(EXAMPLES))
def test_an_example_trains_by_its_own_function(name, run, monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    module = importlib.import_module(name)
    function, results = getattr(module, EXAMPLES[name]), []

    def recorded(*given):
        results.append(function(*given))
        return results[-1]

    monkeypatch.setattr(module, EXAMPLES[name], recorded)
    result = run(name)
    assert result.code == 0, result.err
    assert steps("run") == [1, 2]
    assert_finite("run")
    # advantages are taken once a step, what is in the loss once a microbatch or more often
    assert len(results) >= 2


# ------------------------------------------------------------------------------------------ RLOO


def test_rloo_by_hand():
    """r_i - 1/(k-1) sum of the other r_j with k = 4."""
    rloo = load("rloo").rloo_advantage
    found = rloo(torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 1.0], [1.0, 1.0, 1.0, 1.0]]))
    third = 1 / 3
    close(found, [[1.0, -third, -third, -third], [third, third, -1.0, third], [0.0] * 4])


def test_rloo_by_the_numbers_of_others():
    rloo = load("rloo").rloo_advantage
    # SkyRL, test_ppo_utils.py, test_compute_rloo_outcome_advantage_basic
    close(rloo(torch.tensor([[6.0, 3.0], [9.0, 12.0]])), [[3.0, -3.0], [-3.0, 3.0]])
    # NeMo-RL, test_utils.py, test_calculate_baseline_and_std_per_prompt_basic: its baselines
    rewards = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    close(rewards - rloo(rewards), [[2.5, 2.0, 1.5], [5.5, 5.0, 4.5]])


# ----------------------------------------------------------------------------------------- MaxRL


def test_maxrl_by_hand():
    maxrl = load("maxrl").maxrl_advantage
    # prime-rl, test_advantage.py, test_max_rl_mean_normalized
    close(maxrl(torch.tensor([[1.0, 0.0, 0.0, 0.0]])), [[3.0, -1.0, -1.0, -1.0]])
    close(maxrl(torch.tensor([[0.0, 0.0], [1.0, 1.0]])), [[0.0, 0.0], [0.0, 0.0]])
    # SkyRL, test_ppo_utils.py, test_compute_maxrl_advantage
    expected = [[1.5 / 4.5, -1.5 / 4.5], [-1.5 / 10.5, 1.5 / 10.5]]
    close(maxrl(torch.tensor([[6.0, 3.0], [9.0, 12.0]])), expected)


@pytest.mark.parametrize("success_rate", [0.05, 0.3, 0.9])
def test_maxrl_climbs_the_truncated_likelihood(success_rate):
    """The paper's theorem: the estimate's mean is the gradient of - sum_k (1 - p)^k / k.

    Its sum goes up to k = G - 1, because a group without success gets 0 here, and keeps a baseline
    there. p is the logistic function of one parameter, so that d log pi is 1 - p for a success and
    -p for a failure; all numbers of successes are gone through.
    """
    maxrl, size, p = load("maxrl").maxrl_advantage, 6, success_rate
    mean = 0.0
    for count in range(size + 1):
        rewards = torch.tensor([[1.0] * count + [0.0] * (size - count)], dtype=torch.float64)
        score = rewards - p  # d log pi
        chance = math.comb(size, count) * p**count * (1 - p) ** (size - count)
        mean += chance * (maxrl(rewards) * score).mean().item()
    slope = p * (1 - p)  # of p in the parameter
    expected = sum((1 - p) ** (k - 1) for k in range(1, size)) * slope
    assert mean == pytest.approx(expected, rel=1e-12)


# ----------------------------------------------------------------------------------------- CISPO


def test_cispo_by_hand():
    """SkyRL, test_losses.py, test_policy_loss_cispo: ratios of 0.5, 1 and 10."""
    logprobs = torch.tensor([[-1.69315, -1.0, -0.69741]])
    ratio = (logprobs - torch.tensor([[-1.0, -1.0, -3.0]])).exp()
    advantages = torch.tensor([[1.0, -1.0, -4.0]])
    found = load("cispo").cispo(ratio, logprobs, advantages, 0.2, None)
    close(-found.objective, [[1.35452, -1.0, -3.347568]], rel=1e-5)
    assert -found.objective.sum().item() == pytest.approx(-2.9930, abs=1e-4)
    assert found.low.tolist() == [[True, False, False]]
    assert found.high.tolist() == [[False, False, True]]


def test_cispo_clips_the_weight_and_not_the_token():
    """d objective / d log pi is the clipped ratio times A, also where PPO has none."""
    old = torch.full((1, 4), -1.0, dtype=torch.float64)
    ratios = torch.tensor([[0.5, 1.0, 1.1, 3.0]], dtype=torch.float64)
    logprobs = (old + ratios.log()).requires_grad_()
    advantages = torch.tensor([[-2.0, 1.0, -1.0, 5.0]], dtype=torch.float64)
    ratio = (logprobs - old).exp()
    load("cispo").cispo(ratio, logprobs, advantages, 1.0, 0.3).objective.sum().backward()
    close(logprobs.grad, [[0.5 * -2, 1.0, -1.1, 1.3 * 5]])


# ---------------------------------------------------------------------------------------- IcePop

# Each: the bounds, log-probs of the old policy, those of the sampler, and M(k).
MASKED = [
    # the paper's bounds; NeMo-RL, test_clipped_pg_loss_icepop_importance_sampling
    (0.5, 5.0, [-1.0, -1.0, -1.0], [-0.5, -3.5, -0.8], [0.6065, 0.0, 0.8187]),
    # SkyRL, test_off_policy_correction.py, test_compute_token_mask_*: what is kept there
    (0.5, 2.0, [-1.0, -1.0, -1.0], [-1.0, -1.0, -3.0], [1.0, 1.0, 0.0]),
    (0.5, 2.0, [-1.0, -1.0, -3.0], [-1.0, -1.0, -1.0], [1.0, 1.0, 0.0]),
    (0.5, 2.0, [0.0, 0.0, 0.0], [-math.log(0.5), -math.log(2.0), 0.0], [0.5, 2.0, 1.0]),
]


@pytest.mark.parametrize(("low", "high", "old", "sampled", "expected"), MASKED)
def test_icepop_by_hand(low, high, old, sampled, expected):
    found = load("icepop").icepop(torch.tensor([old]), torch.tensor([sampled]), low, high)
    close(found, [expected], rel=1e-4)


def test_icepop_has_the_bounds_of_the_paper():
    config = load("icepop").Config()
    assert (config.icepop_low, config.icepop_high) == (0.5, 5.0)


# ------------------------------------------------------------------------ soft overlong punishment


def test_soft_overlong_by_hand():
    """DAPO's own lengths: 16,384 tokens are expected, and 4,096 more are the cache."""
    lengths = torch.tensor([[1.0, 16384.0, 17408.0, 18432.0, 20480.0, 20481.0]])
    found = load("overlong").soft_overlong(lengths, 20480, 4096)
    assert found.tolist() == [[0.0, 0.0, -0.25, -0.5, -1.0, -1.0]]


def test_soft_overlong_by_the_numbers_of_others():
    """NeMo-RL, test_reward_functions.py, test_reward_shaping_with_penalties: half a reward at most.

    Their fourth completion, which is longer than the longest, has no counterpart.
    """
    rewards = torch.tensor([[1.0, 0.8, 0.6]])
    punishment = load("overlong").soft_overlong(torch.tensor([[10.0, 22.0, 25.0]]), 25, 5)
    close(rewards + 0.5 * punishment, [[1.0, 0.6, 0.1]])
