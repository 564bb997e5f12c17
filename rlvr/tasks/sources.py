"""The tables of data sets, from the hub and made here, and the reading of their rows."""

import csv
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from rlvr import progress
from rlvr.errors import UserError, loading
from rlvr.tasks import cells
from rlvr.tasks.embedded import draw_arithmetic, draw_countdown
from rlvr.tasks.files import READERS, read_rows
from rlvr.tasks.problems import Problem, drop
from rlvr.verify.verifiers import find_verifier


@dataclass(frozen=True)
class Source:
    """Where a data set is, and what its columns hold. Several columns are given as a tuple."""

    path: str  # hub id, or local path
    problem: str | tuple[str, ...]  # columns whose cells `ask` takes
    answer: str | tuple[str, ...]  # columns whose cells `gold` takes
    train: str | None = None  # split to train on
    test: str = "test"  # split to evaluate on; the set may not have it
    level: str | None = None  # column whose values are also evaluated separately
    verifier: str = "math"
    configuration: str | None = None  # of a hub set
    files: dict[str, str] | None = None  # by split, where `path` names their format
    since: tuple[str | None, str] = (None, "")  # a column of dates, and the first that counts
    ask: Callable = cells.read_question  # cells -> question
    gold: Callable | None = None  # cells -> gold answer; None takes the verifier's


LCB = Source(
    "lighteval/code_generation_lite",  # LiveCodeBench's own set, without its script
    ("question_content", "starter_code"),
    ("public_test_cases", "private_test_cases", "metadata"),
    level="difficulty",
    verifier="code",
    configuration="release_v5",
    ask=cells.with_starter,
    gold=cells.livecodebench_tests,
)
SPLITS = ("train", "test")
DATASETS = {
    "gsm8k": Source(
        "openai/gsm8k", "question", "answer", train="train", verifier="number", configuration="main"
    ),
    "math": Source(
        "DigitalLearningGmbH/MATH-lighteval", "problem", "solution", train="train", level="level"
    ),
    "math500": Source("HuggingFaceH4/MATH-500", "problem", "answer", level="level"),
    "open-rs": Source("knoveleng/open-rs", "problem", "answer", train="train", level="level"),
    "aime24": Source("HuggingFaceH4/aime_2024", "problem", "answer", test="train"),
    "aime25": Source("math-ai/aime25", "problem", "answer"),
    "amc23": Source("math-ai/amc23", "question", "answer"),
    "minerva": Source("math-ai/minervamath", "question", "answer"),
    "olympiadbench": Source("math-ai/olympiadbench", "question", "final_answer"),
    "arc": Source(
        "allenai/ai2_arc",
        ("question", "choices"),
        ("answerKey", "choices"),
        verifier="choice",
        configuration="ARC-Challenge",
        ask=cells.with_options,
        gold=cells.letter_of,
    ),
    "mmlu-pro": Source(
        "TIGER-Lab/MMLU-Pro",
        ("question", "options"),
        "answer",
        level="category",
        verifier="choice",
        ask=cells.with_options,
    ),
    "taco": Source(
        "parquet",  # files of BAAI/TACO, which also has a script that we do not run
        ("question", "starter_code"),
        "input_output",
        train="train",
        level="difficulty",
        verifier="code",
        files={split: f"hf://datasets/BAAI/TACO/ALL/{split}-*.parquet" for split in SPLITS},
        ask=cells.with_starter,
    ),
    "human-eval": Source(
        "openai/openai_humaneval",
        "prompt",
        ("test", "entry_point", "prompt"),
        verifier="code",
        configuration="openai_humaneval",
        ask="Complete this function:\n```python\n{}\n```".format,
        gold=cells.human_eval_tests,
    ),
    # FADE's two evaluations: all of release 5, and release 6 from August 2024 on.
    "livecodebench-v5": LCB,
    "livecodebench-v6": replace(LCB, configuration="release_v6", since=("contest_date", "2024-08")),
}
# Sets that are made here: config -> (problems to train on, problems to evaluate on).
EMBEDDED = {
    "countdown": draw_countdown,
    "arithmetic": partial(draw_arithmetic, "1"),
    **{f"arithmetic-{level}": partial(draw_arithmetic, level) for level in "234"},
}

WHAT_IS_READ = (
    "a data set is .jsonl, .json, .csv (UTF-8) or .parquet, or a folder of one kind, and not empty"
)


def is_made(name: str) -> bool:
    """Return whether a data set is made here, and not read."""
    return name in EMBEDDED or name.startswith("reasoning_gym:")


def source_of(name: str, config) -> Source:
    """Return a row of the table, or one made of the flags. UserError for a wrong file."""
    if name in DATASETS:
        return DATASETS[name]
    file = Path(name)
    if file.is_file() and (file.suffix not in READERS or not file.stat().st_size):
        raise UserError(f"the file {name} is of another kind or empty: {WHAT_IS_READ}")
    columns = [column.strip() for column in config.columns.split(",")]
    problem, answer, level = columns + [""] * (3 - len(columns))
    # A user's function may need no answer.
    return Source(
        name, problem, answer or (), "train", level=level or None, verifier=config.verifier
    )


def reading_rows(name: str, *others):
    """Return the `loading` context for a data set, whose damages raise `others`, too."""
    hint = "; without the hub, take countdown, arithmetic or files of your own"
    hint = hint if name in DATASETS else f" ({WHAT_IS_READ})"
    return loading(f"the data set {name}", csv.Error, *others, hint=hint)


def load_splits(name: str, source: Source) -> dict:
    """Return, by split, its rows on the hub or in its cache, or the local files that hold it."""
    if Path(source.path).suffix in READERS:
        return {"train": [source.path]}
    import datasets  # takes a second
    from datasets.exceptions import DatasetsError

    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # reading_rows reports failures
    if not progress.on_terminal():
        datasets.disable_progress_bars()
    with reading_rows(name, DatasetsError):
        if source.files or not Path(source.path).is_dir():
            return datasets.load_dataset(source.path, source.configuration, data_files=source.files)
        data_files = datasets.load_dataset_builder(source.path).config.data_files or {}
    splits = {str(split): [*files] for split, files in data_files.items()}
    return {"test": splits.get("validation", []), **splits}  # validation stands in for test


def outer(column: str) -> str:
    """Return the column that holds `column`: "reward_model" for "reward_model.ground_truth"."""
    return column.partition(".")[0]


def cell_of(row: dict, column: str):
    """Return a row's cell, or None. A dot leads into an object, as in verl's files."""
    first, _, rest = column.partition(".")
    inner = row.get(first)
    if column in row or not isinstance(inner, dict):
        return row.get(column)
    return cell_of(inner, rest)


OF_ROWS = {  # why a row of a data set holds no problem; see `drop`
    "without a question": lambda left: [row for row in left if row.prompt],
    "whose last message is not the user's": lambda left: [
        row for row in left if isinstance(row.prompt, str) or row.prompt[-1][0] == "user"
    ],
    "without a readable answer": lambda left: [row for row in left if row.gold != ""],
}


def problems_of(split, name: str, source: Source) -> list[Problem]:
    """Return one problem per row of a split that holds one, shuffled. UserError if none does."""
    if not split:
        return []
    asked, answered = (
        (part,) if isinstance(part, str) else part for part in (source.problem, source.answer)
    )
    dated, first_day = source.since
    needed = [*asked, *answered, *([source.level] if source.level else ())]
    with reading_rows(name):
        names, rows = read_rows(split, {*needed, *map(outer, needed), dated})
    for column in needed:
        if not {column, outer(column)} & {*names}:
            hint = "" if name in DATASETS else "; --columns names those to read"
            there = ", ".join(map(repr, names))
            raise UserError(f"the data set {name} has no column {column!r}; it has {there}{hint}")
    read_gold = source.gold or find_verifier(source.verifier).gold
    problems = [
        Problem(
            source.ask(*(cell_of(row, column) for column in asked)),
            read_gold(*(cell_of(row, column) for column in answered)),
            source.verifier,
            "" if (level := cell_of(row, source.level or "")) is None else str(level),
        )
        for row in rows
        if str(row.get(dated, "")) >= first_day
    ]
    random.Random(0).shuffle(problems)
    return drop(name, problems, OF_ROWS)
