"""Several ranks: the mathematics of one, several nodes, devices, and ranks that die."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

import rlvr.machine.ranks as machine_ranks
from rlvr import world
from rlvr.errors import UserError
from rlvr.machine.devices import choose_device

import pytest
import ranks as program
import torch
from runs import ROOT, SMALL, WITH_PROJECT, arguments, free_port, weights

LAUNCH = [sys.executable, "-m", "torch.distributed.run"]
slow = pytest.mark.slow


def two_ranks(*program):
    """The command that runs a program as two ranks."""
    return [*LAUNCH, "--nproc_per_node", 2, "--master_port", free_port(), *program]


@contextlib.contextmanager
def started(commands, folder):
    """Start the commands side by side -> their processes, and a function for what they print."""
    logs = [folder / f"{i}.log" for i in range(len(commands))]
    processes = [
        subprocess.Popen(
            [str(part) for part in command],
            cwd=folder,
            env=WITH_PROJECT,
            stdout=log.open("w"),
            stderr=subprocess.STDOUT,
        )
        for command, log in zip(commands, logs, strict=True)
    ]
    try:
        yield processes, lambda: "".join(log.read_text() for log in logs)
    finally:
        for process in processes:
            process.kill()


def finish(*commands, folder):
    """Run the commands side by side to their end, without an error."""
    with started(commands, folder) as (processes, printed):
        for process in processes:
            process.wait(timeout=300)
        assert [process.returncode for process in processes] == [0] * len(commands), printed()


# ---------------------------------------------------------------------- the same mathematics

FLAGS = (
    "--max_steps 2 --prompts_per_step 8 --num_generations 4 --minibatch_size 16 --eval_problems 3 "
    "--eval_samples 2 --eval_steps 9 --beta 0.01 --entropy_coef 0.01"
).split()
# script and variant
RUNS = [("grpo", "grpo"), ("grpo", "gspo"), ("grpo", "dapo"), ("agrae", "agrae")]
RUNS += [("asymgrpo", "asymgrpo"), ("fade", "fade"), ("cwgrpo", "cwgrpo"), ("baselines", "grpo")]
MORE = {"baselines": "--token clip_cov --clip_cov_fraction 0.3 --advantage grpo_lead".split()}
# How many ranks, and their flags. The first way is what the others are compared with.
WAYS = {
    "one microbatch": (1, []),
    "many microbatches": (1, ["--microbatch_tokens", "120"]),
    "two ranks, sharded": (2, ["--microbatch_tokens", "120"]),
    "two ranks, replicated": (2, ["--fsdp", "no_shard"]),
}


def run_in_forks(count, folder, *given):
    """Run tests/ranks.py as that many forks of this process, which has imported torch already."""
    port, children = free_port(), []
    for rank in range(count):
        children.append(os.fork())
        if children[-1] == 0:
            try:
                environment = dict(RANK=str(rank), WORLD_SIZE=str(count))
                os.environ |= environment | dict(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
                world.RANK = world.LOCAL_RANK = rank
                world.WORLD_SIZE = world.LOCAL_WORLD_SIZE = count
                program.end_one_of_several_ranks = lambda: None
                program.main(*given)
                os._exit(0)
            except BaseException:
                (folder / f"{count}-{rank}.log").write_text(traceback.format_exc())
                os._exit(1)
    ended = [os.waitpid(child, 0)[1] for child in children]
    assert ended == [0] * count, [log.read_text() for log in folder.glob("*.log")]


@pytest.fixture(scope="module")
def trained_in_ways(request, tmp_path_factory):
    """trained_in_ways(way, run) -> [(loss, gradient)] of the updates, and the last weights."""
    folder = tmp_path_factory.mktemp("ranks")
    tests = [item for item in request.session.items if "trained_in_ways" in item.fixturenames]
    runs = dict.fromkeys(test.callspec.params["run"] for test in tests)
    for number in (1, 2):  # what tests/ranks.py is to do
        trainings = [
            {"name": way, "script": script, "variant": variant}
            | {"flags": [*FLAGS, *flags, *MORE.get(script, [])]}
            for way, (count, flags) in WAYS.items()
            for script, variant in runs
            if count == number
        ]
        (folder / f"{number}.json").write_text(json.dumps(trainings))
        run_in_forks(number, folder, str(folder), str(folder), folder / f"{number}.json")
    return lambda way, run: torch.load(folder / f"{way}-{'-'.join(run)}.pt")


@pytest.mark.parametrize("way", [*WAYS][1:])
@pytest.mark.parametrize(
    "run", [RUNS[0], *(pytest.param(run, marks=slow) for run in RUNS[1:])], ids="-".join
)
def test_the_same_loss_gradients_and_weights(trained_in_ways, way, run):
    """With KL penalty and entropy bonus, four updates of two rollouts, 1 to 41 tokens."""
    expected_updates, expected_weights, _ = trained_in_ways("one microbatch", run)
    updates, weights_at_the_end, _ = trained_in_ways(way, run)
    assert len(updates) == len(expected_updates) == 4
    for (loss, gradient), expected in zip(updates, expected_updates, strict=True):
        expected_loss, expected_gradient = expected
        assert loss == pytest.approx(expected_loss, abs=1e-5)
        torch.testing.assert_close(gradient, expected_gradient, rtol=0, atol=1e-5)
        assert expected_gradient.norm() > 1e-2
    torch.testing.assert_close(weights_at_the_end, expected_weights, rtol=0, atol=1e-5)


# ------------------------------------------------------------------------- ranks that die or hang


def wait_for(text, printed):
    begun = time.monotonic()
    while text not in printed():
        assert time.monotonic() < begun + 120, printed()
        time.sleep(0.1)


def process_of_rank_1(launcher):
    """The last process that the launcher has started."""
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children")
    return int(children.read_text().split()[-1])


# Runs a script in which a rank waits for another one for ten seconds.
IMPATIENT = """
import datetime, runpy, sys
import rlvr.machine.ranks

rlvr.machine.ranks.TIMEOUT = datetime.timedelta(seconds=10)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@slow
@pytest.mark.parametrize(
    "number",
    [signal.SIGKILL, signal.SIGSTOP],  # as where a machine is gone without a word
)
def test_a_rank_that_dies_or_hangs_ends_the_run(cache_dir, tmp_path, number):
    endless = dict(max_steps=10**6, eval_steps=10**6, save_total_limit=2)
    flags = arguments(**{**SMALL, **endless}, cache_dir=cache_dir, output_dir="run")
    (tmp_path / "impatient.py").write_text(IMPATIENT)
    program = [tmp_path / "impatient.py", ROOT / "grpo.py", *flags]
    with started([two_ranks(*program)], tmp_path) as ([launcher], printed):
        wait_for("  2/", printed)
        rank_1 = process_of_rank_1(launcher)
        os.kill(rank_1, number)
        if number == signal.SIGSTOP:
            wait_for("Traceback", printed)  # of rank 0, after ten seconds
            os.kill(rank_1, signal.SIGKILL)  # torchrun would do so after half a minute
        assert launcher.wait(timeout=60) != 0
    for checkpoint in (tmp_path / "run").glob("checkpoint-*"):
        assert weights(checkpoint)


# --------------------------------------------------------------------------------- single functions


def test_sums_means_and_groups_of_two_ranks(monkeypatch):
    """The other rank's part stands behind ours."""
    others = []
    monkeypatch.setattr(machine_ranks.world, "WORLD_SIZE", 2)
    monkeypatch.setattr(machine_ranks, "gather", lambda items: items + [others.pop(0)])
    others.append([5.0, 1.0])
    assert machine_ranks.global_sum(1, torch.tensor(2.0)) == [6.0, 3.0]
    others.append([1.5])
    assert machine_ranks.global_mean(torch.tensor([0.0, 1.0])) == [1.0]
    others.append(3.0)
    assert machine_ranks.global_max(2.0) == 3.0
    # the prompts 0 and 2 are ours, and 1 and 3 the other's, whose longest completion is longer
    others.append([torch.tensor([[[1.0, 1.0]], [[3.0, 3.0]]])])
    (found,) = machine_ranks.gather_groups(1, torch.tensor([[9.0], [2.0]]))
    assert found.tolist() == [[[9.0, 0.0]], [[1.0, 1.0]], [[2.0, 0.0]], [[3.0, 3.0]]]


def test_a_rank_takes_the_gpu_of_its_own_number(monkeypatch):
    chosen = four_of(monkeypatch, "cuda")
    monkeypatch.setattr(world, "LOCAL_RANK", 3)
    assert choose_device() == torch.device("cuda:3")
    assert chosen == [3]
    monkeypatch.setattr(world, "LOCAL_RANK", 4)
    with pytest.raises(UserError, match="^local rank 4 sees 4 GPUs: "):
        choose_device()


def four_of(monkeypatch, kind):
    """As on a machine with four accelerators of a kind, or with none -> the numbers chosen."""
    chosen, found = [], kind and torch.device(kind)
    monkeypatch.setattr(
        torch.accelerator, "current_accelerator", lambda check_available=False: found
    )
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 4)
    monkeypatch.setattr(torch.accelerator, "set_device_index", chosen.append)
    monkeypatch.setattr(torch.backends.cuda, "enable_cudnn_sdp", lambda wanted: None)
    return chosen


@pytest.mark.parametrize(
    "there, wanted, device",
    [
        (None, "auto", "cpu"),
        ("cuda", "cpu", "cpu"),
        ("xpu", "auto", "xpu:0"),
        ("mps", "auto", "cpu"),  # nobody has seen it work
        ("mps", "mps", "mps:0"),
        ("mps", "cuda", None),
        (None, "cuda", None),
    ],
)
def test_the_device_that_a_run_asks_for(monkeypatch, there, wanted, device):
    four_of(monkeypatch, there)
    if device:
        assert choose_device(wanted) == torch.device(device)
        return
    with pytest.raises(UserError, match=f"^--device {wanted}: torch finds none"):
        choose_device(wanted)


@pytest.mark.parametrize(
    "device, backend",
    [("cpu", "gloo"), ("cuda", "cpu:gloo,cuda:nccl"), ("xpu", "cpu:gloo,xpu:xccl")],
)
def test_objects_go_over_the_cpu(monkeypatch, device, backend):
    """torch takes the CPU's backend for objects where there are two: rank 0's problems are GBs."""
    found = []
    monkeypatch.setattr(
        torch.distributed, "init_process_group", lambda name, **_: found.append(name)
    )
    monkeypatch.setattr(world, "WORLD_SIZE", 2)
    with machine_ranks.process_group(torch.device(device)):
        assert found == [backend]
