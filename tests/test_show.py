"""What a run shows: rows in the terminal, the .jsonl files, curves.png."""

import io
import math
import os
import sys
from unittest.mock import Mock

from rlvr import status, world
from rlvr.errors import UserError
from rlvr.show import plots
from rlvr.show.console import Console
from rlvr.show.logs import append_row, drop_rows_after, read_rows
from rlvr.show.plots import MOST_PANELS, choose_panels, draw_panel

import pytest
from matplotlib.figure import Figure

ROW = dict(reward=0.3376, length=24.51, truncated=0.02, entropy=0.1634, all_wrong=0.25)
ROW |= dict(all_right=0.125, clip_low=0.001, clip_high=0.002, grad_norm=1.239, unparsed=0.0)
ROW |= dict(kl=0.0, seconds_rollout=2.0, seconds_update=1.0)
HEADER = "  step  reward  length  cut off  entropy   mixed  clipped  gradient  seconds  time left"
LINE = "  1/60   0.338    24.5       2%    0.163     62%    0.30%      1.24      3.0      3 min"


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    """A terminal of 100 columns, whatever the tests run on."""
    monkeypatch.setenv("COLUMNS", "100")


def test_a_step_is_a_row_of_a_table(monkeypatch):
    console = Console()
    assert console.step(1, 60, ROW) == ["", HEADER, LINE]
    later = {**ROW, "seconds_rollout": 5.0}  # a mean of 4.5 s, and 19 steps are left
    (line,) = console.step(41, 60, later)
    assert line.split()[-3:] == ["6.0", "86", "s"] and len(line) == len(HEADER)
    assert [len(console.step(step, 60, ROW)) for step in range(3, 22)] == [1] * 18 + [3]
    (line,) = console.step(22, 60, {"loss": 0.5})  # of a script that logs other metrics
    assert line.split()[:4] == ["22/60", "nan", "nan", "nan%"]
    assert console.evaluation(22, 60, {}, {}) == []  # its lines would part the row from its header
    assert console.step(23, 60, ROW)[1] == HEADER
    assert Console().step(1, 9001, ROW)[-1].endswith("   7.5 h")
    monkeypatch.setenv("COLUMNS", "40")
    header, line = Console().step(1, 60, ROW)[1:]
    assert header == "  step  reward  length  time left"
    assert len(header) == len(line)


def test_a_hint_is_given_where_it_occurs_and_once():
    """Just beyond its limit, and not at it."""
    console = Console()
    limits = dict(truncated=0.5, unparsed=0.9, entropy=0.01, kl=1.0)
    assert not any("hint" in line for line in console.step(1, 60, ROW | limits))
    beyond = dict(truncated=0.51, unparsed=0.91, entropy=0.009, kl=1.1, all_wrong=1, all_right=1)
    for key, value in beyond.items():
        (_, hint) = console.step(2, 60, ROW | {key: value})
        assert hint.startswith("hint: ")
        assert len(console.step(3, 60, ROW | {key: value})) == 1


def test_an_evaluation_is_a_line_a_data_set():
    first = {"step": 0, "pass@1": 0.294, "pass@2": 0.4, "pass@16": 0.938, "greedy": 1.0}
    assert Console().evaluation(0, 60, first, first) == [
        "eval 0/60  pass@1 .294  pass@16 .938  greedy 1.000"
    ]
    now = {"pass@1": 0.58, "pass@16": 0.9, "greedy": 0.5, "token_entropy": 0.1}
    assert Console().evaluation(20, 60, now, first) == [
        "eval 20/60  pass@1 .294 -> .580  pass@16 .938 -> .900  greedy 1.000 -> .500  entropy .100"
    ]
    sets = {"math/pass@1": 0.25, "math/pass@1 level 5": 0.1, "gsm8k/pass@1": 0.5}
    assert Console().evaluation(20, 60, sets, {"step": 0, "math/pass@1": 0.125}) == [
        "eval 20/60 math  pass@1 .125 -> .250",
        "eval 20/60 gsm8k  pass@1 .500",
    ]


def test_a_terminal_has_one_line_that_is_replaced(monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("TERM", "dumb")
    assert not status.on_terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(status, "SECONDS_BETWEEN_COUNTS", 999.0)
    status.progress("loading", 0, 2)
    status.progress("grading", 0, 64)  # what begins is shown at once
    status.progress("grading", 1, 64)  # too soon
    monkeypatch.setattr(status, "SECONDS_BETWEEN_COUNTS", -1.0)
    status.progress("completions", 512, 1024)
    status.clear_line()
    monkeypatch.setattr(world, "RANK", 1)
    status.say("of another rank")
    shown = terminal.getvalue().split(status.ERASE)
    assert shown == ["", "loading 0/2\r", "grading 0/64\r", "completions 512/102\r", "\r"]


def test_a_log_file_has_plain_lines_and_few(monkeypatch, capsys):
    monkeypatch.setattr(status, "SECONDS_BETWEEN_LINES", 999.0)
    status.say("loading")
    status.progress("completions", 0, 1024)
    status.progress("completions", 512, 1024)
    status.clear_line()
    assert capsys.readouterr() == ("loading\n", "")
    monkeypatch.setattr(status, "SECONDS_BETWEEN_LINES", -1.0)
    status.progress("completions", 1024, 1024)
    assert capsys.readouterr() == ("completions 1024/1024\n", "")


def test_a_run_goes_on_where_nobody_reads_what_it_prints(monkeypatch):
    """Ctrl-C ends the reader of `| tee log`, too."""
    reader, writer = os.pipe()
    os.close(reader)
    monkeypatch.setattr(sys, "stdout", open(writer, "w"))
    for _ in range(2):
        status.tell("metrics")
        print("beside them", flush=True)


def test_rows_come_back_and_every_line_is_json_by_the_standard(tmp_path):
    assert read_rows(tmp_path, "metrics") == []
    text = {"step": 1, "reward": 1e300, "text": "a\nb\u2028ü"}
    append_row(tmp_path, "metrics", text)
    append_row(tmp_path, "metrics", {"step": 2, "loss": math.nan, "by_token": [{"a": [-math.inf]}]})
    written = (tmp_path / "metrics.jsonl").read_text().split("\n")
    assert written[1:] == ['{"step": 2, "loss": null, "by_token": [{"a": [null]}]}', ""]
    first, second = read_rows(tmp_path, "metrics")
    assert first == text and math.isnan(second["loss"])


def test_a_full_disk_is_one_line(tmp_path):
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(UserError, match="^cannot use .*metrics.jsonl: .*No space left on device"):
        append_row(tmp_path, "metrics", {"step": 1})


@pytest.mark.parametrize("half", ['{"step": 3', '{"step": 3, "reward": 0.5}'])
def test_drop_rows_after(tmp_path, half):
    """Later rows go, and so does what a kill has left: half a line, and half a file."""
    for log, steps in (("metrics", (1, 4, 10)), ("eval", (0, 10))):
        for step in steps:
            append_row(tmp_path, log, {"step": step})
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write(half)  # even a whole row may lack the end of a longer number
    (tmp_path / ".metrics.jsonl").write_text("half")
    drop_rows_after(tmp_path, 4)
    assert read_rows(tmp_path, "metrics") == [{"step": 1}, {"step": 4}]
    assert read_rows(tmp_path, "eval") == [{"step": 0}]
    assert {file.name for file in tmp_path.iterdir()} == {"metrics.jsonl", "eval.jsonl"}


def logs_of(*rows):
    """Rows of a log, with their steps."""
    return [{"step": step, **row} for step, row in enumerate(rows)]


EVALS = logs_of(
    {"pass@1": 0.1, "pass@4": 0.3, "avg@4": 0.1, "answer_entropy": 0.0, "fit_a": 1.0},
    {"pass@1": 0.2, "pass@4": 0.4, "avg@4": 0.2, "answer_entropy": 0.5, "fit_a": 1.0},
)
METRICS = logs_of(
    {"reward": 0.0, "loss": 0.3, "clip_low": 0.0, "clip_high": 0.0, "grad_norm": math.nan},
    {"reward": 0.1, "loss": 0.3, "clip_low": 0.0, "clip_high": 0.1, "kl_own": 1.0, "alpha": 0.7},
)


def test_what_is_drawn():
    """No line that is 0 throughout, no loss; a script's own metrics come last, as logged.

    Each of several data sets has panels of its own.
    """
    assert choose_panels(EVALS, METRICS) == [
        ("held-out pass@k", EVALS, ["pass@1", "pass@4"]),
        ("held-out entropy of answers (nats)", EVALS, ["answer_entropy"]),
        ("reward of the rollout", METRICS, ["reward"]),
        ("share of tokens that are clipped", METRICS, ["clip_high"]),
        ("gradient norm", METRICS, ["grad_norm"]),
        ("kl_own", METRICS, ["kl_own"]),
        ("alpha", METRICS, ["alpha"]),
    ]
    # also what the first row lacks, as where a resumed run has more samples and other sets
    first = {"math/pass@1": 0.1, "math/pass@1 level 5": 0.1, "math/token_entropy": 0.4}
    later = first | {"math/pass@16": 0.2, "gsm8k/pass@1": 0.5, "gsm8k/pass@2": 0.0}
    sets = logs_of(first, later)
    assert choose_panels(sets, []) == [
        ("held-out pass@k: math", sets, ["math/pass@1", "math/pass@16"]),
        ("held-out pass@k: gsm8k", sets, ["gsm8k/pass@1"]),
        ("held-out entropy of tokens (nats): math", sets, ["math/token_entropy"]),
    ]
    many = logs_of({f"own_{i}": 1.0 for i in range(20)})
    shown = choose_panels(EVALS, many)
    assert len(shown) == MOST_PANELS and shown[0][0] == "held-out pass@k"


def test_a_curve_is_drawn_by_step_and_by_few_points(tmp_path, monkeypatch):
    """Not by row, and a row without the metric has no point."""
    axis = Figure().add_subplot()
    rows = logs_of(*({"reward": i / 5000} for i in range(5001)))
    draw_panel(axis, "reward", rows, ["reward"])
    few = [{"step": 0, "set/a": 3}, {"step": 20}, {"step": 40, "set/a": 5}]
    draw_panel(axis, "few", few, ["set/a"])
    many, few = axis.lines
    assert [line.get_label() for line in axis.lines] == ["reward", "a"]
    assert 500 < len(many.get_xdata()) <= 1000
    assert (many.get_ydata() == many.get_xdata() / 5000).all()
    assert (few.get_xdata().tolist(), few.get_ydata().tolist()) == ([0, 40], [3, 5])


@pytest.mark.parametrize("value", [0.0, 0.5])
def test_each_panel_is_drawn_from_its_log(tmp_path, monkeypatch, value):
    """Three of them side by side. Where all is 0, there is none."""
    draw = Mock()
    monkeypatch.setattr(plots, "draw_panel", draw)
    append_row(tmp_path, "eval", {"step": 0, "pass@1": value})
    append_row(tmp_path, "metrics", {"step": 1, "reward": value})
    plots.draw_curves(tmp_path)
    assert (tmp_path / "curves.png").exists()
    panels = [call.args for call in draw.mock_calls]
    found = [(axis.get_subplotspec().get_geometry(), title) for axis, title, *_ in panels]
    expected = [((1, 3, 0, 0), "held-out pass@k"), ((1, 3, 1, 1), "reward of the rollout")]
    assert found == (expected if value else [])
