"""report.html: the tokens, rewards and curves of one run, or of several side by side."""

import json
from pathlib import Path

from rlvr.errors import UserError
from rlvr.logs import none_for_nan, read_rows, write_whole

PAGE = Path(__file__).parent / "report.html"


def write_report(file: Path, folders: list[Path]) -> None:
    """Write the page of these run folders. UserError where one has kept no tokens."""
    runs = [read_run(folder) for folder in folders]
    # A script ends at its closing tag, wherever that stands. So no text of a model may hold one.
    data = json.dumps(runs, separators=(",", ":")).replace("<", "\\u003c")
    write_whole(file, PAGE.read_text().replace("DATA_OF_THE_RUNS", data).encode())


def read_run(folder: Path) -> dict:
    """What the page shows of a run folder."""
    tokens = read_rows(folder, "tokens")
    if not tokens:
        raise UserError(f"{folder} has no tokens.jsonl: its run had --log_tokens 0, or no step yet")
    logs = {log: none_for_nan(read_rows(folder, log)) for log in ("metrics", "eval")}
    return {"name": folder.name, "steps": tokens, **logs}
