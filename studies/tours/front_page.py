"""docs/index.html, GRPO in five minutes: the page made anew from its template, front_page.html.

    python studies/tours/front_page.py

The numbers are those that the page has. They come from three seeds of the command that it shows,
and were recorded once, by studies/front_page at commit 2dec987. At commit f66581d on another
machine, the evaluations of two seeds agreed up to step 20, and differed later. The formulas are
those of the playground.
"""

import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the project's root

from studies.project import ROOT, STUDIES

PAGE = ROOT / "docs" / "index.html"


def make_page(numbers: dict) -> str:
    """Return the page with these numbers."""
    playground = (ROOT / "docs" / "playground.html").read_text()
    formulas = re.search(r'<script id="formulas">(.*?)</script>', playground, re.S)[1]
    data = json.dumps(numbers, separators=(",", ":")).replace("<", "\\u003c")
    page = (STUDIES / "tours" / "front_page.html").read_text()
    return page.replace("FORMULAS_OF_THE_PLAYGROUND", formulas).replace("DATA_OF_THE_RUN", data)


def numbers_in(page: str) -> dict:
    """Return the numbers that a page was made from."""
    inside = page.split('<script id="data" type="application/json">')[1]
    return json.loads(inside.split("</script>")[0])


if __name__ == "__main__":
    PAGE.write_text(make_page(numbers_in(PAGE.read_text())))
    print(f"wrote {PAGE}")
