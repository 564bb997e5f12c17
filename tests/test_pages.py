"""The pages of docs/ on a phone: no error, nothing wider than the screen; and how a tour opens."""

import html
import json
import re

from rlvr.show import METHODS

import pytest
from browser import open_page
from runs import ROOT, SCRIPTS

DOCS = ROOT / "docs"
TOURS = [f"tours/{script}.html" for script in SCRIPTS]
EARLY = "<script>const errors = []; onerror = (message) => errors.push(message);</script>"
LATE = """
<script>
addEventListener("load", () => {
  parent.document.title = JSON.stringify({
    errors,
    widths: [document.documentElement.scrollWidth, document.documentElement.clientWidth],
    signs: [...document.querySelectorAll(".sign")].map((sign) => sign.textContent),
    passes: [...document.querySelectorAll("button.on")]
      .filter((button) => button.parentNode.textContent.startsWith("pass "))
      .map((button) => button.textContent),
  });
});
</script>
</body>
"""


def on_a_phone(page, folder):
    """What LATE tells of a page in a frame that is 400 pixels wide."""
    text = page.read_text().replace("<head>", f"<head>{EARLY}", 1).replace("</body>", LATE)
    frame = f'<iframe style="width: 400px; height: 800px; border: 0" srcdoc="{html.escape(text)}">'
    (folder / "frame.html").write_text(f"<title></title>{frame}</iframe>")
    dumped = open_page(folder / "frame.html")
    return json.loads(html.unescape(re.search("<title>(.*?)</title>", dumped, re.S)[1]))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["index.html", "playground.html", *TOURS])
def test_on_a_phone(name, tmp_path):
    found = on_a_phone(DOCS / name, tmp_path)
    assert found["errors"] == [] and len({*found["widths"]}) == 1
    if name in TOURS:
        titles = ["Roll out", "Advantage", "Ratio and clip", "Update"]
        assert [sign.partition(". ")[0] for sign in found["signs"]] == titles
        assert found["passes"][0] == "4"  # of the loop over minibatches, the last


def test_a_method_has_one_colour():
    """In the light theme the pages have those of the figures; GRPO is black, or nearly."""
    front, playground = ((DOCS / f"{name}.html").read_text() for name in ("index", "playground"))
    for method, color in METHODS.items():
        if method != "GRPO":
            assert f"--{method}: {color.lower()};" in front
            assert f"--{method.lower().replace('-', '')}: {color.lower()};" in playground
