"""rlvr/machine/folders.py: what a killed process has left goes, and what is in use stays."""

import os
import subprocess
import sys
from pathlib import Path

from rlvr.machine.folders import remove_left_overs, scratch_folder

from runs import ENVIRONMENT, ROOT

SAVING = """
import sys, time
from pathlib import Path
from rlvr.machine.folders import scratch_folder
with scratch_folder(Path(sys.argv[1])) as folder:
    (folder / "half").write_text("half")
    print("saving", flush=True)
    time.sleep(600)
"""


def test_left_overs_of_dead_processes_alone_go(tmp_path):
    other = subprocess.Popen(
        [sys.executable, "-c", SAVING, tmp_path],
        env={**ENVIRONMENT, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout.readline() == "saving\n"
    (tmp_path / "policy").mkdir()
    (tmp_path / ".saving-a-file").touch()  # which no process of this project has left
    before = sorted(tmp_path.rglob("*"))
    assert len(before) == 4
    remove_left_overs(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before
    other.kill()
    other.wait()
    remove_left_overs(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"policy", ".saving-a-file"}


def test_a_scratch_folder_goes_with_what_is_left_in_it(tmp_path):
    with scratch_folder(tmp_path) as folder:
        (folder / "new").mkdir()
        (folder / "rest").write_text("half")
        os.rename(folder / "new", tmp_path / "policy")
    assert list(tmp_path.iterdir()) == [tmp_path / "policy"]


def test_there_may_be_nothing_to_remove(tmp_path):
    remove_left_overs(tmp_path / "absent")
    remove_left_overs(tmp_path)


def test_a_run_cleans_the_cache(run, cache_dir):
    left = Path(cache_dir) / ".saving-killed"
    left.mkdir()
    (left / "half").touch()
    assert run("grpo", max_steps=0).code == 0
    assert not left.exists()
