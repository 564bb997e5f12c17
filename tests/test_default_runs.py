"""studies/default_runs.py: what it runs and keeps, and that the documents show just that."""

import re
import sys
from pathlib import Path

from rlvr.logs import read_rows

import pytest
from runs import ROOT

sys.path.insert(0, str(ROOT / "studies"))
import default_runs
from tables import fill_in
from written_runs import write_rows

README = (ROOT / "README.md").read_text()


def evaluation(pass_at_1, pass_at_32, entropy):
    return {"step": 0, "pass@1": pass_at_1, "pass@32": pass_at_32, "token_entropy": entropy}


def test_a_finished_run_is_kept(tmp_path, monkeypatch):
    commands = []

    def run_script(command, log, environment):
        commands.append(command)
        folder = Path(command.split()[-1])
        folder.mkdir(parents=True)
        for name in ("metrics", "eval", "samples"):
            write_rows(folder, name, [{"step": 1}])

    monkeypatch.setattr(default_runs, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(default_runs, "run_script", run_script)
    for _ in range(2):
        default_runs.one_run("fade", 2, tmp_path / "runs")
    assert commands == [f"fade --num_threads 1 --seed 2 --output_dir {tmp_path}/runs/fade-2"]
    kept = {path.name for path in (tmp_path / "results" / "fade-2").iterdir()}
    assert kept == {"metrics.jsonl", "eval.jsonl"}


def test_the_table_has_the_first_and_the_last_evaluation(tmp_path):
    for script in default_runs.SCRIPTS:
        for seed in range(3):
            first = evaluation(0.25 + seed / 10, 0.75, 0.5)
            last = evaluation(0.5, 0.875 - seed / 10, 0.125)
            folder = tmp_path / f"{script}-{seed}"
            folder.mkdir()
            write_rows(folder, "eval", [first, evaluation(0, 0, 0), last])
    found = default_runs.table(tmp_path)
    assert len(found) == 2 + 5
    assert found[2].startswith("| `grpo.py` | 0.25, 0.35, 0.45 | 0.50, 0.50, 0.50 | ")
    assert found[2].endswith(" | 0.75, 0.75, 0.75 | 0.88, 0.78, 0.68 | 0.125, 0.125, 0.125 |")


def test_the_page_has_the_table_of_the_committed_runs():
    page = default_runs.PAGE.read_text()
    table = default_runs.table(default_runs.RESULTS)
    assert "\n".join(table) in page
    assert fill_in(page, {"default runs": table}) == page


def test_a_figure_is_drawn_of_each_script(tmp_path, monkeypatch):
    monkeypatch.setattr(default_runs, "PAGE", tmp_path / "page.md")
    default_runs.PAGE.write_text("<!-- default runs -->\n<!-- end -->\n")
    for script in default_runs.SCRIPTS:
        for seed in range(3):
            folder = tmp_path / "results" / f"{script}-{seed}"
            folder.mkdir(parents=True)
            write_rows(folder, "eval", [evaluation(0.5, 0.75, 0.5)])
            write_rows(folder, "metrics", [{"step": 1, "reward": 0.5}])
    default_runs.write_report(tmp_path / "results", tmp_path)
    assert {path.stem for path in tmp_path.glob("*.png")} == {*default_runs.SCRIPTS}
    assert "| `cwgrpo.py` | 0.50, 0.50, 0.50 |" in default_runs.PAGE.read_text()


@pytest.mark.parametrize("log, step", [("eval", 0), ("metrics", 1), ("metrics", 60)])
def test_the_readmes_lines_are_those_of_the_run(log, step):
    """They are numbers of `python grpo.py --num_threads 1`, the run of the figure below them."""
    (line,) = re.findall(rf"^{log} {step}/60 \| (.*)$", README, re.MULTILINE)
    (row,) = [row for row in read_rows(default_runs.RESULTS / "grpo-0", log) if row["step"] == step]
    shown = [part.split() for part in line.split(" | ") if part != "..."]
    assert len(shown) >= 4
    for name, value in shown:
        assert value == f"{row[name]:.3g}", name


def test_the_readmes_table_is_that_of_the_run():
    first, last = (read_rows(default_runs.RESULTS / "grpo-0", "eval")[i] for i in (0, -1))
    block = README.partition("\nstep  ")[2].partition("\n\n")[0]
    rows = [line.split() for line in block.splitlines()[1:] if line != "..."]
    assert [name for name, _, _ in rows] == ["pass@1", "pass@32", "token_entropy"]
    for name, before, after in rows:
        assert (before, after) == (f"{first[name]:.3f}", f"{last[name]:.3f}"), name
