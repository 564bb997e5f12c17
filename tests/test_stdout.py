"""A full disk or a closed pipe is one line, without a traceback at the very end."""

import os
import signal
import subprocess
import sys
import time

import rlvr.training.run

import pytest
from runs import ENVIRONMENT, ROOT, arguments, left_as_it_was, rows


def print_a_little(config):
    print("metrics")


def print_much(config):
    for i in range(3000):
        print("metrics", i)


def opened(place):
    """A file descriptor that takes nothing: a full disk's, or a pipe's, as after `| head`."""
    if place == "a full disk":
        return os.open("/dev/full", os.O_WRONLY)
    reader, writer = os.pipe()
    os.close(reader)
    return writer


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize(
    "place, main, said",
    [
        # Python keeps what is printed for a while: a little of it fails when main has ended
        ("a full disk", print_a_little, "[Errno 28] No space left on device"),
        ("a full disk", print_much, "[Errno 28] No space left on device"),
        ("a pipe that nobody reads", print_much, "[Errno 32] Broken pipe"),
    ],
)
def test_what_is_printed_is_not_taken(monkeypatch, capsys, place, main, said):
    monkeypatch.setattr("sys.argv", ["grpo.py"])
    before, target = os.dup(1), opened(place)
    os.dup2(target, 1)
    try:
        with monkeypatch.context() as patch:
            patch.setattr("sys.stdout", open(1, "w", closefd=False))
            with pytest.raises(SystemExit) as ended, left_as_it_was():
                rlvr.training.run.launch(main, None)
            sys.stdout.close()  # what takes the rest
    finally:
        os.dup2(before, 1)
        os.close(before)
        os.close(target)
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"grpo.py: error: cannot write: {said}\n"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_last_step_is_saved_where_nobody_reads_any_more(tmp_path, number):
    """Ctrl-C ends the reader of `| tee log`, too."""
    folder = tmp_path / "run"
    flags = dict(max_steps=10_000, save_steps=10_000, eval_problems=2, eval_samples=2)
    flags |= dict(prompts_per_step=4, num_generations=4, minibatch_size=16, output_dir=folder)
    read, write = os.pipe()
    with subprocess.Popen(
        [sys.executable, ROOT / "grpo.py", *arguments(**flags)],
        **dict(env=ENVIRONMENT, cwd=tmp_path, stdout=write, stderr=write),
    ) as child:
        os.close(write)
        while not (folder / "metrics.jsonl").exists():
            assert child.poll() is None
            time.sleep(0.05)
        child.send_signal(signal.SIGSTOP)  # so that it prints nothing before the signal
        os.close(read)
        child.send_signal(number)
        child.send_signal(signal.SIGCONT)
        assert child.wait() == 0
    (checkpoint,) = folder.glob("checkpoint-*")
    assert checkpoint.name == f"checkpoint-{len(rows(folder))}"
    assert (folder / "curves.png").exists()
