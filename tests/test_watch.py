"""Ranks that are stopped together, as where a machine sleeps, are not taken for silent ones."""

import subprocess
import sys

import pytest
from runs import WITH_PROJECT, free_port

# There are two ranks, and one more process that keeps their store. It prints their exit codes.
PROGRAM = """
import os
import signal
import sys
import time

import rlvr.machine.watch
import torch.distributed as dist

rlvr.machine.watch.BEAT, rlvr.machine.watch.SILENCE = 0.25, 2.0


def start(work, *given):
    child = os.fork()
    if child == 0:
        work(*given)
        sys.exit(0)  # not os._exit: Python goes through its whole end
    return child


def keep_the_store():
    port = int(os.environ["MASTER_PORT"])
    store = dist.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
    time.sleep(600)


def be_a_rank(rank, seconds):
    rlvr.machine.watch.world.RANK = rank
    with rlvr.machine.watch.watching():
        time.sleep(seconds)


store = start(keep_the_store)
ranks = start(be_a_rank, 0, 6), start(be_a_rank, 1, 6)
time.sleep(1)
for number in signal.SIGSTOP, signal.SIGCONT:
    for rank in ranks:
        os.kill(rank, number)
    time.sleep(3)
print(*(os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1]) for rank in ranks))
os.kill(store, signal.SIGKILL)
"""


@pytest.mark.slow
def test_ranks_that_are_stopped_for_a_while_go_on(tmp_path):
    """test_ranks.py stops one rank of a run, one with the store, and one that never begins."""
    (tmp_path / "grpo.py").write_text(PROGRAM)
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "WORLD_SIZE": "2"}
    ended = subprocess.run(
        [sys.executable, tmp_path / "grpo.py"],
        env={**WITH_PROJECT, **place},
        capture_output=True,
        text=True,
    )
    assert (ended.stdout.strip(), ended.stderr) == ("0 0", "")
