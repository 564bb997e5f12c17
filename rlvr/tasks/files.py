"""Read the user's own files, and keep each cell as it is written.

Table libraries give each column one type. Large integers can become floats then, and a column that
only some rows have is an error.
"""

import csv
import json
from collections.abc import Iterator
from pathlib import Path

import numpy

LONGEST_INTEGER = 4000  # digits; longer ones stay texts, because Python does not read them


def read_columns(files: list[str], wanted: set[str]) -> tuple[list[str], dict[str, list]]:
    """Return the names of all columns, and the cells of the wanted ones, None for missing cells.

    A CSV row with too many fields loses its cells, because an unquoted comma shifts them. Damaged
    files raise errors of many kinds.
    """
    names, rows = {}, []
    for file in files:
        for row in READERS[Path(file).suffix](file, wanted):
            names |= dict.fromkeys(row)
            rows.append({column: row[column] for column in wanted if column in row})
    if not rows:
        raise ValueError("it has no rows")
    return [*names], {column: [row.get(column) for row in rows] for column in wanted & {*names}}


def read_json(file: str, wanted: set[str]) -> Iterator[dict]:
    """Yield the rows of a list of objects, or of a file with one object per line."""
    text = Path(file).read_text(encoding="utf-8-sig")
    if text.lstrip()[:1] == "[":
        yield from map(as_row, loads(text))
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield as_row(loads(line))
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from None


def loads(text: str):
    """Parse JSON with exact integers."""

    def exact(digits: str) -> int | str:
        return int(digits) if len(digits) < LONGEST_INTEGER else digits

    return json.loads(text, parse_int=exact)


def as_row(value) -> dict:
    """Return an object; raise a ValueError for another value."""
    if not isinstance(value, dict):
        raise ValueError("a row is not an object")
    return value


def read_csv(file: str, wanted: set[str]) -> Iterator[dict]:
    """Yield the rows of a CSV file. Cells are texts."""
    csv.field_size_limit(2**31 - 1)
    with open(file, encoding="utf-8-sig", newline="") as lines:
        for row in csv.DictReader(lines):
            yield dict.fromkeys(row.keys() - {None}) if None in row else row


def read_parquet(file: str, wanted: set[str]) -> Iterator[dict]:
    """Yield the rows of a parquet file. Other columns are not read; their cells are None."""
    import pyarrow.parquet  # a run on the built-in problems does not need it

    names = pyarrow.parquet.read_schema(file).names
    table = pyarrow.parquet.read_table(file, columns=[name for name in names if name in wanted])
    columns = {name: cells_of(table[name]) for name in table.column_names}
    for cells in zip(*columns.values(), strict=True) if columns else [()]:
        yield dict.fromkeys(names) | dict(zip(columns, cells, strict=True))


def cells_of(column) -> list:
    """Return the cells of an Arrow column; the float32 nearest to 0.1 becomes 0.1."""
    cells = column.to_pylist()
    if str(column.type) not in ("float", "halffloat"):
        return cells
    kind = {"float": numpy.float32, "halffloat": numpy.float16}[str(column.type)]
    return [None if cell is None else float(str(kind(cell))) for cell in cells]


READERS = {".json": read_json, ".jsonl": read_json, ".csv": read_csv, ".parquet": read_parquet}
