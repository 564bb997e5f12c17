"""What a run prints: one row per step, one line per evaluation, and hints."""

import math
from collections import defaultdict

from rlvr.progress import folded, width
from rlvr.show.logs import ks_of

ROWS_OF_A_HEADER = 20
# heading -> what stands below it, from the metrics of a step
COLUMNS = {
    "reward": lambda row: f"{row['reward']:.3f}",
    "length": lambda row: f"{row['length']:.1f}",
    "cut off": lambda row: f"{row['truncated']:.0%}",
    "entropy": lambda row: f"{row['entropy']:.3f}",
    "mixed": lambda row: f"{1 - row['all_wrong'] - row['all_right']:.0%}",
    "clipped": lambda row: f"{row['clip_low'] + row['clip_high']:.2%}",
    "gradient": lambda row: f"{row['grad_norm']:.2f}",
    "seconds": lambda row: f"{seconds_of(row):.1f}",
}


def hints(row: dict):
    """Yield hints for the reader of this step; docs/questions.md says more."""
    ended = sum(row.get(status, 0) for status in ("timeout", "memory", "crash"))
    if ended > 0.5:
        yield "the verifier could not judge most completions: read samples.jsonl."
    elif row["all_wrong"] == 1 and row["reward_std"] == 0:  # partial rewards may differ
        yield "all groups are all wrong: try easier problems or a larger --num_generations."
    if row["all_right"] == 1 and row["reward_std"] == 0:
        yield "all groups are all right: try harder problems or --dynamic_sampling."
    if row["truncated"] > 0.5:
        yield "most completions are cut off: raise --max_completion_length."
    if row["unparsed"] > 0.9:
        yield "hardly any completion has an answer: read samples.jsonl, look at --system_prompt."
    if row["entropy"] < 0.01:
        yield "the entropy is almost 0: try a lower --learning_rate, or --epsilon_high 0.28."
    if row["kl"] > 1:
        yield "the policy is far from its start: lower --learning_rate, or raise --beta."


def seconds_of(row: dict) -> float:
    """Return the wall time of a step."""
    return sum(value for key, value in row.items() if key.startswith("seconds_"))


def duration(seconds: float) -> str:
    """Return a time as a person says it: 50 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class Console:
    """The table of a run's steps, and the hints that have been given."""

    def __init__(self):
        self.seconds = []  # of each step so far
        self.rows = 0  # below the last header
        self.told = set()

    def step(self, step: int, last_step: int, row: dict) -> list[str]:
        """Return the lines of a step, without the columns that do not fit on the terminal."""
        row = defaultdict(lambda: math.nan, row)  # a script of your own may not log all of them
        self.seconds.append(seconds_of(row))
        left = sum(self.seconds) / len(self.seconds) * (last_step - step)
        cells = [("step", f"{step}/{last_step}".rjust(2 * len(str(last_step)) + 1))]
        cells += [(heading, text(row)) for heading, text in COLUMNS.items()]
        cells += [("time left", duration(left))]
        columns = [(max(len(heading), len(text), 6), heading, text) for heading, text in cells]
        while sum(size + 2 for size, *_ in columns) - 2 > width() and len(columns) > 2:
            columns.pop(-2)
        lines = ["  ".join(text.rjust(size) for size, _, text in columns)]
        if self.rows % ROWS_OF_A_HEADER == 0:
            lines = ["", "  ".join(heading.rjust(size) for size, heading, _ in columns), *lines]
        self.rows += 1
        new = [hint for hint in hints(row) if hint not in self.told]
        self.told.update(new)
        return lines + [folded(f"hint: {hint}") for hint in new]

    def evaluation(self, step: int, last_step: int, name: str, row: dict, first: dict) -> list[str]:
        """Return the line of a data set, which the name precedes: metrics at first and now."""
        self.rows = 0  # so that the next step has a header above it
        parts = [f"eval {step}/{last_step} {name}".rstrip()]
        for key in dict.fromkeys(("pass@1", f"pass@{ks_of(row)[-1]}", "greedy", "token_entropy")):
            if key in row:
                rows = [first, row] if key in first and first["step"] < step else [row]
                numbers = [f"{logged[key]:.3f}".removeprefix("0") for logged in rows]
                parts.append(f"{key.removeprefix('token_')} {' -> '.join(numbers)}")
        return [folded("  ".join(parts))]
