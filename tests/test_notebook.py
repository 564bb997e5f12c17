"""Training from Python, as in a notebook, and docs/notebook.ipynb itself."""

import os
import signal
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from rlvr.errors import UserError

import nbformat
import pytest
import torch
from runs import ROOT, SMALL, before_calls, left_as_it_was, rows

import common
import fade
import grpo

NOTEBOOK = ROOT / "docs" / "notebook.ipynb"


@pytest.fixture
def in_a_notebook(tmp_path, monkeypatch):
    """An empty folder, and the handler of Ctrl-C that a kernel sets before each cell."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["ipykernel_launcher.py", "-f", "kernel.json"])
    with left_as_it_was():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        yield


@pytest.mark.parametrize(
    "flags, said",
    [
        (dict(max_step=3), "no such flag: --max_step 3; perhaps you meant --max_steps"),
        (dict(minibatch_size=7), "--minibatch_size 7 must divide the 512 completions"),
    ],
)
def test_a_wrong_flag_is_an_exception(flags, said):
    with pytest.raises(UserError, match=said):
        grpo.configure(**flags)


def test_configure_is_the_command_line():
    dapo = grpo.configure(variant="dapo", epsilon_high=None, compile=False, output_dir=Path("a b"))
    assert (dapo.epsilon_high, dapo.aggregation, dapo.dynamic_sampling) == (0.28, "token", True)
    assert dapo.typed == dict(variant="dapo", compile=False, output_dir="a b")
    assert grpo.configure(dataset="gsm8k").learning_rate == 1e-6
    assert fade.configure(variant="delta-only").alpha_max == 1


def test_a_config_made_by_hand_is_refused(in_a_notebook):
    for config in (grpo.Config(variant="dapo"), replace(grpo.configure(), seed=3)):
        with pytest.raises(UserError, match="made by hand has no presets: use configure"):
            grpo.main(config)
    config = grpo.configure()
    config.minibatch_size = 7
    with pytest.raises(UserError, match="--minibatch_size 7 must divide"):
        grpo.main(config)
    assert [*Path().iterdir()] == []


def test_two_runs_in_one_process(in_a_notebook):
    """Also after one that failed, with an advantage of one's own, and resumed."""

    def broken(batch, config):
        raise ZeroDivisionError

    def half(batch, config):
        return batch.rewards - 0.5, {"of_my_own": 1.0}

    config = grpo.configure(**SMALL, output_dir="one")
    with pytest.raises(ZeroDivisionError):
        grpo.main(config, broken)
    first = grpo.main(grpo.configure(resume_from_checkpoint="one"))
    second = grpo.main(grpo.configure(**SMALL | dict(output_dir="two")), half)
    assert (first.folder, second.folder) == (Path("one"), Path("two"))
    for result in (first, second):
        assert [row["step"] for row in result.steps] == [1, 2]
        assert [row["step"] for row in result.evaluations] == [0, 1, 2]
        assert rows(result.folder, timed=True) == result.steps
    assert second.steps[0]["of_my_own"] == 1.0 and "of_my_own" not in first.steps[0]
    third = grpo.main(grpo.configure(resume_from_checkpoint="two", max_steps=3))
    assert [row["step"] for row in third.steps] == [1, 2, 3]
    named = grpo.main(grpo.configure(**SMALL | dict(variant="dapo", max_steps=1)))
    assert str(named.folder).startswith("runs/grpo-dapo-")


def test_interrupting_the_kernel_ends_after_the_step(in_a_notebook, monkeypatch):
    def interrupt(*given):
        os.kill(os.getpid(), signal.SIGINT)

    before_calls(monkeypatch, common, "prepare_update", interrupt)
    result = grpo.main(grpo.configure(**SMALL))
    assert [row["step"] for row in result.steps] == [1]
    assert (result.folder / "checkpoint-1").exists()
    with pytest.raises(KeyboardInterrupt):  # the next cell is interrupted as ever
        interrupt()


def test_a_thread_may_train(in_a_notebook):
    """Some notebooks run cells in threads, where Python allows no signal handler."""
    results = []
    config = grpo.configure(**SMALL | dict(max_steps=1))
    thread = threading.Thread(target=lambda: results.append(grpo.main(config)))
    thread.start()
    thread.join()
    assert len(results[0].steps) == 1


def test_the_notebook_can_be_read_without_running_it():
    cells = [each for each in nbformat.read(NOTEBOOK, as_version=4).cells if each.source]
    assert NOTEBOOK.stat().st_size < 1_000_000
    for cell in cells:
        if cell.cell_type == "code":
            assert cell.execution_count
            assert not [out for out in cell.outputs if out.output_type == "error"]
    shown = str([cell.get("outputs") for cell in cells])
    assert "image/png" in shown and "<iframe" in shown and "pass@16" in shown
    (source,) = (cell.source for cell in cells if "def my_advantages" in cell.source)
    exec(source.partition("\n\n\n")[0], own := {})
    batch = SimpleNamespace(rewards=torch.tensor([[1.0, 0, 0, 0]]))  # 3/4 of them fail
    assert own["my_advantages"](batch, None)[0].tolist() == [[9 / 16, -3 / 16, -3 / 16, -3 / 16]]


@pytest.mark.slow
def test_the_notebook_runs(tmp_path, monkeypatch):
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    where = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=600, resources=where).execute()  # a cell's error is one here
    assert len([*tmp_path.glob("runs/grpo-grpo-*/report.html")]) == 2
