"""The .jsonl files of a run folder: a row a line, whole even after a kill or on a full disk.

JSON has neither NaN nor infinite numbers. Both are written as null, which is read as NaN.
TensorBoard, Weights & Biases or trackio may get the rows, too.
"""

import importlib
import json
import math
from dataclasses import asdict
from pathlib import Path

from rlvr.errors import UserError, reading, writing


def read_rows(folder: Path, name: str) -> list[dict]:
    """The rows of <name>.jsonl; none where the run has not written it.

    UserError where a line is not one that append_row has written.
    """
    file = folder / f"{name}.jsonl"
    if not file.exists():
        return []
    rows = [parse(line) for line in lines_of(file)]
    if None in rows:
        raise UserError(f"cannot read {file}: line {rows.index(None) + 1} is damaged")
    return rows


def append_row(folder: Path, name: str, row: dict) -> None:
    """Add a line to <name>.jsonl; UserError where that is not possible."""
    file = folder / f"{name}.jsonl"
    line = json.dumps(none_for_nan(row)) + "\n"
    with writing(file), open(file, "a") as opened:
        opened.write(line)


def none_for_nan(value):
    """None for each number that JSON does not have; everything else as it is."""
    if isinstance(value, dict):
        return {key: none_for_nan(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [none_for_nan(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def copy_logs(folder: Path, suffix: str) -> None:
    """Copy each <name>.jsonl to <name>.<suffix>."""
    for file in folder.glob("[!.]*.jsonl"):
        write_whole(file.with_suffix(f".{suffix}"), b"".join(lines_of(file)))


def drop_rows_after(folder: Path, step: int) -> None:
    """Cut every log back to a step; the half line that a kill has left goes, too.

    A log with other damage is kept under another name, and what it lacks is told.
    """
    for file in folder.glob("[!.]*.jsonl"):
        lines = lines_of(file)
        rows = [parse(line) for line in lines]
        damaged = rows[:-1].count(None)
        if damaged:
            aside = file.with_suffix(".damaged")
            write_whole(aside, b"".join(lines))
            print(f"{file}: {damaged} damaged lines are left out; {aside} has them")
        kept = [line for line, row in zip(lines, rows, strict=True) if row and row["step"] <= step]
        write_whole(file, b"".join(kept))
    missing = {*range(1, step + 1)} - {row["step"] for row in read_rows(folder, "metrics")}
    if missing:
        print(f"{folder}/metrics.jsonl lacks {len(missing)} steps, the first is {min(missing)}")


def lines_of(file: Path) -> list[bytes]:
    """The lines of a file; UserError where it cannot be read."""
    with reading(file):
        return file.read_bytes().splitlines(keepends=True)


def parse(line: bytes) -> dict | None:
    """The row of a whole line; None for anything else."""
    try:
        row = json.loads(line) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or type(row.get("step")) is not int:
        return None
    return {key: math.nan if value is None else value for key, value in row.items()}


def write_whole(file: Path, content: bytes) -> None:
    """Write a file that then holds either what it held before or all of the content."""
    new = file.with_name(f".{file.name}")
    with writing(file):
        new.write_bytes(content)
        new.replace(file)


def make_writer(config, folder: Path):
    """write(metrics, step) for what --report_to names, or None. UserError without the package.

    TensorBoard's event files are in the run folder. The other two have a place of their own, where
    a resumed run has the name of its folder, too.
    """
    if config.report_to == "none":
        return None
    try:
        if config.report_to == "tensorboard":
            return tensorboard_writer(folder)
        package = importlib.import_module(config.report_to)  # wandb, or trackio, which follows it
    except ImportError as error:
        raise UserError(f"--report_to {config.report_to}: {error}") from error
    resume = "allow" if config.resume_from_checkpoint else "never"
    package.init(project="rlvr", name=folder.name, config=asdict(config), resume=resume)
    return package.log


def tensorboard_writer(folder: Path):
    """Write event files into the folder."""
    from torch.utils.tensorboard import SummaryWriter

    events = SummaryWriter(folder)

    def write(metrics: dict[str, float], step: int) -> None:
        for name, value in metrics.items():
            events.add_scalar(name, value, step)

    return write
