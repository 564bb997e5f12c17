"""What a run prints: rows that fit the terminal, hints, and what it says while it is busy."""

import io
import os
import pty
import subprocess
import sys

from rlvr import status
from rlvr.show.console import HINTS, Console

import pytest
from runs import ENVIRONMENT, ROOT

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
    assert line.split()[:4] == ["22/60", "-", "-", "-"]
    monkeypatch.setenv("COLUMNS", "40")
    header, line = Console().step(1, 60, ROW)[1:]
    assert len(header) == len(line) <= 40
    assert header.split() == ["step", "reward", "length", "time", "left"]


@pytest.mark.parametrize(
    "change, told",
    [
        (dict(clip_low=0.0, clip_high=0.0), "ratio is 1"),
        (dict(all_wrong=1.0, all_right=0.0), "all wrong"),
        (dict(all_wrong=0.0, all_right=1.0), "all right"),
        (dict(truncated=0.6), "--max_completion_length"),
        (dict(unparsed=1.0), "samples.jsonl"),
        (dict(entropy=0.001), "entropy is almost 0"),
        (dict(kl=3.0), "--beta"),
    ],
)
def test_a_hint_is_given_where_it_occurs_and_once(change, told):
    console = Console()
    console.step(1, 60, ROW)
    assert len(console.hints) == len(HINTS)
    hint = " ".join(console.step(2, 60, ROW | change)[1:])
    assert hint.count("hint: ") == 1 and told in hint
    assert len(console.step(3, 60, ROW | change)) == 1


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


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self):
        return True


def test_a_terminal_has_one_line_that_is_replaced(monkeypatch, capsys):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "dumb")
    assert not status.on_terminal()
    monkeypatch.setenv("TERM", "xterm")
    status.progress("grading", 0, 64)
    status.progress("grading", 1, 64)  # too soon
    monkeypatch.setattr(status, "SECONDS_BETWEEN_BARS", -1.0)
    status.say("loading")
    status.progress("completions", 512, 1024)
    status.progress("completions", 1024, 1024)
    status.clear_line()
    shown = terminal.getvalue().split(status.ERASE)
    assert shown == [
        "",
        "grading .................... 0/64\r",
        "loading\r",
        "completions ##########.......... 512/10\r",
        "completions #################### 1024/1\r",
        "\r",
    ]
    assert capsys.readouterr().out == ""


def test_a_log_file_has_plain_lines_and_few(monkeypatch, capsys):
    status.say("loading")
    status.progress("completions", 0, 1024)
    status.progress("completions", 512, 1024)
    status.clear_line()
    assert capsys.readouterr() == ("loading\n", "")
    monkeypatch.setattr(status, "SECONDS_BETWEEN_LINES", -1.0)
    status.progress("completions", 1024, 1024)
    assert capsys.readouterr() == ("completions: 1024 of 1024\n", "")


def test_a_script_says_at_once_that_it_loads():
    """And an error stands on a line of its own, in a log file and on a terminal."""
    command = [sys.executable, ROOT / "grpo.py", "--top_p", "7"]
    error = "grpo.py: error: --top_p must be at most 1, got 7.0\n"
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (2, "loading torch\n", error)
    terminal, end = pty.openpty()
    subprocess.run(command, env=ENVIRONMENT, stdout=end, stderr=end)
    os.close(end)
    shown = os.read(terminal, 10_000).decode().replace("\r\n", "\n")
    os.close(terminal)
    assert shown == f"{status.ERASE}loading torch\r{status.ERASE}\r{error}"
