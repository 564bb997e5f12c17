"""studies/soak.py: it notices what is lost, and its short mode finds nothing."""

import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import project

from rlvr.checkpoints import save_folder

import pytest
import soak
import soak_faults
from runs import ENVIRONMENT


@pytest.fixture
def watched(tiny, tmp_path, monkeypatch):
    """A soak whose run has two whole checkpoints, one of them put aside; nothing is started."""
    monkeypatch.chdir(tmp_path)
    found = soak.Soak.__new__(soak.Soak)
    found.table, found.problems, found.finished = Counter(), [], 0
    found.number = 0
    found.begin_a_run()
    found.folder.mkdir()
    for number, name in enumerate(("before-1-checkpoint-2", "checkpoint-1")):
        save_folder(found.folder / name, *tiny, dict(step=number))
    found.look_for_losses("start", "saved run-1/checkpoint-1\nsaved\n")
    assert found.problems == [] and len(found.saved) == 2
    return found


def test_a_checkpoint_that_is_gone_is_noticed(watched):
    shutil.rmtree("run-1/before-1-checkpoint-2")
    watched.look_for_losses("kill", "")
    assert watched.problems == ["kill: lost 1 checkpoints"]


def test_a_checkpoint_that_is_damaged_is_noticed_unless_the_fault_has_done_it(watched):
    shutil.copytree("run-1", "before")
    Path("run-1/checkpoint-1/state.pt").write_bytes(b"")
    watched.forget(Path("before/checkpoint-1"))
    watched.look_for_losses("flip", "")
    assert watched.problems == []
    watched.look_for_losses("flip", "saved run-1/checkpoint-1\n")
    assert watched.problems == ["flip: run-1/checkpoint-1 was saved and is not whole"]


def test_an_end_that_is_neither_a_line_nor_a_finished_run_is_noticed(watched):
    watched.happen(lambda soak: ("", "a traceback"))
    assert watched.table == {("<lambda>", "otherwise"): 1}
    assert watched.problems == ["<lambda>: a traceback"]


def test_every_damage_changes_the_file(tmp_path):
    """Zeros over a part change it, too, where it is not all zero already."""
    file = tmp_path / "file"
    for seed in range(40):
        file.write_bytes(b"some text")
        soak_faults.damage(file, random.Random(seed))
        assert not file.exists() or file.read_bytes() != b"some text"


@pytest.mark.longest
def test_the_short_mode(tmp_path, cache_dir):
    given = ["--faults", "3", "--seed", "1", "--cache_dir", cache_dir]
    command = [sys.executable, project.STUDIES / "soak.py", *given]
    done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    table = [line.split("|")[1:-1] for line in done.stdout.splitlines() if line.startswith("| ")]
    assert [row[0].strip() for row in table[1:]] == [
        fault.__name__.replace("_", " ") for fault in soak_faults.FAULTS
    ]
    assert sum(int(row[1]) for row in table[1:]) == 3
    assert re.search(r"3 faults in \d+ minutes; .*, and 0 times something was lost", done.stdout)
