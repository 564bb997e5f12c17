"""One line for what the user gave; everything else keeps its traceback."""

import re

import rlvr.machine.ending
import rlvr.training.run
from rlvr.errors import UserError, fail, loading, writing

import pytest
import torch
from runs import left_as_it_was


@pytest.fixture(autouse=True)
def as_a_script(monkeypatch):
    """As if a script were running; the signal handlers are put back."""
    monkeypatch.setattr("sys.argv", ["some/folder/grpo.py", "--seed", "3"])
    with left_as_it_was():
        yield


def launched(error):
    """Launch a script whose main raises the error."""

    def main(config):
        raise error

    rlvr.training.run.launch(main, None)


def test_fail_writes_one_line_and_ends_with_2(capsys):
    with pytest.raises(SystemExit) as ended:
        fail("--model of\n  two lines")
    assert ended.value.code == 2
    assert capsys.readouterr() == ("", "grpo.py: error: --model of two lines\n")


def test_an_os_error_while_writing_names_the_path():
    with pytest.raises(UserError, match="^cannot write run/metrics.jsonl: disk full$"):
        with writing("run/metrics.jsonl"):
            raise OSError("disk full")


def test_another_error_while_writing_stays_what_it_is():
    with pytest.raises(ZeroDivisionError), writing("run"):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    "error, shown",
    [
        (UserError("--numbers takes\n2, 3 and 4"), "--numbers takes 2, 3 and 4"),
        (MemoryError("no more"), "out of memory: "),
        (torch.OutOfMemoryError("no more"), "--microbatch_tokens"),
    ],
    ids=repr,
)
def test_what_the_user_can_mend_is_one_line(capsys, error, shown):
    with pytest.raises(SystemExit) as ended:
        launched(error)
    assert ended.value.code == 2
    written = capsys.readouterr().err
    assert written.startswith("grpo.py: error: ")
    assert shown in written
    assert written.count("\n") == 1


LOST = [
    RuntimeError("[gloo] connection closed by peer"),
    torch.distributed.DistError("timeout"),
]


@pytest.mark.parametrize("error", LOST, ids=repr)
def test_a_lost_rank_is_one_line(capsys, monkeypatch, error):
    monkeypatch.setattr(rlvr.training.run.world, "WORLD_SIZE", 2)
    with pytest.raises(SystemExit) as ended:
        launched(error)
    assert ended.value.code == 2
    written = capsys.readouterr().err
    assert written.startswith("grpo.py: error: rank 0 has lost another one, which has ended")
    assert written.count("\n") == 1


@pytest.mark.parametrize("error", LOST, ids=repr)
def test_one_process_has_no_rank_to_lose(error):
    with pytest.raises(type(error)):
        launched(error)


def test_what_a_terminal_would_obey_is_shown(capsys):
    with pytest.raises(SystemExit):
        fail("--prompt_column \x1b[31mrot\x1b[0m: ü")
    assert capsys.readouterr().err == ("grpo.py: error: --prompt_column \\x1b[31mrot\\x1b[0m: ü\n")


@pytest.mark.parametrize("message, reason", [("a\nb", "a"), ("", "ValueError()")])
def test_a_library_that_cannot_load_is_one_line(message, reason):
    error = ValueError(message) if message else ValueError()
    with pytest.raises(UserError, match=f"^cannot load --model x: {re.escape(reason)}$"):
        with loading("--model x"):
            raise error


@pytest.mark.parametrize(
    "error",
    [
        ImportError("no module of that name"),
        OSError("no such file"),
        KeyError("reward"),
        ValueError("shapes"),
        RuntimeError("shapes"),
        AssertionError(),
    ],
    ids=repr,
)
def test_a_mistake_in_an_edited_script_keeps_its_traceback(capsys, error):
    with pytest.raises(type(error)) as raised:
        launched(error)
    assert raised.value is error
    assert [entry.name for entry in raised.traceback][-1] == "main"
    assert capsys.readouterr().err == ""


def test_ctrl_c_ends_with_130(capsys):
    with pytest.raises(SystemExit) as ended:
        launched(KeyboardInterrupt())
    assert ended.value.code == 130
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("error", [UserError("wrong"), KeyError("wrong")], ids=repr)
def test_what_was_begun_is_ended_after_an_error(error):
    ended = []
    rlvr.machine.ending.AT_EXIT.callback(ended.append, "ended")
    with pytest.raises((SystemExit, KeyError)):
        launched(error)
    assert ended == ["ended"]
