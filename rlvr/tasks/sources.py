"""The tables of data sets: those of the hub and those that are made here; and reading their rows.

A data set of the user's own is a file, or a folder of files.
"""

import csv
import glob
import random
from dataclasses import dataclass
from pathlib import Path

from rlvr import status
from rlvr.errors import loading
from rlvr.tasks import cells
from rlvr.tasks.embedded import draw_arithmetic, draw_countdown
from rlvr.tasks.pictures import read_images
from rlvr.tasks.problems import Problem
from rlvr.verify import VERIFIERS


@dataclass(frozen=True)
class Source:
    """Where a data set is, and what its columns hold. Several columns have semicolons between them.

    A row of hub.csv, whose functions stand in cells.py.
    """

    name: str  # for --dataset
    path: str  # hub id, or local path
    problem: str  # columns whose cells `ask` takes
    answer: str  # columns whose cells `gold` takes
    verifier: str
    train: str  # split to train on; none if ""
    test: str = "test"  # split to evaluate on; there may be none of this name
    part: str = ""  # of the hub's set: its configuration, or its parquet files of a {split}
    ask: str = ""  # function: cells -> question; read_question if ""
    gold: str = ""  # function: cells -> gold answer; as the verifier's entry says if ""
    images: str = ""  # column whose cells rlvr.tasks.pictures reads
    level: str = ""  # column whose values are also evaluated by themselves
    since: str = ""  # a column of dates, and the first that is wanted


TABLE = Path(__file__).with_name("hub.csv").read_text().splitlines()
DATASETS = {row["name"]: Source(**row) for row in csv.DictReader(TABLE)}
# Sets that are made here: config -> the problems to train on, and those to evaluate on.
EMBEDDED = {"countdown": draw_countdown, "arithmetic": draw_arithmetic}


def source_of(name: str, config) -> Source:
    """The row of the table, or one for local files, by the flags."""
    if name in DATASETS:
        return DATASETS[name]
    return Source(
        name,
        name,
        config.prompt_column,
        config.answer_column,
        config.verifier,
        train="train",
        images=config.image_column,
    )


def reading_rows(source: Source):
    """What `loading` is for a data set."""
    hint = " (a data set is .jsonl, .json, .csv (UTF-8) or .parquet, or a folder of these)"
    return loading(f"the data set {source.name}", "" if source.name in DATASETS else hint)


def load_splits(source: Source) -> dict:
    """The splits of a data set by name; UserError, in one line, where it cannot be read."""
    import datasets  # takes a second

    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # a failure is told by reading_rows
    if not status.on_terminal():
        datasets.disable_progress_bars()
    with reading_rows(source):
        return datasets.load_dataset(**where_is(source))


def where_is(source: Source) -> dict:
    """What load_dataset is to be told."""
    file = Path(source.path).absolute()
    if file.is_file():
        return dict(path=str(file.parent), data_files=glob.escape(file.name))
    if "{split}" in source.part:
        pattern = f"hf://datasets/{source.path}/{source.part}"
        files = {split: pattern.format(split=split) for split in (source.train, source.test)}
        return dict(path="parquet", data_files=files)
    return dict(path=source.path, name=source.part or None)


def problems_of(split, source: Source) -> list[Problem]:
    """A problem for each row of a split, shuffled; UserError where a column is missing.

    Whole columns are read at once, and no others: 100,000 rows one by one take many seconds, and
    the solutions that some sets bring along many GB.
    """
    if not split:
        return []
    asked, answered = source.problem.split(";"), source.answer.split(";")
    dated, _, first_day = source.since.partition(" ")
    columns = {*asked, *answered, source.images, source.level, dated} - {""}
    nothing, images = [""] * len(split), [()] * len(split)
    with reading_rows(source):
        chosen = split.select_columns([*columns])
        if source.images:
            # as they are stored: `datasets` itself would decode them all
            held = chosen.with_format("arrow")[:].to_pydict()
            path = Path(source.path)
            folder = path.parent if path.is_file() else path
            images = [read_images(cell, folder) for cell in held[source.images]]
        else:
            held = chosen[:]
    ask = getattr(cells, source.ask or "read_question")
    gold = getattr(cells, source.gold) if source.gold else VERIFIERS[source.verifier].gold
    questions = map(ask, *(held[column] for column in asked))
    golds = map(gold, *(held[column] for column in answered))
    levels, days = (held.get(column, nothing) for column in (source.level, dated))
    rows = zip(questions, golds, levels, images, days, strict=True)
    found = [
        Problem(question, answer, source.verifier, str(level or ""), shown)
        for question, answer, level, shown, day in rows
        if str(day) >= first_day
    ]
    random.Random(0).shuffle(found)
    return found
