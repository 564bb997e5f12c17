"""What is one line, and what keeps its traceback, as a mistake in an edited script does."""

import sys
import threading
from pathlib import Path

import rlvr.machine.ending
import rlvr.training.run
from rlvr.errors import UserError, loading
from rlvr.tasks.sources import ask_hub

import pytest
import torch
from runs import ROOT, left_as_it_was, refused


def launched(monkeypatch, error):
    """Launch a script whose main raises the error -> what ends the process."""

    def main(config):
        raise error

    monkeypatch.setattr("sys.argv", ["some/folder/grpo.py", "--seed", "3"])
    ended = []
    rlvr.machine.ending.AT_EXIT.callback(ended.append, "ended")
    with pytest.raises((SystemExit, type(error))) as raised, left_as_it_was():
        rlvr.training.run.launch(main, None)
    assert ended == ["ended"]
    return raised


@pytest.mark.parametrize(
    "error, shown",
    [
        (UserError("--numbers takes\n2, 3 and 4"), "--numbers takes 2, 3 and 4\n"),
        (MemoryError("no more"), "out of memory"),
        (torch.OutOfMemoryError("no more"), "--microbatch_tokens"),
    ],
    ids=repr,
)
def test_what_the_user_can_mend_is_one_line(capsys, monkeypatch, error, shown):
    assert launched(monkeypatch, error).value.code == 2
    written = capsys.readouterr().err
    assert written.startswith("grpo.py: error: ") and written.count("\n") == 1
    assert shown in written


@pytest.mark.parametrize("error", [KeyError("reward"), OSError("no such file")], ids=repr)
def test_a_mistake_in_an_edited_script_keeps_its_traceback(capsys, monkeypatch, error):
    raised = launched(monkeypatch, error)
    assert raised.value is error
    assert [entry.name for entry in raised.traceback][-1] == "main"
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "message, shown",
    [
        (f"Couldn't cast\n{'prompt: string' * 99}\nbecause the names don't match", "don't match"),
        ("Couldn't instantiate one of:\n(1) a file\nYou need sentencepiece.", "sentencepiece."),
        ("", "OSError()"),
    ],
    ids=["cast", "tokenizer", "none"],
)
def test_the_line_that_says_why_is_told(message, shown):
    """Libraries write it at the end."""
    with pytest.raises(UserError) as raised, loading("it"):
        raise OSError(*[message] * bool(message))
    told = str(raised.value)
    assert told.startswith("cannot load it: ") and told.endswith(shown)
    assert "\n" not in told and len(told) < 500


def test_the_hub_has_a_few_seconds_to_answer():
    with pytest.raises(TimeoutError, match="the hub does not answer"):
        ask_hub(lambda path, timeout: threading.Event().wait(), "of/a-hub", seconds=0.01)
    with pytest.raises(ZeroDivisionError):  # any other answer is the hub's own
        ask_hub(lambda path, timeout: 1 / 0, "of/a-hub")


# --------------------------------------------------------------------- mistakes in an edited script


# Each: a line of grpo.py, what it becomes, flags, and the error.
MISTAKES = [
    ("advantages[rows],", "advantages,", dict(microbatch_tokens=1), AssertionError, "clip_low is"),
    ("return advantages, {}", 'return advantages, {"p": batch.rewards}', {}, TypeError, "not JSON"),
]


@pytest.fixture
def run_edited(run, no_evaluation, tmp_path, monkeypatch):
    """run_edited(line, becomes, flag=value, ...) runs grpo.py with another line."""

    def run_it(line, becomes, **flags):
        source = (ROOT / "grpo.py").read_text()
        assert source.count(line) == 1
        (tmp_path / "edited.py").write_text(source.replace(line, becomes))
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "edited", raising=False)  # of the mistake before
        return run("edited", num_generations=8, **flags)

    return run_it


@pytest.mark.parametrize("line, becomes, flags, error, said", MISTAKES)
def test_a_mistake_ends_the_run(run_edited, line, becomes, flags, error, said):
    with pytest.raises(error, match=said):
        run_edited(line, becomes, **flags)


def test_advantages_that_are_not_finite_are_named_with_their_group(run_edited):
    result = run_edited("return advantages, {}", "return advantages / 0, {}")
    assert refused(result, "edited", "the advantages of group 0 are NaN", "its rewards are 0")
    # before the update
    assert not Path("run/metrics.jsonl").exists() and "no update" not in result.out
