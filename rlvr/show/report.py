"""tokens.jsonl, and report.html: what each token of a few completions was worth."""

import json
import math
from pathlib import Path

import rlvr.policy
from rlvr import world
from rlvr.errors import UserError
from rlvr.show.logs import append_row, write_whole
from rlvr.tasks import reader_of

PAGE = Path(__file__).parent / "report.html"
MOST_TOKENS = 1200  # of a group in a step; so 60 steps of one group stay below 5 MB


def write_report(file: Path, folders: list[Path]) -> None:
    """Write a page with a column for each run folder. UserError where one has kept no tokens."""
    runs = []
    for folder in folders:
        tokens = folder / "tokens.jsonl"
        if not tokens.exists():
            raise UserError(f"{folder} has no tokens.jsonl: no run, no step yet, or --log_tokens 0")
        steps = ",".join(tokens.read_text().splitlines())
        runs.append(f'{{"name": {json.dumps(folder.name)}, "steps": [{steps}]}}')
    # A script ends at its closing tag, wherever that stands. So no text of a model may hold one.
    data = ",".join(runs).replace("<", "\\u003c")
    write_whole(file, PAGE.read_text().replace("DATA_OF_THE_RUNS", data).encode())


def log_tokens(run, step: int, batch, advantages, training, weights=None) -> None:
    """Add the first --log_tokens groups of a step to tokens.jsonl. All ranks call it together.

    advantages [N, 1], or [N, T] for one a token; weights are CW-GRPO's, N * T of them.
    Entropy and ratio are those after the update: such a ratio says what the step did to a token.
    """
    samples, size = batch.samples, run.config.num_generations
    rows = range(min(run.config.log_tokens * size, len(samples)))
    if not rows:
        return
    new_logprobs, entropies = rlvr.policy.frozen_logprobs(
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
    written = batch.written > 0  # [N, T]; a tool's tokens have no numbers
    per_token = {name: values.where(written, math.nan) for name, values in per_token.items()}
    groups = [
        {"prompt": prompt_text(samples[i], training.tokenizer), "completions": []}
        for i in rows[::size]
    ]
    for i in rows:
        numbers = {name: values[i].tolist() for name, values in per_token.items()}
        completion = describe(samples[i], numbers, training.tokenizer, MOST_TOKENS // size)
        groups[i // size]["completions"].append(completion)
    append_row(run.folder, "tokens", {"step": step, "groups": groups})


def prompt_text(sample, tokenizer) -> str:
    """A prompt with its special tokens, one for each image."""
    reader, ids = reader_of(tokenizer), sample.prompt_ids
    return tokenizer.decode(reader.merge_repeats(ids) if reader else ids)


def describe(sample, numbers: dict[str, list], tokenizer, most: int) -> dict:
    """A completion as report.html reads it: its verdict, and its first tokens with their numbers.

    Three digits behind the point are more than a colour shows.
    """
    ids = sample.completion_ids[:most]
    return {
        "reward": sample.reward,
        "verdict": sample.status or ("right" if sample.success else "wrong"),
        "length": len(sample.completion_ids),
        "truncated": sample.truncated,
        "tokens": tokenizer.batch_decode([[token] for token in ids]),
        "by_tool": [t for reply in sample.replies for t in reply if t < len(ids)],
        **{
            name: [round(value, 3) for value in values[: len(ids)]]
            for name, values in numbers.items()
        },
    }
