"""Data sets in files, and what is read from them."""

import csv
import json
import tempfile
from dataclasses import astuple

from rlvr.errors import UserError
from rlvr.flags.config import Config
from rlvr.tasks.datasets import load_problems

import datasets
import pyarrow
import pyarrow.parquet
import pytest

CACHE = tempfile.TemporaryDirectory()
datasets.config.HF_DATASETS_CACHE = CACHE.name


def write(path, rows):
    """A .jsonl, .json, .csv or .parquet file of rows, which are dicts; or of bytes -> its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(rows, bytes):
        path.write_bytes(rows)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".csv":
        with path.open("w") as file:
            csv.writer(file).writerows([rows[0], *(row.values() for row in rows)])
    else:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return str(path)


def own(texts):
    return [dict(prompt=text, answer="7") for text in texts]


def load(tokenizer, **flags):
    """load_problems by these flags, without system prompts unless they ask for some."""
    return load_problems(Config(**{"system_prompt": "none", **flags}), tokenizer)


def evaluated(tokenizer, file, **flags):
    return load(tokenizer, dataset=file, max_steps=0, **flags)[1][file]


def in_order(problems):
    return sorted(problems, key=astuple)


def prompts_of(problems):
    return {problem.prompt for problem in problems}


def refused(parts, function, *given, **flags):
    """Calling the function raises a UserError, whose message is one line that holds `parts`."""
    with pytest.raises(UserError) as error:
        function(*given, **flags)
    message = str(error.value)
    assert len(message.splitlines()) == 1
    assert all(part in message for part in parts), message
    return message
