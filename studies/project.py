"""Where the project lies, and tables on its pages. A study imports this module before all others.

So it runs from any folder, and rlvr sets how torch's threads wait before torch is imported.
"""

import sys
from pathlib import Path

STUDIES = Path(__file__).resolve().parent
ROOT = STUDIES.parent
FIGURES = STUDIES / "figures"

sys.path.insert(0, str(ROOT))

import rlvr  # noqa: F401


def markdown_table(head: list[str], rows: list[list[str]]) -> list[str]:
    """The lines of a table, from the cells of its head and of each row."""
    ruler = "|---" * len(head) + "|"
    return [f"| {' | '.join(head)} |", ruler, *(f"| {' | '.join(row)} |" for row in rows)]


def fill_in(page: Path, found: dict[str, list[str]]) -> None:
    """Write the lines of each section between its marks, `<!-- name -->` and `<!-- end -->`."""
    text = page.read_text()
    for name, lines in found.items():
        before, begin, rest = text.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition("<!-- end -->")
        text = before + begin + "\n".join(["", *lines, "", ""]) + end + after
    page.write_text(text)
