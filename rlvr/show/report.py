"""tokens.jsonl, and report.html: what a run has changed, and what each token of a few was worth."""

import json
import math
from pathlib import Path

from rlvr import world
from rlvr.errors import UserError
from rlvr.policy import frozen_logprobs
from rlvr.show.logs import append_row, ks_of, read_evaluations, read_rows, write_whole

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
        about = facts_of(folder) | {
            "name": folder.name,
            "curves": curves_of(folder),
            "table": before_and_after(folder),
            "problem": changed_problem(folder),
            "stride": stride,
        }
        with open(folder / "tokens.jsonl") as lines:  # all of them may exceed the memory
            steps = ",".join(line for i, line in enumerate(lines) if i % stride == 0)
        runs.append(f'{json.dumps(about)[:-1]}, "steps": [{steps}]}}')
    # A script ends at its closing tag, wherever that stands. So no text of a model may hold one.
    data = ",".join(runs).replace("<", "\\u003c")
    write_whole(file, PAGE.read_text().replace("DATA_OF_THE_RUNS", data).encode())


def facts_of(folder: Path) -> dict:
    """What a page says of a run: its commands, what it was made with, and its clip range."""
    config = json.loads((folder / "config.json").read_text())
    record = config.get("record", {})
    facts = {name: config.get(name) for name in ("seed", "learning_rate", "max_steps")}
    facts |= {name: value for name, value in record.items() if name not in ("commands", "versions")}
    facts |= record.get("versions", {})
    changed = facts.pop("changed", False)
    if facts.get("commit"):
        facts["commit"] += f", {'' if changed else 'no '}uncommitted changes"
    shown = [f"{name} {value}" for name, value in facts.items() if value not in (None, "")]
    clip = None
    if config.get("importance_sampling_level") == "token":
        low, high = config["epsilon"], config["epsilon_high"]
        clip = [1 - low, 1 + (low if high is None else high)]
    return {"commands": record.get("commands", []), "facts": ", ".join(shown), "clip": clip}


def changed_problem(folder: Path) -> list[dict]:
    """Return the rows of problems.jsonl of the problem that has changed most, before and after."""
    pairs = {}
    for row in read_rows(folder, "problems"):
        pairs.setdefault((row["set"], row["id"]), []).append(row)

    def change(pair: list[dict]) -> float:
        first, last = (row["right"] / row["samples"] for row in (pair[0], pair[-1]))
        return abs(last - first)

    return max(pairs.values(), key=change, default=[])


def before_and_after(folder: Path) -> list[list]:
    """[metric, before, after] of the held-out sets, each as [value, standard error or None]."""
    table = []
    evaluations = read_evaluations(folder)
    for name, rows in evaluations.items():
        first, last = rows[0], rows[-1]
        most = min(ks_of(first)[-1], ks_of(last)[-1])
        for metric in dict.fromkeys(
            ("pass@1", f"pass@{most}", "greedy", "token_entropy", "length")
        ):
            cells = [
                [number_of(row, metric), number_of(row, f"{metric}_se")] for row in (first, last)
            ]
            table.append([f"{name}: {metric}" if len(evaluations) > 1 else metric, *cells])
    return table


def curves_of(folder: Path) -> dict[str, list]:
    """Points [step, value] of the curves: of the first held-out set, and of the rollouts."""
    curves = {}
    evaluations, steps = [*read_evaluations(folder).values()], read_rows(folder, "metrics")
    for rows in (*evaluations[:1], steps):
        wanted = (
            ["reward", "entropy"] if rows is steps else ["pass@1", f"pass@{ks_of(rows[0])[-1]}"]
        )
        for key in wanted:
            points = [[row["step"], number_of(row, key)] for row in rows if key in row]
            curves[key] = points[:: math.ceil(len(points) / MOST_POINTS) or 1]
    return curves


def number_of(row: dict, key: str) -> float | None:
    """Return a number of a row with four decimals, or None (null in JSON) if it is not finite."""
    value = row.get(key, math.nan)
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
    groups = [
        dict(prompt=tokenizer.decode(samples[i].prompt_ids), completions=[]) for i in rows[::size]
    ]
    for i in rows:
        numbers = {name: values[i].tolist() for name, values in per_token.items()}
        completion = describe(samples[i], numbers, tokenizer, MOST_TOKENS // size)
        groups[i // size]["completions"].append(completion)
    append_row(run.folder, "tokens", {"step": step, "groups": groups})


def sample_row(sample, tokenizer, advantage: float) -> dict:
    """Return a completion as samples.jsonl holds it; `python -m rlvr.verify` can grade it again."""
    return {
        "prompt": tokenizer.decode(sample.prompt_ids),
        "text": sample.text,
        "gold": sample.problem.gold,
        "verifier": sample.problem.verifier,
        "reward": sample.reward,
        "verdict": verdict_of(sample),
        "advantage": advantage,
        "length": len(sample.completion_ids),
        "truncated": sample.truncated,
    }


def verdict_of(sample) -> str:
    """Return right, wrong, or why the verifier did not judge the completion."""
    return sample.status or ("right" if sample.success else "wrong")


def describe(sample, numbers: dict[str, list], tokenizer, most: int) -> dict:
    """A completion as report.html reads it: its verdict, and the numbers of its first tokens."""
    ids = sample.completion_ids[:most]
    return {
        "reward": sample.reward,
        "verdict": verdict_of(sample),
        "length": len(sample.completion_ids),
        "truncated": sample.truncated,
        "tokens": tokenizer.batch_decode([[token] for token in ids]),
        "by_tool": [t for reply in sample.replies for t in reply if t < len(ids)],
        **{
            name: [round(value, 3) for value in values[: len(ids)]]  # a colour shows no more
            for name, values in numbers.items()
        },
    }
