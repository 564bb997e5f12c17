"""Several ranks: the mathematics of one, several nodes, devices, and ranks that die."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time

import rlvr.machine.devices
import rlvr.machine.ranks as ranks
from rlvr import world
from rlvr.errors import UserError
from rlvr.machine.devices import choose_device

import pytest
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
    "--numbers 2 --sft_steps 80 --max_steps 2 --prompts_per_step 8 --num_generations 4 "
    "--minibatch_size 16 --eval_problems 3 --eval_samples 2 --eval_steps 9 --beta 0.01 "
    "--entropy_coef 0.01 --max_grad_norm 100"
).split()
RUNS = [  # script and variant
    ("grpo", "grpo"),
    ("grpo", "gspo"),
    ("grpo", "dapo"),
    ("agrae", "agrae"),
    ("asymgrpo", "asymgrpo"),
    ("fade", "fade"),
    ("cwgrpo", "cwgrpo"),
    ("cwgrpo", "clip-cov"),
]
OF_VARIANT = {"clip-cov": ["--clip_cov_fraction", "0.3"]}
# How many ranks, and their flags. The first way is what the others are compared with.
WAYS = {
    "one microbatch": (1, []),
    "many microbatches": (1, ["--microbatch_tokens", "120"]),
    "two ranks, sharded": (2, ["--microbatch_tokens", "120"]),
    "two ranks, replicated": (2, ["--no_fsdp"]),
}


@pytest.fixture(scope="module")
def trained_in_ways(request, tmp_path_factory, cache_dir):
    """trained_in_ways(way, run) -> [(loss, gradient) of each update], and the weights at the end.

    To start processes takes longer than to train, so that one start serves all tests that run.
    """
    folder = tmp_path_factory.mktemp("ranks")
    tests = [item for item in request.session.items if "trained_in_ways" in item.fixturenames]
    runs = dict.fromkeys(test.callspec.params["run"] for test in tests)
    for number in (1, 2):  # what tests/ranks.py is to do
        trainings = [
            {"name": way, "script": script, "variant": variant}
            | {"flags": [*FLAGS, *flags, *OF_VARIANT.get(variant, [])]}
            for way, (count, flags) in WAYS.items()
            for script, variant in runs
            if count == number
        ]
        (folder / f"{number}.json").write_text(json.dumps(trainings))
    program = [ROOT / "tests/ranks.py", folder, cache_dir]
    alone = [sys.executable, *program, "1.json"]
    finish(alone, two_ranks(*program, "2.json"), folder=folder)
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


# ------------------------------------------------------------------ nodes, and ranks that die

PROGRAM = """
import os
import runpy
import sys

{first}
print("rank", os.environ["RANK"], "is", os.getpid(), flush=True)
sys.argv[0] = "{root}/grpo.py"
runpy.run_path(sys.argv[0], run_name="__main__")
"""
# The launcher prints a traceback of its own below this.
LAUNCHERS_REPORT = "torch/distributed/elastic"


def program_in(folder, first=""):
    """Write run.py: grpo.py, after a line of its own, and after it has told its process id."""
    (folder / "run.py").write_text(PROGRAM.format(first=first, root=ROOT))
    return "run.py"


def two_nodes(*program):
    """Two launchers of one rank each, as on two machines."""
    address = ["--master_addr", "127.0.0.1", "--master_port", free_port()]
    return [
        [*LAUNCH, "--nnodes", 2, "--node_rank", node, "--nproc_per_node", 1, *address, *program]
        for node in range(2)
    ]


def wait_for_step_2(printed):
    """The process id of each rank, once they are in the middle of a training."""
    begun = time.monotonic()
    while "  2/" not in printed():
        assert time.monotonic() < begun + 120, printed()
        time.sleep(0.1)
    return {int(rank): int(pid) for rank, pid in re.findall(r"rank (\d) is (\d+)", printed())}


@slow
@pytest.mark.parametrize("places", ["one node", "two nodes"])
def test_a_rank_that_dies_ends_the_run(cache_dir, tmp_path, places):
    endless = dict(max_steps=10**6, eval_steps=10**6, save_steps=1, save_total_limit=2)
    flags = arguments(**{**SMALL, **endless}, cache_dir=cache_dir, output_dir="run")
    program = program_in(tmp_path)
    one_node = [two_ranks(program, *flags)]
    commands = one_node if places == "one node" else two_nodes(program, *flags)
    with started(commands, tmp_path) as (processes, printed):
        ranks = wait_for_step_2(printed)
        os.kill(ranks[1], signal.SIGKILL)
        killed = time.monotonic()
        for process in processes:
            assert process.wait(timeout=60) != 0
        assert time.monotonic() < killed + 60
        text = printed()
    message = r"grpo.py: error: rank 0 has lost another one, which has ended or hangs; .*\n"
    assert len(re.findall(message, text)) == 1, text
    assert "Traceback" not in text.partition(LAUNCHERS_REPORT)[0], text
    with pytest.raises(ProcessLookupError):
        os.kill(ranks[0], 0)
    for checkpoint in (tmp_path / "run").glob("checkpoint-*"):
        assert weights(checkpoint)


IMPATIENT = """
import rlvr.machine.watch
rlvr.machine.watch.BEAT, rlvr.machine.watch.SILENCE, rlvr.machine.watch.START = 0.5, 4.0, {start}
"""
RANK_1_STOPS = """
if os.environ["RANK"] == "1":
    import signal
    print("rank 1 is", os.getpid(), flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
"""


@slow
@pytest.mark.parametrize("when", ["before the ranks are connected", "in a training"])
def test_a_rank_that_hangs_ends_the_others(cache_dir, tmp_path, when):
    """It is stopped, as where a machine is gone without a word: the other cannot know."""
    endless = dict(max_steps=10**6, eval_steps=10**6)
    flags = arguments(**{**SMALL, **endless}, cache_dir=cache_dir, output_dir="run")
    before = when == "before the ranks are connected"
    first = IMPATIENT.format(start=4.0) + RANK_1_STOPS if before else IMPATIENT.format(start=20.0)
    program = program_in(tmp_path, first)
    with started([two_ranks(program, *flags)], tmp_path) as ((process,), printed):
        if not before:
            os.kill(wait_for_step_2(printed)[1], signal.SIGSTOP)
        begun = time.monotonic()
        try:
            while "error: rank 0 has not heard of rank 1 for 4 s" not in printed():
                assert time.monotonic() < begun + 60, printed()
                time.sleep(0.1)
        finally:
            os.kill(int(re.search(r"rank 1 is (\d+)", printed())[1]), signal.SIGKILL)
            process.wait(timeout=60)
    assert process.returncode != 0
    assert "Traceback" not in printed().partition(LAUNCHERS_REPORT)[0]


def test_sums_means_and_groups_of_two_ranks(monkeypatch):
    """The other rank's part stands behind ours."""
    others = []
    monkeypatch.setattr(ranks.world, "WORLD_SIZE", 2)
    monkeypatch.setattr(ranks, "gather", lambda items: items + [others.pop(0)])
    others.append([5.0, 1.0])
    assert ranks.global_sum(1, torch.tensor(2.0)) == [6.0, 3.0]
    others.append([1.5])
    assert ranks.global_mean(torch.tensor([0.0, 1.0])) == [1.0]
    others.append(3.0)
    assert ranks.global_max(2.0) == 3.0
    # the prompts 0 and 2 are ours, and 1 and 3 the other's, whose longest completion is longer
    others.append([torch.tensor([[[1.0, 1.0]], [[3.0, 3.0]]])])
    (found,) = ranks.gather_groups(1, torch.tensor([[9.0], [2.0]]))
    assert found.tolist() == [[[9.0, 0.0]], [[1.0, 1.0]], [[2.0, 0.0]], [[3.0, 3.0]]]


# ------------------------------------------------------------------------------------------ devices


@pytest.fixture
def gpus(monkeypatch, tmp_path):
    """gpus(usable) makes it look as if there were a driver, and so many GPUs that torch can use."""

    def look(usable, driver=True):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: usable > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: usable)
        file = tmp_path if driver else tmp_path / "none"
        monkeypatch.setattr(rlvr.machine.devices, "A_GPU", file)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    return look


@pytest.mark.parametrize(
    "driver, visible, rank, is_warned",
    [
        (True, None, 0, True),  # as where the driver is too old: the CPU would take days
        (False, None, 0, False),
        (True, "", 0, False),
        (True, "-1", 0, False),
        (True, None, 1, False),
    ],
)
def test_a_gpu_that_torch_cannot_use(gpus, monkeypatch, capsys, driver, visible, rank, is_warned):
    gpus(0, driver)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(world, "RANK", rank)
    assert choose_device() == torch.device("cpu")
    told = capsys.readouterr().err
    assert told.count("\n") == told.count("warning: there is a GPU") == is_warned


def test_a_rank_takes_the_gpu_of_its_own_number(gpus, monkeypatch):
    chosen = []
    gpus(4)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(world, "LOCAL_RANK", 3)
    assert choose_device() == torch.device("cuda:3")
    assert chosen == [torch.device("cuda:3")]
    gpus(3)
    with pytest.raises(UserError, match="^local rank 3 sees 3 GPUs: "):
        choose_device()


# ------------------------------------------------------------------------- a rank that falls silent


# There are two ranks, and one more process that keeps their store. A scenario prints the exit codes
# of the ranks that it has started.
RANKS_UNDER_WATCH = """
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


def codes_of(*ranks):
    return [os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1]) for rank in ranks]


def they_end():
    rlvr.machine.watch.BEAT = 0.0  # so that they are in the store's code nearly all the time
    return codes_of(*[start(be_a_rank, 0, 0.05) for _ in range(3)])


def the_store_is_stopped():
    rlvr.machine.watch.BEAT, rlvr.machine.watch.SILENCE, rlvr.machine.watch.START = 0.25, 1.0, 20.0
    ranks = start(be_a_rank, 1, 60), start(be_a_rank, 1, 1)
    time.sleep(0.5)
    os.kill(store, signal.SIGSTOP)
    return codes_of(*ranks)


def all_are_stopped_for_a_while():
    ranks = start(be_a_rank, 0, 6), start(be_a_rank, 1, 6)
    time.sleep(1)
    for number in signal.SIGSTOP, signal.SIGCONT:
        for rank in ranks:
            os.kill(rank, number)
        time.sleep(3)
    return codes_of(*ranks)


store = start(keep_the_store)
print(*globals()[sys.argv[1]]())
os.kill(store, signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "scenario, codes, complaints",
    [
        ("they_end", "0 0 0", 0),
        ("the_store_is_stopped", "2 2", 2),  # one was about to end by itself, which it cannot
        ("all_are_stopped_for_a_while", "0 0", 0),
    ],
)
def test_how_ranks_end(tmp_path, scenario, codes, complaints):
    """Above, one rank of a run is stopped, and one that never begins."""
    (tmp_path / "grpo.py").write_text(RANKS_UNDER_WATCH)
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "WORLD_SIZE": "2"}
    ended = subprocess.run(
        [sys.executable, tmp_path / "grpo.py", scenario],
        env={**WITH_PROJECT, **place},
        capture_output=True,
        text=True,
    )
    assert ended.stdout.split() == codes.split(), ended.stderr
    line = "grpo.py: error: rank 1 has not heard of rank 0('s machine)? for 1 s; resume from .*\n"
    assert re.fullmatch(f"({line}){{{complaints}}}", ended.stderr), ended.stderr
