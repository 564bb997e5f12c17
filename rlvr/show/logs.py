"""The .jsonl files of a run folder: one row per line, whole even after a kill or on a full disk.

JSON has neither NaN nor infinite numbers. Both are written as null, which is read as NaN.
Weights & Biases or trackio may get the rows, too.
"""

import importlib
import json
import math
import re
from dataclasses import asdict
from pathlib import Path

from rlvr.errors import using

# other files of a run folder are the user's
LOGS = ("metrics", "eval", "problems", "samples", "tokens")


def read_rows(folder: Path, name: str) -> list[dict]:
    """Return the rows of <name>.jsonl; none if the run has not written it."""
    file = folder / f"{name}.jsonl"
    lines = file.read_bytes().splitlines() if file.exists() else []
    rows = [json.loads(line) for line in lines if line.strip()]
    return [
        {key: math.nan if value is None else value for key, value in row.items()} for row in rows
    ]


def read_evaluations(folder: Path) -> dict[str, list[dict]]:
    """Return the rows of eval.jsonl for each evaluation set, by its name."""
    by_set = {}
    for row in read_rows(folder, "eval"):
        by_set.setdefault(row["set"], []).append(row)
    return by_set


def ks_of(row: dict) -> list[int]:
    """Return the k of each pass@k in a row of eval.jsonl, rising."""
    return sorted(int(key[5:]) for key in row if re.fullmatch(r"pass@\d+", key))


def keep_problems(folder: Path, rows: list[dict]) -> None:
    """Write problems.jsonl: what it has of the first evaluation, and the rows of the latest one."""
    logged = read_rows(folder, "problems")
    first = [row for row in logged if row["step"] == logged[0]["step"]]
    lines = [json.dumps(row) + "\n" for row in first + rows]
    write_whole(folder / "problems.jsonl", "".join(lines).encode())


def append_row(folder: Path, name: str, row: dict) -> None:
    """Add a line to <name>.jsonl. UserError if that is not possible."""
    file = folder / f"{name}.jsonl"
    row = json.loads(json.dumps(row, default=str), parse_constant=lambda nan_or_infinite: None)
    with using(file), open(file, "a") as opened:
        opened.write(json.dumps(row) + "\n")


def drop_rows_after(folder: Path, step: int) -> None:
    """Cut every log back to a step, and remove a half line that a kill has left."""
    for file in [folder / f"{name}.jsonl" for name in LOGS]:
        lines = file.read_bytes().splitlines(keepends=True) if file.exists() else []
        whole = [line for line in lines if line.endswith(b"\n") and line.strip()]
        kept = [line for line in whole if json.loads(line)["step"] <= step]
        if len(kept) < len(lines):
            write_whole(file, b"".join(kept))


def write_whole(file: Path, content: bytes) -> None:
    """Write a file; after a failure, it still holds what it held before."""
    new = file.with_name(f".{file.name}")
    with using(file):
        new.write_bytes(content)
        new.replace(file)


def make_writer(config, folder: Path):
    """Return log(metrics, step) of the package that --report_to names, or None.

    Its run has the name of the run folder, also after resuming. trackio follows wandb.
    """
    if config.report_to == "none":
        return None
    package = importlib.import_module(config.report_to)
    resume = "allow" if config.resume_from_checkpoint else "never"
    package.init(project="rlvr", name=folder.name, config=asdict(config), resume=resume)
    return package.log
