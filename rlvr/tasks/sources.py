"""The tables of data sets: those of the hub and those that are made here; and reading their rows.

A data set of the user's own is a file, or a folder of files.
"""

import glob
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rlvr import status
from rlvr.errors import UserError, loading
from rlvr.tasks import cells
from rlvr.tasks.embedded import draw_arithmetic, draw_countdown
from rlvr.tasks.pictures import read_images
from rlvr.tasks.problems import Problem
from rlvr.verify import VERIFIERS


@dataclass(frozen=True)
class Source:
    """Where a data set is, and which columns hold what. Several columns stand in a tuple."""

    path: str  # hub id, or local path
    problem: str | tuple[str, ...]  # the columns whose cells `ask` takes
    answer: str | tuple[str, ...]  # the columns whose cells `gold` takes
    images: str = ""  # column whose cells rlvr.tasks.pictures reads
    train: str | None = None  # split to train on
    test: str = "test"  # split to evaluate on; there may be none of this name
    level: str = ""  # column whose values are also evaluated by themselves
    verifier: str = "math"
    configuration: str | None = None  # of the hub's set
    files: str | None = None  # of the hub's set, in parquet: those of a split, where it says so
    since: tuple[str, str] = ("", "")  # a column of dates, and the first that is wanted
    ask: Callable = cells.read_question  # cells -> question
    gold: Callable | None = None  # cells -> gold answer; as the verifier's entry says if None


LIVECODEBENCH = dict(
    path="lighteval/code_generation_lite",  # livecodebench's own, as files instead of a script
    problem=("question_content", "starter_code"),
    answer=("public_test_cases", "private_test_cases", "metadata"),
    level="difficulty",
    verifier="code",
    ask=cells.with_starter,
    gold=cells.livecodebench_tests,
)
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
    "code-contests": Source(
        "deepmind/code_contests",
        "description",
        ("public_tests", "private_tests", "generated_tests"),
        train="train",
        verifier="code",
        ask=cells.with_starter,
        gold=cells.code_contests_tests,
    ),
    "taco": Source(
        "BAAI/TACO",
        ("question", "starter_code"),
        "input_output",
        train="train",
        level="difficulty",
        verifier="code",
        files="ALL/{split}-*.parquet",  # the repository also has a script, which is not run
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
    # FADE's two evaluations: all of release 5, and of release 6 what is of August 2024 or later.
    "livecodebench-v5": Source(**LIVECODEBENCH, configuration="release_v5"),
    "livecodebench-v6": Source(
        **LIVECODEBENCH, configuration="release_v6", since=("contest_date", "2024-08")
    ),
    # A-GRAE's sets with images, and for its medical one the largest of those that it is made of.
    "geo3k": Source("hiyouga/geometry3k", "problem", "answer", images="images", train="train"),
    "mathvision": Source(
        "MathLLMs/MathVision",
        ("question", "options"),
        ("answer", "options"),
        images="decoded_image",
        level="level",
        ask=cells.with_options,
        gold=cells.letter_or_option,
    ),
    "mathverse": Source(
        "AI4Math/MathVerse",
        "question",
        "answer",
        images="image",
        test="testmini",
        level="problem_version",
        configuration="testmini",
        # some have their question in the image alone
        ask=lambda question: question or "Answer the question that stands in the image.",
    ),
    "pmc-vqa": Source(
        "mdwiratathya/PMC-VQA_small",
        ("question", "choice a", "choice b", "choice c", "choice d"),
        "answer label",
        images="image",
        train="train",
        verifier="choice",
        files="data/{split}-00000-*.parquet",  # the first of each split: all of them are 14 GB
        ask=cells.with_choices,
    ),
}
# Sets that are made here: config -> the problems to train on, and those to evaluate on.
EMBEDDED = {"countdown": draw_countdown, "arithmetic": draw_arithmetic}

FILES = {".jsonl": "json", ".json": "json", ".csv": "csv", ".parquet": "parquet"}
WHAT_IS_READ = (
    "a data set is .jsonl, .json, .csv (UTF-8) or .parquet, or a folder of one kind, and not empty"
)


def source_of(name: str, config) -> Source:
    """The row of the table, or one for local files, by the flags; UserError for a wrong file."""
    if name in DATASETS:
        return DATASETS[name]
    file = Path(name)
    if file.is_file() and (file.suffix not in FILES or not file.stat().st_size):
        raise UserError(f"the file {name} is of another kind or empty: {WHAT_IS_READ}")
    return Source(
        name,
        config.prompt_column,
        config.answer_column,
        config.image_column,
        train="train",
        verifier=config.verifier,
    )


def reading_rows(name: str):
    """What `loading` is for a data set."""
    return loading(f"the data set {name}", "" if name in DATASETS else f" ({WHAT_IS_READ})")


def load_splits(name: str, source: Source) -> dict:
    """The splits of a data set by name; UserError, in one line, where it cannot be read."""
    import datasets  # takes a second

    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # a failure is told by reading_rows
    if not status.on_terminal():
        datasets.disable_progress_bars()
    with reading_rows(name):
        return datasets.load_dataset(**where_is(name, source))


def where_is(name: str, source: Source) -> dict:
    """What load_dataset is to be told."""
    suffix = Path(name).suffix
    as_written = {}
    if suffix == ".csv" or any(Path(name).glob("**/*.csv")):
        # An empty cell would make floats of a column's integers, and NA is a text.
        as_written = dict(keep_default_na=False)
    if suffix in FILES:
        return dict(path=FILES[suffix], data_files=glob.escape(name), **as_written)
    if source.files:
        folder = f"hf://datasets/{source.path}"
        splits = (source.train, source.test)
        files = {split: f"{folder}/{source.files.format(split=split)}" for split in splits}
        return dict(path="parquet", data_files=files)
    return dict(path=source.path, name=source.configuration, **as_written)


def problems_of(split, name: str, source: Source) -> list[Problem]:
    """A problem for each row of a split, shuffled; UserError where a column is missing.

    Whole columns are read at once, and no others: 100,000 rows one by one take many seconds, and
    the solutions that some sets bring along many GB.
    """
    if not split:
        return []
    asked, answered, pictured = (
        (part,) if isinstance(part, str) else part
        for part in (source.problem, source.answer, source.images or ())
    )
    for column in (*asked, *answered, *pictured):
        if column not in split.column_names:
            columns = ", ".join(split.column_names)
            raise UserError(f"the data set {name} has no column {column!r}; it has {columns}")
    dated, first_day = source.since
    wanted = {*asked, *answered, source.level, dated} & {*split.column_names}
    nothing, images = [""] * len(split), [()] * len(split)
    with reading_rows(name):
        held = split.select_columns([*wanted])[:]
        if pictured:
            # as they are stored: `datasets` itself would decode them all
            stored = split.select_columns([source.images]).with_format("arrow")[:]
            folder = Path(name).parent if Path(name).suffix in FILES else name
            images = [read_images(cell, folder) for cell in stored[source.images].to_pylist()]
    questions = map(source.ask, *(held[column] for column in asked))
    read_gold = source.gold or VERIFIERS[source.verifier].gold
    golds = map(read_gold, *(held[column] for column in answered))
    levels, days = (held.get(column, nothing) for column in (source.level, dated))
    found = [
        Problem(question, gold, source.verifier, str(level or ""), shown)
        for question, gold, level, day, shown in zip(
            questions, golds, levels, days, images, strict=True
        )
        if str(day) >= first_day
    ]
    random.Random(0).shuffle(found)
    return found
