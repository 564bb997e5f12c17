"""Read the rows of data sets, and keep each cell as it is written.

Table libraries give each column one type. Large integers can become floats then, and a column that
only some rows have is an error.
"""

import csv
import json
from collections.abc import Iterator
from pathlib import Path


def read_rows(split, wanted: set) -> tuple[list[str], list[dict]]:
    """Return the names of all columns, and the rows, which hold only the wanted columns.

    A split is a list of the user's files, or one that `datasets` has loaded. Damaged files raise
    errors of many kinds.
    """
    if not isinstance(split, list):
        held = [name for name in split.column_names if name in wanted]
        # In this format 100,000 rows take less than a second.
        return split.column_names, rows_of(split.select_columns(held).with_format("arrow")[:])
    names, rows = {}, []
    for file in split:
        for row in READERS[Path(file).suffix](file, wanted):
            if not isinstance(row, dict):
                raise ValueError("a row is not an object")
            names |= dict.fromkeys(row)
            rows.append({column: row[column] for column in wanted if column in row})
    if not rows:
        raise ValueError("it has no rows")
    return [*names], rows


def read_json(file: str, wanted: set) -> Iterator[dict]:
    """Yield the rows of a list of objects, or of a file with one object per line."""
    text = Path(file).read_text(encoding="utf-8-sig")
    if text.lstrip()[:1] == "[":
        yield from json.loads(text, object_pairs_hook=each_once)
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield json.loads(line, object_pairs_hook=each_once)
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from None


def each_once(cells: list[tuple]) -> dict:
    """Return (name, cell) pairs as a row. ValueError if a name occurs twice: which one counts?"""
    row = dict(cells)
    if len(row) < len(cells):
        raise ValueError(f"a name occurs twice among {', '.join(name for name, _ in cells)}")
    return row


def read_csv(file: str, wanted: set) -> Iterator[dict]:
    """Yield the rows of a CSV file, whose cells are texts."""
    csv.field_size_limit(2**31 - 1)
    with open(file, encoding="utf-8-sig", newline="") as lines:
        reader = csv.DictReader(lines)
        names = [name.strip() for name in reader.fieldnames or ()]
        reader.fieldnames = [*each_once([(name, None) for name in names])]
        for row in reader:
            # Surplus fields have the key None: an unquoted comma has shifted the cells.
            yield dict.fromkeys(row.keys() - {None}) if None in row else row


def read_parquet(file: str, wanted: set) -> Iterator[dict]:
    """Yield the rows of a parquet file. Other columns are not read; their cells are None."""
    import pyarrow.parquet  # a run on the built-in problems does not need it

    names = pyarrow.parquet.read_schema(file).names
    table = pyarrow.parquet.read_table(file, columns=[name for name in names if name in wanted])
    for row in rows_of(table):
        yield dict.fromkeys(names) | row


def rows_of(table) -> list[dict]:
    """Return the rows of an Arrow table, with cells as they are written."""
    # float16 and float32, also within others; float64 is called double
    kinds = {field.name: field.type for field in table.schema if "float" in str(field.type)}
    rows = table.to_pylist()
    for row in rows:
        row |= {name: as_written(row[name], kind) for name, kind in kinds.items()}
    return rows


def as_written(cell, kind):
    """Return a cell of an Arrow type; the float32 or float16 nearest to 0.1 becomes 0.1."""
    if isinstance(cell, float) and str(kind) in ("float", "halffloat"):
        return float(str(kind.to_pandas_dtype()(cell)))
    inner = [kind.field(i).type for i in range(kind.num_fields)]
    if isinstance(cell, list) and inner:
        return [as_written(each, *inner) for each in cell]
    if isinstance(cell, dict) and inner:
        return dict(zip(cell, map(as_written, cell.values(), inner), strict=True))
    return cell


READERS = {".json": read_json, ".jsonl": read_json, ".csv": read_csv, ".parquet": read_parquet}
