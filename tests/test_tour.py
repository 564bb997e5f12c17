"""studies/tours/tour.py: a script line by line with its numbers, and its shape comments checked."""

import json
import re
import sys

import rlvr.tasks.datasets

import pytest
from browser import open_page
from runs import ROOT, SCRIPTS, countdown_problems, left_as_it_was

from studies.tours import tour

# Sizes that differ from each other: B 8, G 3, N 24, n 12, m 7 or less, and T some 26.
SIZES = "--prompts_per_step 8 --num_generations 3 --minibatch_size 12 --num_iterations 1"
SIZES += " --top_p 0.9 --eval_problems 1 --eval_samples 1 --microbatch_tokens 260"
# Together they come to all lines that have a shape comment.
RUNS = [
    ("grpo", "--variant two-stage-gspo"),  # a reference, and one ratio per response
    ("agrae", "--format_share 0.5 --vllm_importance_sampling_cap 2"),
    ("asymgrpo", "--log_gain"),
    ("fade", ""),
    ("cwgrpo", ""),
    ("cwgrpo", "--variant released"),
]


SEEN = """
const all = (selector) => [...document.querySelectorAll(selector)];
document.getElementById("all").click();
const count = (one) => [parseInt(one.textContent), one.parentNode.querySelectorAll(".new").length];
const seen = [document.getElementById("letters").textContent,
  all("#samples .label").map((one) => one.textContent), all(".changed").map(count)];
"""


def data_of(page):
    """What a page shows."""
    data = json.loads(page.split('application/json">')[1].split("</script>")[0])
    data["tables"] = [[data["rows"][row] for row in table] for table in data["tables"]]
    return data


@pytest.mark.slow
def test_shape_comments_are_true(tmp_path, monkeypatch):
    """All of the five scripts and common.py: each stands beside a tensor of that shape."""
    monkeypatch.setattr(rlvr.tasks.datasets, "load_problems", countdown_problems)
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.chdir(tmp_path)
    checked, written = set(), set()
    for i, (script, flags) in enumerate(RUNS):
        found = tour.Tour(ROOT / f"{script}.py")
        with left_as_it_was():
            tour.run(found, [*SIZES.split(), *flags.split(), f"--output_dir={i}"])
        assert not found.wrong, script
        checked |= found.checked
        for source in found.sources.values():
            written |= {(source.name, line) for line in source.comments}
    assert {name for name, _ in written} == {"common.py", *(f"{script}.py" for script in SCRIPTS)}
    assert written - checked == set()


@pytest.mark.slow
def test_a_tour_made_now(tmp_path, monkeypatch):
    """It has the lines, passes and names of the page in docs/, and (r - mean) / std by hand."""
    monkeypatch.setattr(sys, "argv", [])
    found = tour.Tour(ROOT / "grpo.py")
    with left_as_it_was():
        tour.run(found, [f"--output_dir={tmp_path}/run"])
    data, kept = data_of(found.page("")), data_of((ROOT / "docs/tours/grpo.html").read_text())
    shown, in_docs = (
        [
            (call["of"], line, passes, [name for name, _ in items])
            for call in each["calls"]
            for line, passes, items, _ in call["visits"]
        ]
        for each in (data, kept)
    )
    assert shown == in_docs and data["functions"] == kept["functions"]
    _, (letters, labels, changed) = open_page(tmp_path, found.page(""), SEEN)
    assert letters.startswith("B = 2 prompts, G = 4 completions of each, N = 8 completions, T = ")
    assert labels == [f"{i} {'✓' if r else '✗'}" for i, (*_, r) in enumerate(data["samples"])]
    assert all(marked in (0, count) for count, marked in changed if count)  # 0 of many
    value, *_ = (  # [B, G], and later [N, 1]
        value
        for call in data["calls"]
        for *_, items, _ in call["visits"]
        for name, value in items
        if name == "advantages" and data["functions"][call["of"]]["name"] == "main"
    )
    for i, row in enumerate(data["tables"][data["values"][value]["table"]]):
        group = [reward for _, _, reward in data["samples"][4 * i : 4 * i + 4]]
        p = sum(group) / 4
        expected = [(r - p) / (p * (1 - p)) ** 0.5 for r in group]
        assert row == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("script", SCRIPTS)
def test_pages_of_the_scripts(script):
    """docs/tours/: small, alone, and of the script as it is.

    Where a script has changed, `python studies/tours/tour.py --make` makes them anew.
    """
    text = (ROOT / "docs" / "tours" / f"{script}.html").read_text()
    assert len(text) < 300_000
    assert "http" not in text.replace("https://arxiv.org", "")
    assert not re.search("/(?:home|root|tmp|work)/", text)
    template = (ROOT / "studies/tours/tour.html").read_text().replace("NAME", f"{script}.py")
    before, after = template.split("DATA_OF_THE_TOUR")
    assert text.startswith(before) and text.endswith(after)
    data = data_of(text)
    page = {function["name"]: function["lines"] for function in data["functions"]}
    source = tour.Source(ROOT / f"{script}.py")
    first = next(line for line, node in source.functions.items() if node.name == "main")
    assert page["main"] == source.describe(first, "main")["lines"]
    assert not data["wrong"]
