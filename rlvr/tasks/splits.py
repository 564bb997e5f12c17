"""Reading the rows of a data set: of the hub, of a file, or of a folder."""

import glob
import random
from dataclasses import replace
from pathlib import Path

from rlvr.errors import UserError
from rlvr.records import Problem
from rlvr.tasks.cells import alternatives
from rlvr.tasks.pictures import read_images
from rlvr.tasks.sources import DATASETS, Source

FILES = {".jsonl": "json", ".json": "json", ".parquet": "parquet"}
SAVED = ("dataset_dict.json", "state.json")  # what save_to_disk leaves in its folder


def source_of(name: str, config) -> Source:
    """The row of the table, or one for local files, by the flags."""
    if name in DATASETS:
        return DATASETS[name]
    source = Source(
        name,
        config.prompt_column,
        config.answer_column,
        config.image_column or None,
        train="train",
        test="test",
        verifier=config.verifier,
    )
    if config.answer_lists == "alternatives":
        source = replace(source, gold=alternatives(source.read_gold()))
    return source


def load_splits(name: str, source: Source) -> dict:
    """The splits of a data set by name; UserError, in one line, where it cannot be read."""
    import datasets  # takes a second

    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # what fails is told once, below
    try:
        if any(Path(name, file).exists() for file in SAVED):
            saved = datasets.load_from_disk(name)
            return saved if isinstance(saved, dict) else {"train": saved}
        return datasets.load_dataset(**where_is(name, source))
    except Exception as error:  # of every kind, by format and by network
        reason = str(error.__cause__ or error) or repr(error)
        first_line = reason.splitlines()[0]
        raise UserError(f"cannot load the data set {name}: {first_line}") from error


def where_is(name: str, source: Source) -> dict:
    """What load_dataset is to be told."""
    suffix = Path(name).suffix
    if suffix in FILES:
        return dict(path=FILES[suffix], data_files=glob.escape(name))
    if source.files:
        folder = f"hf://datasets/{source.path}"
        splits = filter(None, (source.train, source.test))
        files = {split: f"{folder}/{source.files.format(split=split)}" for split in splits}
        return dict(path="parquet", data_files=files)
    return dict(path=source.path, name=source.configuration)


def problems_of(split, name: str, source: Source) -> list[Problem]:
    """A problem for each row of a split, shuffled; UserError where a column is missing.

    Whole columns are read at once, and no others: 100,000 rows one by one take many seconds, and
    the solutions that some sets bring along many GB.
    """
    if not split:
        return []
    asked, answered = source.columns("problem"), source.columns("answer")
    pictured = [source.images] if source.images else []
    for column in (*asked, *answered, *pictured):
        if column not in split.column_names:
            columns = ", ".join(split.column_names)
            raise UserError(f"the data set {name} has no column {column!r}; it has {columns}")
    dated, first_day = source.since or (None, "")
    wanted = {*asked, *answered, source.level, dated} & {*split.column_names}
    cells = split.select_columns([*wanted])[:]
    nothing = [None] * len(split)
    images = [()] * len(split)
    if source.images:
        # as they are stored: `datasets` itself would decode them all
        stored = split.select_columns([source.images]).with_format("arrow")[:]
        folder = Path(name).parent if Path(name).suffix in FILES else name
        images = [read_images(cell, folder) for cell in stored[source.images].to_pylist()]
    questions = map(source.ask, *(cells[column] for column in asked))
    golds = map(source.read_gold(), *(cells[column] for column in answered))
    levels = cells.get(source.level, nothing)
    days = cells.get(dated, nothing)
    found = [
        Problem(question, gold, source.verifier, str(level or ""), shown)
        for question, gold, level, day, shown in zip(
            questions, golds, levels, days, images, strict=True
        )
        if str(day or "") >= first_day
    ]
    random.Random(0).shuffle(found)
    return found
