"""Completions of problems: drawn, graded, and measured.

Also whether a prompt and a completion fit into the policy's context together.
"""

import functools
import math
import statistics

import rlvr.verify
from rlvr.errors import UserError
from rlvr.machine import gather, global_max, global_sum
from rlvr.rollout.turns import generate_in_turns
from rlvr.tasks import Problem, Sample, encode_prompt, prompt_lengths


def sample_groups(
    sampler,
    problems: list[Problem],
    size: int,
    temperature: float,
    max_tokens: int,
    top_p: float = 1.0,
) -> list[list[Sample]]:
    """Draw and grade `size` completions for each problem -> a group of samples a problem."""
    repeated = [problem for problem in problems for _ in range(size)]
    encoded = [encode_prompt(sampler.tokenizer, problem.prompt) for problem in problems]
    prompts = [ids for ids in encoded for _ in range(size)]
    images = [problem.images for problem in repeated]
    shown = dict(images=images) if any(images) else {}
    if sampler.config.tool == "none":
        completions, logprobs = sampler.generate(prompts, temperature, top_p, max_tokens, **shown)
        replies = [()] * len(completions)
    else:
        completions, logprobs, replies = generate_in_turns(
            sampler, prompts, temperature, top_p, max_tokens, **shown
        )
    texts = sampler.tokenizer.batch_decode(completions, skip_special_tokens=True)
    questions = [
        (problem.verifier, text, problem.gold)
        for problem, text in zip(repeated, texts, strict=True)
    ]
    grade = functools.partial(
        rlvr.verify.grade,
        seconds=sampler.config.verify_seconds,
        program_seconds=sampler.config.program_seconds,
    )
    if rlvr.verify.VERIFIERS[problems[0].verifier].isolated:  # by a process to wait for
        grades = rlvr.verify.in_threads(grade, questions, "grading")
    else:
        grades = [*map(grade, questions)]
    samples = [
        Sample(
            prompt_ids=prompts[i],
            completion_ids=ids,
            text=texts[i],
            reward=grades[i][0],
            truncated=not ids or ids[-1] not in sampler.stops,
            logprobs=logprobs[i],
            status=grades[i][1],
            success=grades[i][0] >= sampler.config.success_threshold,
            replies=replies[i],
            images=images[i],
        )
        for i, ids in enumerate(completions)
    ]
    return [samples[i : i + size] for i in range(0, len(samples), size)]


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


def sampler_mismatch(logprobs, sampled, written) -> dict[str, float]:
    """How far the sampler's log-probs are from the trainer's where `written` is 1: [N, T] each.

    Mean |difference|, k3 estimate of the KL divergence, largest ratio. All ranks call it together.
    """
    difference = (logprobs - sampled)[written > 0]  # [M]
    k3 = difference.exp() - difference - 1  # [M], of the sampler to the trainer
    size, k3, tokens = global_sum(difference.abs().sum(), k3.sum(), len(difference))
    largest = global_max(difference.max().item())
    return {
        "mismatch": size / tokens,
        "mismatch_k3": k3 / tokens,
        "mismatch_max_ratio": math.exp(largest),
    }


def context_of(policy) -> float:
    """The most tokens that the policy was made to read; infinite where its checkpoint sets none."""
    return getattr(policy.config.get_text_config(), "max_position_embeddings", math.inf)


def check_context(policy, tokenizer, problems: list[Problem], config) -> None:
    """UserError where a completion of one of the problems can outgrow the context."""
    wanted = config.max_completion_length
    room = context_of(policy) - wanted
    # A token is at least a byte, but for those that may open and close a text.
    in_doubt = [problem for problem in problems if len(problem.prompt.encode()) + 2 > room]
    if in_doubt:
        room_after(policy, tokenizer, in_doubt, wanted)


def room_after(policy, tokenizer, problems: list[Problem], wanted: int = 1) -> float:
    """How many tokens the context has beside the longest prompt; UserError for less than wanted."""
    length = max(prompt_lengths(problems, tokenizer))
    room = context_of(policy) - length
    if room < wanted:
        raise UserError(
            f"a prompt of {length} tokens and a completion of {wanted} are over the policy's "
            f"context of {context_of(policy)}; lower --max_completion_length, or "
            "--max_prompt_length, which drops long prompts"
        )
    return room
