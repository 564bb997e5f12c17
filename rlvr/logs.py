"""The .jsonl files of a run folder: a row a line, whole even after a kill or on a full disk."""

import json
import re
from pathlib import Path

from rlvr.errors import writing


def read_rows(folder: Path, name: str) -> list[dict]:
    """The rows of <name>.jsonl; none where the run has not written it."""
    file = folder / f"{name}.jsonl"
    return [json.loads(line) for line in file.open()] if file.exists() else []


def append_row(folder: Path, name: str, row: dict) -> None:
    """Add a line to <name>.jsonl; UserError where that is not possible."""
    file = folder / f"{name}.jsonl"
    with writing(file), open(file, "a") as opened:
        opened.write(json.dumps(row) + "\n")


def drop_rows_after(folder: Path, step: int) -> None:
    """Cut every log back to a step; the half line that a kill has left goes, too."""
    for file in folder.glob("[!.]*.jsonl"):
        lines = [re.fullmatch(r'\{"step": (\d+), .*\}\n', line) for line in file.open()]
        kept = [line[0] for line in lines if line and int(line[1]) <= step]
        write_whole(file, "".join(kept))


def write_whole(file: Path, text: str) -> None:
    """Write a file that then holds either what it held before or all of the text."""
    new = file.with_name(f".{file.name}")
    with writing(file):
        new.write_text(text)
        new.replace(file)
