"""tokens.jsonl, and report.html: what a run has changed, and what each token of a few was worth."""

import json
import math
import re
import shlex
from pathlib import Path

from rlvr import world
from rlvr.errors import UserError
from rlvr.flags import as_arguments
from rlvr.policy import frozen_logprobs
from rlvr.show.logs import append_row, read_rows, write_whole
from rlvr.tasks import reader_of

PAGE = Path(__file__).parent / "report.html"
MOST_TOKENS = 1200  # of a group in a step
MOST_BYTES = 4_000_000  # of the tokens on a page, which is then below 5 MB
MOST_POINTS = 300  # of a curve


def write_report(file: Path, folders: list[Path]) -> None:
    """Write a page that compares run folders. UserError if one has no tokens."""
    for folder in folders:
        if not (folder / "tokens.jsonl").exists():
            raise UserError(f"{folder} has no tokens.jsonl: no run, no step yet, or --log_tokens 0")
    size = sum((folder / "tokens.jsonl").stat().st_size for folder in folders)
    stride = math.ceil(size / MOST_BYTES)  # one step in so many is shown
    runs = []
    for folder in folders:
        about = dict(name=folder.name, command=command_of(folder), curves=curves_of(folder))
        about |= dict(table=before_and_after(folder), stride=stride)
        with open(folder / "tokens.jsonl") as lines:  # all of them may exceed the memory
            steps = ",".join(line for i, line in enumerate(lines) if i % stride == 0)
        runs.append(f'{json.dumps(about)[:-1]}, "steps": [{steps}]}}')
    # A script ends at its closing tag, wherever that stands. So no text of a model may hold one.
    data = ",".join(runs).replace("<", "\\u003c")
    write_whole(file, PAGE.read_text().replace("DATA_OF_THE_RUNS", data).encode())


def command_of(folder: Path) -> str:
    """Return the command that started a run, with the flags that were given."""
    config = json.loads((folder / "config.json").read_text())
    return shlex.join(["python", config["script"], *as_arguments(config["typed"])])


def before_and_after(folder: Path) -> list[list]:
    """[metric, before, after] of the held-out sets, each as [value, standard error or None]."""
    evals = read_rows(folder, "eval")
    first, last = evals[0], evals[-1]
    table = []
    for prefix in prefixes_of(last):
        most = min(samples_of(first, prefix), samples_of(last, prefix)) or 1
        errors = [standard_errors(row, prefix) for row in (first, last)]
        for name in dict.fromkeys(("pass@1", f"pass@{most}", "greedy", "token_entropy", "length")):
            values = [round_or_none(row.get(prefix + name, math.nan)) for row in (first, last)]
            cells = [[x, error.get(name)] for x, error in zip(values, errors, strict=True)]
            table.append([prefix + name, *cells])
    return table


def prefixes_of(row: dict) -> list[str]:
    """What the metrics of each held-out set begin with in an evaluation: "" for a single set."""
    return [key.removesuffix("pass@1") for key in row if key.endswith("pass@1")]


def samples_of(row: dict, prefix: str) -> int:
    """How many samples of each problem an evaluation has drawn: its largest k; 0 for none."""
    ks = [re.fullmatch(rf"{re.escape(prefix)}pass@(\d+)", key) for key in row]
    return max((int(found[1]) for found in ks if found), default=0)


def standard_errors(row: dict, prefix: str) -> dict[str, float]:
    """Standard errors over the problems of a set, as far as a row of eval.jsonl gives them.

    Of n samples, a problem has the share m of wrong ones. The mean of m is 1 - pass@1, and that of
    m (m - 1/n) follows from pass@2. pass@n and the greedy accuracy are 0 or 1 for each problem.
    """
    n, problems = samples_of(row, prefix), row.get(f"{prefix}problems", 0)
    if problems < 2 or n < 2:
        return {}
    wrong = 1 - row[f"{prefix}pass@1"]
    mean_square = ((n - 1) * (1 - row[f"{prefix}pass@2"]) + wrong) / n  # of m
    variances = {"pass@1": max(mean_square - wrong**2, 0)}
    for name in (f"pass@{n}", "greedy"):
        variances[name] = row[prefix + name] * (1 - row[prefix + name])
    return {name: round((x / (problems - 1)) ** 0.5, 4) for name, x in variances.items()}


def curves_of(folder: Path) -> dict[str, list]:
    """Points [step, value] of the curves: of the first held-out set, and of the rollouts."""
    found = {}
    for log in ("eval", "metrics"):
        rows = read_rows(folder, log)
        wanted = ["reward", "entropy"]
        for prefix in prefixes_of(rows[0])[:1] if rows else ():
            wanted = [f"{prefix}pass@1", f"{prefix}pass@{samples_of(rows[0], prefix)}"]
        for key in wanted:
            points = [[row["step"], round_or_none(row[key])] for row in rows if key in row]
            found[key] = points[:: math.ceil(len(points) / MOST_POINTS) or 1]
    return found


def round_or_none(value: float) -> float | None:
    """Return a number with four decimals, or None (null in JSON) if it is not finite."""
    return round(value, 4) if math.isfinite(value) else None


def log_tokens(run, step: int, batch, advantages, weights=None) -> None:
    """Add the first --log_tokens groups of a step to tokens.jsonl. All ranks call it together.

    advantages are [N, 1], or [N, T] with one per token; weights [N, T] are CW-GRPO's. Entropy and
    ratio are those after the update: the ratio says what the step did to a token.
    """
    samples, size = batch.samples, run.config.num_generations
    rows = range(min(run.config.log_tokens * size, len(samples)))
    if not rows:
        return
    policy, tokenizer = run.training.policy, run.training.tokenizer
    new_logprobs, entropies = frozen_logprobs(policy, samples, run.config, rows)
    if world.RANK > 0:
        return
    per_token = {
        "logprob": batch.old_logprobs,
        "entropy": entropies,
        "ratio": (new_logprobs - batch.old_logprobs).exp(),
        "advantage": advantages.expand_as(batch.loss_mask),
    }
    if weights is not None:
        per_token["weight"] = weights
    own = batch.completion_mask > 0  # [N, T]; a tool's tokens have no numbers
    per_token = {name: values.where(own, math.nan) for name, values in per_token.items()}
    groups = [dict(prompt=prompt_text(samples[i], tokenizer), completions=[]) for i in rows[::size]]
    for i in rows:
        numbers = {name: values[i].tolist() for name, values in per_token.items()}
        completion = describe(samples[i], numbers, tokenizer, MOST_TOKENS // size)
        groups[i // size]["completions"].append(completion)
    append_row(run.folder, "tokens", {"step": step, "groups": groups})


def prompt_text(sample, tokenizer) -> str:
    """A prompt with its special tokens, one for each image."""
    reader, ids = reader_of(tokenizer), sample.prompt_ids
    return tokenizer.decode(reader.merge_repeats(ids) if reader else ids)


def describe(sample, numbers: dict[str, list], tokenizer, most: int) -> dict:
    """A completion as report.html reads it: its verdict, and the numbers of its first tokens."""
    ids = sample.completion_ids[:most]
    return {
        "reward": sample.reward,
        "verdict": sample.status or ("right" if sample.success else "wrong"),
        "length": len(sample.completion_ids),
        "truncated": sample.truncated,
        "tokens": tokenizer.batch_decode([[token] for token in ids]),
        "by_tool": [t for reply in sample.replies for t in reply if t < len(ids)],
        **{
            name: [round(value, 3) for value in values[: len(ids)]]  # a colour shows no more
            for name, values in numbers.items()
        },
    }
