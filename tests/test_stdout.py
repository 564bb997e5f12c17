"""A full disk or a closed pipe is one line, without a traceback at the very end."""

import errno
import io
import os
import pty
import signal
import subprocess
import sys
import time

import rlvr.training.run
from rlvr.machine.ending import LossyStream

import pytest
from runs import ENVIRONMENT, ROOT, WITH_PROJECT, arguments, first_fast, left_as_it_was, rows


def print_a_little(config):
    print("metrics")


def print_much(config):
    for i in range(3000):
        print("metrics", i)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("main", [print_a_little, print_much])
def test_a_full_disk_takes_nothing_that_is_printed(monkeypatch, capsys, main):
    """Python keeps what is printed for a while: a little of it fails when main has ended."""
    monkeypatch.setattr("sys.argv", ["grpo.py"])
    with monkeypatch.context() as patch:
        patch.setattr("sys.stdout", open("/dev/full", "w"))
        with pytest.raises(SystemExit) as ended, left_as_it_was():
            rlvr.training.run.launch(main, None)
        sys.stdout.close()  # what takes the rest
    assert ended.value.code == 2
    line = "grpo.py: error: cannot write: [Errno 28] No space left on device\n"
    assert capsys.readouterr().err == line


PROGRAM = """
import subprocess
import sys

import rlvr.training.run


def print_much(config):
    for i in range(3000):
        print("metrics", i)


def ask_a_judge_that_has_ended(config):
    judge = subprocess.Popen(["true"], stdin=subprocess.PIPE)
    judge.wait()
    judge.stdin.write(b"text")
    judge.stdin.flush()


sys.argv[0] = "grpo.py"
rlvr.training.run.launch(globals()[sys.argv[1]], None)
"""


def run(main, stdout):
    """The exit code of a script with that main, and its lines on stderr."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, main],
        env={**WITH_PROJECT, "PYTHONUNBUFFERED": ""},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    )
    return ended.returncode, ended.stderr.splitlines()


@pytest.mark.slow
def test_a_pipe_that_nobody_reads():
    """That of stdout is one line; one of an edited script is the script's own matter."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as closed:
        found = run("print_much", closed)
    assert found == (2, ["grpo.py: error: cannot write: [Errno 32] Broken pipe"])
    code, lines = run("ask_a_judge_that_has_ended", subprocess.PIPE)
    assert code == 1
    assert lines[0].startswith("Traceback") and lines[-1].startswith("BrokenPipeError")


class Full(io.StringIO):
    """A file on a full disk."""

    def write(self, text):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_stream_that_drops_what_nobody_takes(tmp_path):
    assert LossyStream(Full()).write("metrics 1\n") == 10
    file = LossyStream(open(tmp_path / "log", "w", encoding="UTF-8"))
    print("metrics 2", file=file, flush=True)
    assert (tmp_path / "log").read_text() == "metrics 2\n"
    assert file.encoding == "UTF-8"


def until_a_step_is_logged(folder, child):
    while not (folder / "metrics.jsonl").exists():
        assert child.poll() is None
        time.sleep(0.05)


def start_long_run(folder, **streams):
    """grpo.py with small steps, which does not end by itself."""
    flags = dict(max_steps=10_000, save_steps=10_000, eval_problems=2, eval_samples=2)
    flags |= dict(prompts_per_step=4, num_generations=4, minibatch_size=16, output_dir=folder)
    command = [sys.executable, ROOT / "grpo.py", *arguments(**flags)]
    return subprocess.Popen(command, env=ENVIRONMENT, cwd=folder.parent, **streams)


def assert_the_last_step_is_saved(folder):
    (checkpoint,) = folder.glob("checkpoint-*")
    assert checkpoint.name == f"checkpoint-{len(rows(folder))}"
    assert (folder / "curves.png").exists()


@pytest.mark.parametrize("number", first_fast([signal.SIGINT, signal.SIGTERM]))
def test_a_signal_saves_where_nobody_reads_any_more(tmp_path, number):
    """Ctrl-C ends the reader of `| tee log`, too, and a closed terminal reads nothing."""
    folder = tmp_path / "run"
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with start_long_run(folder, **pipes) as child:
        until_a_step_is_logged(folder, child)
        child.send_signal(signal.SIGSTOP)  # so that it prints nothing before the signal
        child.stdout.close()
        child.stderr.close()
        child.send_signal(number)
        child.send_signal(signal.SIGCONT)
        code = child.wait()
    assert code == 0
    assert_the_last_step_is_saved(folder)


@pytest.mark.slow
def test_a_terminal_that_is_closed_without_a_signal(tmp_path):
    """A shell withholds it from what was disowned; and a print can come before the signal."""
    folder = tmp_path / "run"
    terminal, end = pty.openpty()
    with start_long_run(folder, stdout=end, stderr=end, start_new_session=True) as child:
        os.close(end)
        until_a_step_is_logged(folder, child)
        os.close(terminal)
        assert child.wait() == 0
    assert_the_last_step_is_saved(folder)
