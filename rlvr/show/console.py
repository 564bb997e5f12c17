"""What a run prints: a row a step, a line an evaluation, hints, and the table at its end."""

import math
import re
import textwrap
from pathlib import Path

from rlvr.show.logs import read_rows
from rlvr.status import width

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
PAGE = "docs/questions.md"
# A hint is told once a run, after the first step for which it holds.
HINTS = [
    (
        lambda row: row["clip_low"] + row["clip_high"] == 0 and row["grad_norm"] > 0,
        "nothing is clipped, and the loss is near 0: the first minibatch is on-policy, so that its "
        "ratio is 1. Its gradient is not 0.",
    ),
    (
        lambda row: row["all_wrong"] == 1,
        "all groups are all wrong, and most algorithms then have no gradient: try easier problems, "
        "a better model or a larger --num_generations.",
    ),
    (
        lambda row: row["all_right"] == 1,
        "all groups are all right, and have no gradient: try harder problems or "
        "--dynamic_sampling.",
    ),
    (
        lambda row: row["truncated"] > 0.5,
        "most completions are cut off: raise --max_completion_length, or teach the policy to stop.",
    ),
    (
        lambda row: row["unparsed"] > 0.9,
        "the verifier finds an answer in hardly any completion: read samples.jsonl, and look at "
        "--system_prompt and --verifier.",
    ),
    (
        lambda row: row["entropy"] < 0.01,
        "the entropy is almost 0: all completions of a prompt will be alike. Try a lower "
        "--learning_rate, or --epsilon_high 0.28.",
    ),
    (
        lambda row: row["kl"] > 1,
        "the policy is over 1 nat a token away from where it started: try a lower --learning_rate "
        "or a larger --beta.",
    ),
]


def seconds_of(row: dict) -> float:
    """Wall time of a step."""
    return sum(value for key, value in row.items() if key.startswith("seconds_"))


def duration(seconds: float) -> str:
    """As a person says it: 50 s, 12 min, 3.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def value_of(function, row: dict, otherwise):
    """function(row), or another value where a script of your own does not log what it reads."""
    try:
        return function(row)
    except KeyError:
        return otherwise


def rate(value: float) -> str:
    """A number below 1 without its 0: .294."""
    return f"{value:.3f}".removeprefix("0")


class Console:
    """The table of a run's steps, and the hints that have not been given yet."""

    def __init__(self):
        self.seconds = []  # of each step so far
        self.rows = 0  # below the last header
        self.hints = [*HINTS]

    def step(self, step: int, last_step: int, row: dict) -> list[str]:
        """The lines of a step; columns that the terminal has no room for are left out."""
        self.seconds.append(seconds_of(row))
        left = sum(self.seconds) / len(self.seconds) * (last_step - step)
        cells = [("step", f"{step}/{last_step}".rjust(2 * len(str(last_step)) + 1))]
        cells += [(heading, value_of(text, row, "-")) for heading, text in COLUMNS.items()]
        cells += [("time left", duration(left))]
        columns = [(max(len(heading), 6), heading, text) for heading, text in cells]
        while sum(size + 2 for size, _, _ in columns) > width() and len(columns) > 2:
            columns.pop(-2)
        lines = ["  ".join(text.rjust(size) for size, _, text in columns)]
        if self.rows % ROWS_OF_A_HEADER == 0:
            lines = ["", "  ".join(heading.rjust(size) for size, heading, _ in columns), *lines]
        self.rows += 1
        return lines + self.new_hints(row)

    def new_hints(self, row: dict) -> list[str]:
        """What helps the reader of this step, each at most once a run."""
        given = [hint for hint in self.hints if value_of(hint[0], row, False)]
        self.hints = [hint for hint in self.hints if hint not in given]
        return [
            line
            for _, text in given
            for line in textwrap.wrap(f"hint: {text} See {PAGE}.", width())
        ]

    def evaluation(self, step: int, last_step: int, row: dict, first: dict) -> list[str]:
        """A line a data set: some of its metrics, as they were at first and as they are now."""
        self.rows = 0  # so that the next step has a header above it
        lines = []
        for name in [key.removesuffix("pass@1") for key in row if key.endswith("pass@1")]:
            largest = max((key for key in row if is_pass(key, name)), key=len_and_text)
            line = f"eval {step}/{last_step} {name.removesuffix('/')}".rstrip()
            keys = [f"{name}pass@1", largest, f"{name}greedy", f"{name}token_entropy"]
            for key in [key for key in dict.fromkeys(keys) if key in row]:
                label = key.removeprefix(name).removeprefix("token_")
                texts = [rate(each[key]) for each in (first, row) if key in each]
                part = f"  {label} " + " -> ".join(texts[-1:] if first["step"] == step else texts)
                if len(line + part) <= width():
                    line += part
            lines.append(line)
        return lines


def len_and_text(key: str) -> tuple[int, str]:
    """By which pass@16 is larger than pass@8."""
    return len(key), key


def is_pass(key: str, name: str) -> bool:
    """Whether a metric is a pass@k of this data set."""
    return re.fullmatch(re.escape(name) + r"pass@\d+", key) is not None


def print_first_and_last(folder: Path) -> None:
    """Print the first and the last evaluation side by side, and what has changed."""
    evals = read_rows(folder, "eval")
    if not evals:
        return  # a run that has been resumed after its last step, and whose eval.jsonl is lost
    shown = evals[:1] + evals[1:][-1:]
    size = max(map(len, evals[-1])) + 2
    headings = [str(row["step"]) for row in shown] + ["change"] * (len(shown) - 1)
    print(f"\n{'step':{size}}", *(f"{heading:>9}" for heading in headings))
    for key in filter(re.compile("pass@|avg@|greedy|answer_|token_|fit_").search, evals[-1]):
        numbers = [row.get(key, math.nan) for row in shown]
        texts = [f"{number:9.3f}" if abs(number) < 1e5 else f"{number:9.2g}" for number in numbers]
        if len(numbers) == 2:
            texts.append(f"{numbers[1] - numbers[0]:+9.3f}")
        print(f"{key:{size}}", *texts)
