"""The tables of data sets, from the hub and made here, and the reading of their rows.

A data set of the user's own is a file, or a folder of files.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rlvr import status
from rlvr.errors import UserError, loading
from rlvr.tasks import cells
from rlvr.tasks.embedded import draw_arithmetic, draw_countdown
from rlvr.tasks.files import READERS, cells_of, read_columns
from rlvr.tasks.pictures import read_images
from rlvr.tasks.problems import Problem
from rlvr.verify.verifiers import VERIFIERS


@dataclass(frozen=True)
class Source:
    """Where a data set is, and what its columns hold. Several columns are given as a tuple."""

    path: str  # hub id, or local path
    problem: str | tuple[str, ...]  # columns whose cells `ask` takes
    answer: str | tuple[str, ...]  # columns whose cells `gold` takes
    images: str = ""  # column whose cells rlvr.tasks.pictures reads
    train: str | None = None  # split to train on
    test: str = "test"  # split to evaluate on; the set may not have it
    level: str = ""  # column whose values are also evaluated separately
    verifier: str = "math"
    configuration: str | None = None  # of a hub set
    files: str | None = None  # parquet files of a hub set; {split} stands for the split
    since: tuple[str, str] = ("", "")  # a column of dates, and the first date that counts
    ask: Callable = cells.read_question  # cells -> question
    gold: Callable | None = None  # cells -> gold answer; None takes the verifier's


LIVECODEBENCH: dict[str, Any] = dict(
    path="lighteval/code_generation_lite",  # LiveCodeBench's own set, without its script
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
        files="ALL/{split}-*.parquet",  # the repository also has a script, which we do not run
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
    "livecodebench-v5": Source(**LIVECODEBENCH, configuration="release_v5"),
    "livecodebench-v6": Source(
        **LIVECODEBENCH, configuration="release_v6", since=("contest_date", "2024-08")
    ),
    # A-GRAE's sets with images. Its medical set is a mixture; this is the largest part.
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
        # some questions stand in the image alone
        ask=lambda question: question or "Answer the question that stands in the image.",
    ),
    "pmc-vqa": Source(
        "mdwiratathya/PMC-VQA_small",
        ("question", "choice a", "choice b", "choice c", "choice d"),
        "answer label",
        images="image",
        train="train",
        verifier="choice",
        files="data/{split}-00000-*.parquet",  # the first of each split; all files have 14 GB
        ask=cells.with_choices,
    ),
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


def source_of(name: str, config) -> Source:
    """Return a row of the table, or one made of the flags; raise a UserError for a wrong file."""
    if name in DATASETS:
        return DATASETS[name]
    file = Path(name)
    if file.is_file() and (file.suffix not in READERS or not file.stat().st_size):
        raise UserError(f"the file {name} is of another kind or empty: {WHAT_IS_READ}")
    columns = config.columns.split(",")  # of the problem, of the answer, and perhaps of images
    return Source(name, *columns, train="train", verifier=config.verifier)


def reading_rows(name: str):
    """Return the `loading` context for a data set."""
    return loading(f"the data set {name}", "" if name in DATASETS else f" ({WHAT_IS_READ})")


def load_splits(name: str, source: Source) -> dict:
    """Return, by split, its rows on the hub or the local files that hold it.

    In a folder without `test`, `validation` is evaluated. Raise a UserError if nothing is found.
    """
    if Path(name).suffix in READERS:
        return {"train": [name]}
    import datasets  # takes a second

    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # reading_rows reports failures
    if not status.on_terminal():
        datasets.disable_progress_bars()
    with reading_rows(name):
        if not Path(name).is_dir():
            return load_from_hub(source.path, where_is(name, source))
        found = datasets.load_dataset_builder(name).config.data_files
        splits = {str(split): [*files] for split, files in found.items()}
        splits.setdefault("test", splits.get("validation", []))
        return splits


def load_from_hub(path: str, where: dict):
    """Return load_dataset of a set, or what is cached of it if the hub does not answer.

    load_dataset itself would try for most of a minute. Any answer will do, even that the set is
    not there, which load_dataset says better.
    """
    import datasets
    import huggingface_hub

    offline = False
    try:
        huggingface_hub.dataset_info(path, timeout=3)
    except huggingface_hub.errors.HfHubHTTPError:
        pass
    except Exception:  # of the network library, or offline mode
        offline = True
    if not offline:
        return datasets.load_dataset(**where)
    datasets.config.HF_HUB_OFFLINE = huggingface_hub.constants.HF_HUB_OFFLINE = True
    try:
        return datasets.load_dataset(**where)
    except ConnectionError:
        raise ConnectionError(
            "the hub does not answer, and the set is not in its cache; countdown, arithmetic and "
            "files of your own need no network"
        ) from None


def where_is(name: str, source: Source) -> dict:
    """Return the arguments of load_dataset for a set on the hub."""
    if source.files:
        folder = f"hf://datasets/{source.path}"
        splits = (source.train, source.test)
        files = {split: f"{folder}/{source.files.format(split=split)}" for split in splits}
        return dict(path="parquet", data_files=files)
    return dict(path=source.path, name=source.configuration)


def read_cells(split, wanted: set[str]) -> tuple[list[str], dict[str, list]]:
    """Return the names of all columns of a split, and the cells of the wanted ones."""
    if isinstance(split, list):
        return read_columns(split, wanted)
    names = [name for name in split.column_names if name in wanted]
    # In this format `datasets` does not decode images.
    table = split.select_columns(names).with_format("arrow")[:]
    return split.column_names, {name: cells_of(table[name]) for name in names}


def problems_of(split, name: str, source: Source) -> list[Problem]:
    """Return one problem per row of a split, shuffled; raise a UserError for a missing column.

    Only the needed columns are read, each at once: some sets have solutions of many GB, and reading
    100,000 rows one by one takes many seconds.
    """
    if not split:
        return []
    asked, answered, pictured = (
        (part,) if isinstance(part, str) else part
        for part in (source.problem, source.answer, source.images or ())
    )
    dated, first_day = source.since
    needed = [*asked, *answered, *pictured]
    with reading_rows(name):
        names, held = read_cells(split, {*needed, source.level, dated})
    for column in needed:
        if column not in held:
            hint = "" if name in DATASETS else "; --columns names those to read"
            raise UserError(
                f"the data set {name} has no column {column!r}; it has {', '.join(names)}{hint}"
            )
    rows = len(held[needed[0]])
    nothing, images = [""] * rows, [()] * rows
    if pictured:
        folder = name if Path(name).is_dir() else Path(name).parent
        with reading_rows(name):
            images = [read_images(cell, folder) for cell in held[source.images]]
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
