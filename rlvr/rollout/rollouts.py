"""Metrics of a rollout, and whether prompts and completions fit into the context."""

import math
import statistics
import sys

from rlvr.errors import UserError
from rlvr.machine import gather, global_max, global_sum
from rlvr.tasks import Problem, Sample, prompt_lengths, that_fit

ENDED = {"memory", "crash"}  # statuses of completions that have ended their grader


def is_mixed(group: list[Sample]) -> bool:
    """Return whether some completions of a group are successes and some are not."""
    return 0 < sum(sample.success for sample in group) < len(group)


def rollout_metrics(samples: list[Sample], num_generations: int) -> dict[str, float]:
    """Return statistics of rewards and lengths, and shares of groups and of completions.

    The shares are of groups that are all wrong or all right, and of completions that are truncated,
    unparsed or timed out. If the policy has called a tool, the mean number of turns is added. All
    ranks call it together.
    """
    rows = [
        (s.reward, s.success, s.own_length, s.truncated, s.status, s.replies, s.true_reward)
        for s in samples
    ]
    columns = zip(*gather(rows), strict=True)
    rewards, successes, lengths, truncated, statuses, replies, true = columns
    turns = [1 + len(each) for each in replies]
    starts = range(0, len(successes), num_generations)
    solved = [sum(successes[i : i + num_generations]) for i in starts]  # successes of each group
    right = [length for length, success in zip(lengths, successes, strict=True) if success]
    wrong = [length for length, success in zip(lengths, successes, strict=True) if not success]
    return {
        "reward": statistics.mean(rewards),
        "reward_std": statistics.pstdev(rewards),
        **({} if None in true else {"true_reward": statistics.mean(true)}),
        "all_wrong": solved.count(0) / len(solved),
        "all_right": solved.count(num_generations) / len(solved),
        "length": statistics.mean(lengths),
        "length_max": max(lengths),
        **({"length_right": statistics.mean(right)} if right else {}),
        **({"length_wrong": statistics.mean(wrong)} if wrong else {}),
        "truncated": truncated.count(True) / len(truncated),
        "unparsed": statuses.count("unparsed") / len(statuses),
        "timeout": statuses.count("timeout") / len(statuses),
        **{end: statuses.count(end) / len(statuses) for end in sorted(ENDED & {*statuses})},
        **({"turns": statistics.mean(turns)} if max(turns) > 1 else {}),
    }


def mean_and_error(name: str, values: list[float]) -> dict[str, float]:
    """Return the mean of some problems' values and, as <name>_se, its standard error."""
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else math.nan
    return {name: statistics.mean(values), f"{name}_se": error}


def sampler_mismatch(logprobs, sampled, completion_mask) -> dict[str, float]:
    """Compare the sampler's log-probs [N, T] with the trainer's where the mask [N, T] is 1.

    Return the mean |difference|, the k3 estimate of the KL divergence, and the largest ratio. All
    ranks call it together.
    """
    difference = (logprobs - sampled)[completion_mask > 0]  # [M]
    k3 = difference.expm1() - difference  # [M], from the sampler to the trainer
    size, k3, tokens = global_sum(difference.abs().sum(), k3.sum(), len(difference))
    largest = global_max(difference.max().item())
    return {
        "mismatch": size / tokens,
        "mismatch_k3": k3 / tokens,
        "mismatch_max_ratio": math.exp(largest),
    }


def context_of(policy) -> int:
    """Return how many tokens the policy was made to read; no limit if its checkpoint sets none."""
    return getattr(policy.config.get_text_config(), "max_position_embeddings", sys.maxsize)


def check_context(policy, tokenizer, problems: list[Problem], config) -> None:
    """Raise UserError if a completion of one of the problems can exceed the context."""
    wanted = config.max_completion_length
    if len(that_fit(problems, context_of(policy) - wanted, tokenizer)) < len(problems):
        room_after(policy, tokenizer, problems, wanted)  # which encodes all prompts


def room_after(policy, tokenizer, problems: list[Problem], wanted: int = 1) -> int:
    """Return the context's tokens beyond the longest prompt. UserError if fewer than wanted."""
    length = max(prompt_lengths(problems, tokenizer))
    room = context_of(policy) - length
    if room < wanted:
        raise UserError(
            f"a prompt of {length} tokens and a completion of {wanted} exceed the policy's "
            f"context of {context_of(policy)}; lower --max_completion_length, or "
            "--max_prompt_length, which drops long prompts"
        )
    return room
