"""The tables of data sets, from the hub and made here, and the reading of their rows."""

import itertools
import random
import threading
from collections.abc import Callable
from concurrent.futures import Future
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
    files: dict[str, str] | None = None  # parquet files of a hub set, by split
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
        "BAAI/TACO",
        ("question", "starter_code"),
        "input_output",
        train="train",
        level="difficulty",
        verifier="code",
        # the repository also has a script, which we do not run
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
    "livecodebench-v5": Source(**LIVECODEBENCH, configuration="release_v5"),
    "livecodebench-v6": Source(
        **LIVECODEBENCH, configuration="release_v6", since=("contest_date", "2024-08")
    ),
    "geo3k": Source("hiyouga/geometry3k", "problem", "answer", images="images", train="train"),
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

    In a folder without `test`, `validation` is evaluated.
    """
    if Path(name).suffix in READERS:
        return {"train": [name]}
    import datasets  # takes a second

    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # reading_rows reports failures
    if not status.on_terminal():
        datasets.disable_progress_bars()
    with reading_rows(name):
        if not Path(name).is_dir():
            return load_from_hub(source)
        found = datasets.load_dataset_builder(name).config.data_files or {}
    splits = {str(split): [*files] for split, files in found.items()}
    return {"test": splits.get("validation", []), **splits}


def ask_hub(ask: Callable, path: str, seconds=3.0) -> None:
    """Run a question of huggingface_hub about a model or data set, in a thread of its own.

    TimeoutError if no answer comes in time. `timeout` alone leaves out the search for the hub's
    address, which takes half a minute in a network that drops everything.
    """
    answer = Future()

    def wait():
        try:
            answer.set_result(ask(path, timeout=seconds))
        except Exception as error:
            answer.set_exception(error)

    threading.Thread(target=wait, daemon=True).start()
    try:
        answer.result(seconds)
    except TimeoutError:
        raise TimeoutError("the hub does not answer") from None


def load_from_hub(source: Source):
    """Return load_dataset of a set, or its cached copy if the hub does not answer.

    load_dataset itself would try for most of a minute, but it has the clearest message for a set
    that the hub does not have.
    """
    import datasets.config
    import huggingface_hub

    try:
        ask_hub(huggingface_hub.dataset_info, source.path)
    except huggingface_hub.errors.HfHubHTTPError:
        pass
    except Exception:  # of the network library, or offline mode
        datasets.config.HF_HUB_OFFLINE = huggingface_hub.constants.HF_HUB_OFFLINE = True
    try:
        return datasets.load_dataset(**where_is(source))
    except ConnectionError:
        raise ConnectionError(
            "the hub does not answer, and the set is not in its cache; countdown, arithmetic and "
            "files of your own need no network"
        ) from None


def where_is(source: Source) -> dict:
    """Return the arguments of load_dataset for a set on the hub."""
    if source.files:
        return dict(path="parquet", data_files=source.files)
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
    """Return one problem per row of a split, shuffled. UserError for a missing column.

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
    folder = name if Path(name).is_dir() else Path(name).parent
    with reading_rows(name):
        # "" is no column here, though pandas writes its index under that name
        names, held = read_cells(split, {*needed, source.level, dated} - {""})
        shown = [read_images(cell, folder) for cell in held.get(source.images, [])]
    for column in needed:
        if column not in held:
            hint = "" if name in DATASETS else "; --columns names those to read"
            raise UserError(
                f"the data set {name} has no column {column!r}; it has {', '.join(names)}{hint}"
            )
    read_gold = source.gold or VERIFIERS[source.verifier].gold
    rows = zip(
        map(source.ask, *(held[column] for column in asked)),
        map(read_gold, *(held[column] for column in answered)),
        held.get(source.level, itertools.repeat("")),
        held.get(dated, itertools.repeat("")),
        shown or itertools.repeat(()),
        strict=False,
    )
    found = [
        Problem(question, gold, source.verifier, str(level or ""), images)
        for question, gold, level, day, images in rows
        if str(day) >= first_day
    ]
    random.Random(0).shuffle(found)
    return found
