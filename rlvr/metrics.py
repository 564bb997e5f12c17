"""What is logged of a rollout. All ranks call these functions together."""

import math
import statistics

from rlvr.ranks import gather, global_max, global_sum
from rlvr.records import Sample
from rlvr.rollouts import completion_mask

import torch


def rollout_metrics(samples: list[Sample], num_generations: int) -> dict[str, float]:
    """Mean reward, shares of groups all wrong and all right, mean length, shares cut off, unread.

    Where the policy has called a tool, also the mean number of turns. All ranks call it together.
    """
    rows = [
        (s.reward, s.success, s.own_length, s.truncated, s.status, 1 + len(s.replies))
        for s in samples
    ]
    rewards, successes, lengths, truncated, statuses, turns = zip(*gather(rows), strict=True)
    starts = range(0, len(successes), num_generations)
    solved = [sum(successes[i : i + num_generations]) for i in starts]  # successes of each group
    return {
        "reward": statistics.mean(rewards),
        "all_wrong": solved.count(0) / len(solved),
        "all_right": solved.count(num_generations) / len(solved),
        "length": statistics.mean(lengths),
        "truncated": truncated.count(True) / len(truncated),
        "unparsed": statuses.count("unparsed") / len(statuses),
        "timeout": statuses.count("timeout") / len(statuses),
        **({"turns": statistics.mean(turns)} if max(turns) > 1 else {}),
    }


def sampler_mismatch(
    samples: list[Sample], logprobs: torch.Tensor, sampled: torch.Tensor
) -> dict[str, float]:
    """How far the sampler's log-probs [N, T] are from the trainer's [N, T].

    Mean |difference|, k3 estimate of the KL divergence, largest ratio. All ranks call it together.
    """
    difference = (logprobs - sampled)[completion_mask(samples, logprobs.device) > 0]  # [M]
    k3 = difference.exp() - difference - 1  # [M], of the sampler to the trainer
    size, k3, tokens = global_sum(difference.abs().sum(), k3.sum(), len(difference))
    largest = global_max(difference.max().item())
    return {
        "mismatch": size / tokens,
        "mismatch_k3": k3 / tokens,
        "mismatch_max_ratio": math.exp(largest),
    }
