"""What is logged of a rollout."""

import math

import rlvr.metrics
import rlvr.ranks
from rlvr.metrics import rollout_metrics, sampler_mismatch
from rlvr.records import Sample
from rlvr.rollouts import sampled_logprobs

import pytest
import torch


def test_rollout_metrics_by_hand():
    """Four groups of two: all wrong, all right, and twice one of each, whatever their rewards."""
    samples = [
        Sample([1], [2], reward=-1.0, status="unparsed"),
        Sample([1], [2, 3], reward=0.5, truncated=True),
        Sample([1], [2], reward=1.0, success=True),
        Sample([1], [2], reward=0.75, success=True),
        Sample([1], [2, 3, 4], reward=1.0, success=True),
        Sample([1], [2], reward=0.0, status="timeout"),
        Sample([1], [2] * 10, reward=0.0, truncated=True, status="unparsed"),
        Sample([1], [2], reward=0.75, truncated=True, success=True),
    ]
    assert rollout_metrics(samples, 2) == {
        "reward": 3 / 8,
        "all_wrong": 1 / 4,
        "all_right": 1 / 4,
        "length": 20 / 8,
        "truncated": 3 / 8,
        "unparsed": 2 / 8,
        "timeout": 1 / 8,
    }


def test_sampler_mismatch_by_hand():
    """The trainer's log-probs less the sampler's are 0.1 and -0.4, and 0.3 in the second row."""
    samples = [Sample([1], [5, 6], logprobs=[-1.0, -2.0]), Sample([1], [7], logprobs=[-0.5])]
    sampled = sampled_logprobs(samples, "cpu")
    logprobs = torch.tensor([[-0.9, -2.4], [-0.2, 9.0]])  # the 9.0 is padding
    mismatch = sampler_mismatch(samples, logprobs, sampled)
    k3 = sum(math.exp(d) - 1 - d for d in (0.1, -0.4, 0.3)) / 3
    expected = {"mismatch": 0.8 / 3, "mismatch_k3": k3, "mismatch_max_ratio": math.exp(0.3)}
    assert mismatch == pytest.approx(expected, rel=1e-4)


def test_metrics_are_those_of_all_ranks(monkeypatch):
    """This rank has a wrong group, with a difference of 0.1; the other one has a right group."""
    right = (1.0, True, 3, False, "", 1)  # reward, success, length, cut off, status, turns
    monkeypatch.setattr(rlvr.metrics, "gather", lambda mine: mine + [right] * 2)
    metrics = rollout_metrics([Sample([1], [2])] * 2, 2)
    of_both = {"reward": 0.5, "all_wrong": 0.5, "all_right": 0.5, "length": 2}
    assert {name: metrics[name] for name in of_both} == of_both

    # of the other rank: sum of |difference|, sum of k3, tokens; and the largest difference
    sums, largest = [0.5, 0.25, 3], 0.7
    monkeypatch.setattr(
        rlvr.ranks,
        "gather",
        lambda mine: [*mine, sums if isinstance(mine[0], list) else largest],
    )
    samples = [Sample([1], [5], logprobs=[-1.0])]
    mismatch = sampler_mismatch(samples, torch.tensor([[-0.9]]), sampled_logprobs(samples, "cpu"))
    expected = {
        "mismatch": (0.1 + 0.5) / 4,
        "mismatch_k3": (math.exp(0.1) - 1 - 0.1 + 0.25) / 4,
        "mismatch_max_ratio": math.exp(0.7),
    }
    assert mismatch == pytest.approx(expected, rel=1e-4)
