"""rlvr/machine/folders.py: one process owns a run folder, and a dead one owns nothing."""

import os
import subprocess
import sys
from pathlib import Path

from rlvr.errors import UserError
from rlvr.machine.folders import own

import pytest
from runs import ENVIRONMENT, ROOT, refused, steps

OWNER = """
import sys, time
from pathlib import Path
from rlvr.machine.folders import own
own(Path(sys.argv[1]))
print("owned", flush=True)
time.sleep(600)
"""


@pytest.fixture
def owner(tmp_path):
    """owner(folder) -> another process that owns the folder."""
    started = []

    def start(folder):
        environment = {**ENVIRONMENT, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", OWNER, str(folder)]
        started.append(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        )
        assert started[-1].stdout.readline() == "owned\n"
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_a_folder_has_one_owner_until_it_is_given_back(tmp_path):
    first = own(tmp_path)
    with pytest.raises(UserError, match="another process uses the run folder"):
        own(tmp_path)
    os.close(first)
    os.close(own(tmp_path))


def test_a_killed_process_owns_nothing(tmp_path, owner):
    other = owner(tmp_path)
    with pytest.raises(UserError):
        own(tmp_path)
    other.kill()
    other.wait()
    os.close(own(tmp_path))


def test_a_second_run_is_refused_and_touches_nothing(run, resume, owner):
    assert run("grpo", max_steps=1).code == 0
    other = owner("run")
    before = {path: path.stat().st_mtime_ns for path in Path("run").rglob("*")}
    assert refused(resume("grpo", "run", max_steps=2), "grpo", "another process uses")
    assert refused(resume("grpo", "run/checkpoint-1", max_steps=2), "grpo", "another process uses")
    assert {path: path.stat().st_mtime_ns for path in Path("run").rglob("*")} == before
    other.kill()
    other.wait()
    result = resume("grpo", "run", max_steps=2)
    assert result.code == 0, result.err
    assert steps("run") == [1, 2]
