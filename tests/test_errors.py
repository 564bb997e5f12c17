"""What is one line, and what keeps its traceback, as a mistake in an edited script does."""

import threading
from pathlib import Path
from types import SimpleNamespace

import rlvr.machine.ending
import rlvr.training.run
from rlvr.errors import UserError, loading
from rlvr.hub import hub_answers
from rlvr.training.updates import UpdateMetrics

import huggingface_hub
import pytest
import torch
from runs import left_as_it_was, refused

import grpo


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


def test_a_mistake_in_an_edited_script_keeps_its_traceback(capsys, monkeypatch):
    raised = launched(monkeypatch, OSError("no such file"))
    assert [entry.name for entry in raised.traceback][-1] == "main"
    assert capsys.readouterr().err == ""


def test_a_tensor_of_the_wrong_shape_is_a_mistake():
    """It would broadcast in silence."""
    with pytest.raises(AssertionError, match="clip_low is"):
        UpdateMetrics().add(torch.tensor(0.0), torch.ones(2, 3), clip_low=torch.ones(1, 3))


@pytest.mark.usefixtures("no_evaluation")
def test_advantages_that_are_not_finite_are_named_with_their_group(run, monkeypatch):
    bad = torch.zeros(32, 2)
    bad[9, 1] = torch.inf  # of one token; 4 groups have 8 completions each
    seen = []
    monkeypatch.setattr(
        grpo, "compute_advantages", lambda batch, _: seen.append(batch.rewards) or (bad, {})
    )
    result = run("grpo", num_generations=8)
    rewards = ", ".join(f"{reward:g}" for reward in seen[0][1].tolist())
    told = f"the advantages of group 1 are NaN or infinite; its rewards are {rewards}. "
    assert refused(result, "grpo", told)
    # before the update
    assert not Path("run/metrics.jsonl").exists() and "no update" not in result.out


@pytest.mark.parametrize(
    "error, shown",
    [
        (OSError(f"Couldn't cast\n{'prompt: string' * 99}\nas the names differ"), "names differ"),
        (OSError(), "OSError()"),
    ],
    ids=["cast", "none"],
)
def test_the_line_that_says_why_is_told(error, shown):
    """Libraries write it at the end."""
    with pytest.raises(UserError) as raised, loading("it"):
        raise error
    told = str(raised.value)
    assert told.startswith("cannot load it: ") and told.endswith(shown)
    assert "\n" not in told and len(told) < 500
    with pytest.raises(UserError, match="cannot load it: the cause"), loading("it"):
        raise OSError("what follows from it") from OSError("the cause")


@pytest.mark.parametrize("head", [lambda *_, timeout: threading.Event().wait(), lambda: 1])
def test_the_hub_has_a_few_seconds_to_answer(monkeypatch, head):
    """None may come, or an error of the network library."""
    session = SimpleNamespace(head=head)
    monkeypatch.setattr(huggingface_hub, "get_session", lambda: session)
    assert not hub_answers(seconds=0.01)
    session.head = lambda address, timeout: threading.Event().wait(0.1) or address
    assert hub_answers()
