"""studies/processes.py: a study that ends, however it ends, leaves no process behind."""

import math
import os
import signal
import subprocess
import sys
import time

import project

import processes
import pytest
from runs import ENVIRONMENT

SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGKILL]
A_STUDY = """
import sys, time, pathlib
import processes

def work(file):
    pathlib.Path(file).write_text("")
    time.sleep(600)

if __name__ == "__main__":
    processes.alone(work, sys.argv[1])
"""


def wait_for(condition, seconds=180.0):
    """Wait until the condition is true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def start(*command, **environment):
    """A process whose standard output is closed when it and all of its children have ended."""
    paths = f"{project.STUDIES}{os.pathsep}{project.ROOT}"
    return subprocess.Popen(
        [sys.executable, *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**ENVIRONMENT, "PYTHONPATH": paths, **environment},
    )


def ends_with_its_children(process, number):
    """Whether nothing is left 30 seconds after a signal that the process alone is given."""
    assert process.poll() is None, "it has ended before the signal"
    process.send_signal(number)
    try:
        process.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        return False
    return process.returncode != 0


@pytest.mark.parametrize("number", SIGNALS)
def test_a_killed_study_ends_its_children(number, tmp_path):
    (tmp_path / "study.py").write_text(A_STUDY)
    process = start(tmp_path / "study.py", tmp_path / "started")
    wait_for((tmp_path / "started").exists)
    assert ends_with_its_children(process, number)


def test_what_a_process_of_its_own_gives():
    before = signal.getsignal(signal.SIGTERM)
    assert processes.alone(math.factorial, 5) == 120
    with pytest.raises(ValueError, match="'no number'"):
        processes.alone(int, "no number")
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_error_ends_the_children():
    with pytest.raises(ZeroDivisionError), processes.ending_children():
        child = processes.SPAWN.Process(target=time.sleep, args=(600,))
        child.start()
        raise ZeroDivisionError
    child.join(timeout=30)
    assert child.exitcode == -signal.SIGKILL


@pytest.mark.longest
@pytest.mark.parametrize(
    "number, study, arguments, sign",  # the sign is there once the study's children work
    [
        (signal.SIGTERM, "claims.py", ["--runs", "runs"], "runs/*/*.log"),
        (signal.SIGTERM, "throughput.py", [], "scratch/*/grpo.py/config.json"),
        (signal.SIGKILL, "startup.py", [], "scratch/*/config.json"),
    ],
)
def test_each_study_ends_its_children(number, study, arguments, sign, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    process = start(project.STUDIES / study, "--quick", *arguments, TMPDIR=str(scratch))
    wait_for(lambda: [*tmp_path.glob(sign)])
    assert ends_with_its_children(process, number)


@pytest.mark.longest
def test_costs_ends_its_children(tmp_path):
    process = start(project.STUDIES / "costs.py", "--out", tmp_path)
    for line in process.stdout:
        if b"64 tokens a completion" in line:  # the next point has begun
            break
    assert ends_with_its_children(process, signal.SIGKILL)
