"""tokens.jsonl: what each token of a few completions was worth, for report.html to show."""

import math

import rlvr.logprobs
from rlvr import world
from rlvr.logs import append_row

MOST_TOKENS = 1200  # of a group in a step; so 60 steps of one group stay below 5 MB


def log_tokens(run, step: int, batch, advantages, training, weights=None) -> None:
    """Add the first --log_tokens groups of a step to tokens.jsonl. All ranks call it together.

    advantages [N, 1], or [N, T] for one a token; weights are CW-GRPO's, N * T of them.
    Entropy and ratio are those after the update: such a ratio says what the step did to a token.
    """
    samples, size = batch.samples, run.config.num_generations
    rows = range(min(run.config.log_tokens * size, len(samples)))
    if not rows:
        return
    new_logprobs, entropies = rlvr.logprobs.frozen_logprobs(
        training.policy, samples, run.config, rows
    )
    if world.RANK > 0:
        return
    per_token = {
        "logprob": batch.old_logprobs,
        "entropy": entropies,
        "ratio": (new_logprobs - batch.old_logprobs).exp(),
        "advantage": advantages.expand_as(batch.mask),
    }
    if weights is not None:
        per_token["weight"] = weights.view_as(batch.mask)
    completions = [
        describe(
            samples[i], {name: values[i] for name, values in per_token.items()}, training, size
        )
        for i in rows
    ]
    groups = [
        {
            "prompt": training.tokenizer.decode(samples[i].prompt_ids),
            "completions": completions[i : i + size],
        }
        for i in rows[::size]
    ]
    append_row(run.folder, "tokens", {"step": step, "groups": groups})


def describe(sample, per_token, training, size: int) -> dict:
    """A completion as report.html reads it: its verdict, its first tokens, and their numbers.

    per_token is name -> [T]; what is not a finite number becomes None.
    """
    ids = sample.completion_ids[: max(MOST_TOKENS // size, 1)]
    numbers = {
        name: [rounded(value) for value in values[: len(ids)].tolist()]
        for name, values in per_token.items()
    }
    return {
        "reward": rounded(sample.reward),
        "verdict": sample.status or ("right" if sample.success else "wrong"),
        "length": len(sample.completion_ids),
        "truncated": sample.truncated,
        "tokens": training.tokenizer.batch_decode([[token] for token in ids]),
        **numbers,
    }


def rounded(value: float) -> float | None:
    """With three digits behind the point, which is more than a colour shows."""
    return round(value, 3) if math.isfinite(value) else None
