"""report.html: what each token of a run was worth, as one page without a network.

    python studies/report.py runs/x           # writes runs/x/report.html, as the run did at its end
    python studies/report.py runs/x runs/y    # two runs side by side, in runs/x/report.html
    python studies/report.py runs/x --out mail.html

A run keeps the tokens of --log_tokens groups a step in tokens.jsonl. Of a group of G completions it
keeps the first 1200 / G tokens of each.
"""

import argparse
from pathlib import Path

import project  # noqa: F401

from rlvr.errors import UserError
from rlvr.show.report import write_report


def main(folders: list[Path], out: Path) -> None:
    try:
        write_report(out, folders)
    except UserError as error:
        raise SystemExit(f"report.py: error: {error}") from error
    print(f"wrote {out}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("folders", nargs="+", type=Path, help="run folders")
    parser.add_argument("--out", type=Path, help="the page; report.html in the first run's folder")
    given = parser.parse_args()
    main(given.folders, given.out or given.folders[0] / "report.html")
