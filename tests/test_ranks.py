"""Several processes: the same mathematics as one, several nodes, and ranks that die."""
import os
import re
import signal
import subprocess
import sys
import time

import pytest
import torch
from ranks import RUNS, runs_of

from test_scripts import cache_dir  # noqa: F401
from test_scripts import ENVIRONMENT, ROOT, SMALL, arguments, free_port, rows, steps, weights

LAUNCH = [sys.executable, "-m", "torch.distributed.run"]
SAME = ("--numbers 2 --sft_steps 80 --max_steps 2 --prompts_per_step 8 --num_generations 4 --minibatch_size 16 "
        "--eval_problems 3 --eval_samples 2 --eval_steps 9 --beta 0.01 --entropy_coef 0.01 --max_grad_norm 100").split()

def finish(*commands, folder, timeout=300):
    """Runs the commands side by side -> [(exit code, stdout, stderr)]."""
    processes = [subprocess.Popen([str(part) for part in command], cwd=folder, env=ENVIRONMENT, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE) for command in commands]
    try:
        outputs = [process.communicate(timeout=timeout) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, *output) for process, output in zip(processes, outputs)]

@pytest.fixture(scope="module")
def in_one_and_in_two(tmp_path_factory):
    """(name, (script, variant)) -> [(loss, gradient) of each update], weights at the end"""
    folder = tmp_path_factory.mktemp("ranks")
    cache = folder / "cache"
    (one,) = finish([sys.executable, ROOT / "tests/ranks.py", folder, cache, *SAME, "/", *SAME, "--microbatch_tokens",
                     "120"], folder=folder)
    assert one[0] == 0, one[2]
    for i, name in enumerate(("one microbatch", "many microbatches")):
        for script, variant in RUNS:
            (folder / f"{i}-{script}-{variant}.pt").rename(folder / f"{name}-{script}-{variant}.pt")
    (two,) = finish([*LAUNCH, "--nproc_per_node", 2, "--master_port", free_port(), ROOT / "tests/ranks.py",
                     folder / "two", cache, *SAME, "--microbatch_tokens", "120", "/", *SAME, "--fsdp", "false"],
                    folder=folder)
    assert two[0] == 0, two[2]
    for i, name in enumerate(("two ranks, sharded", "two ranks, replicated")):
        for script, variant in runs_of("--fsdp" * i):
            (folder / "two" / f"{i}-{script}-{variant}.pt").rename(folder / f"{name}-{script}-{variant}.pt")
    return lambda name, run: torch.load(folder / f"{name}-{'-'.join(run)}.pt")

@pytest.mark.parametrize("name, run", [
    *((name, run) for name in ("many microbatches", "two ranks, sharded") for run in RUNS),
    *(("two ranks, replicated", run) for run in runs_of("--fsdp"))], ids=str)
def test_the_same_loss_gradients_and_weights(in_one_and_in_two, name, run):
    """With KL penalty and entropy bonus, over four updates of two rollouts, on completions of 1 to 41 tokens."""
    expected, got = in_one_and_in_two("one microbatch", run), in_one_and_in_two(name, run)
    assert len(got[0]) == len(expected[0]) == 4
    for (loss, gradient), (expected_loss, expected_gradient) in zip(got[0], expected[0]):
        assert loss == pytest.approx(expected_loss, abs=1e-5)
        torch.testing.assert_close(gradient, expected_gradient, rtol=0, atol=1e-5)
        assert expected_gradient.norm() > 1e-2
    torch.testing.assert_close(got[1], expected[1], rtol=0, atol=1e-5)

def script_of(folder, first=""):
    """grpo.py, which tells its process id and its rank first."""
    (folder / "run.py").write_text(f"""
import os, runpy, sys
print("rank", os.environ["RANK"], "is", os.getpid(), flush=True)
sys.path.insert(0, {str(ROOT)!r})
sys.argv[0] = "{ROOT}/grpo.py"
{first}
runpy.run_path(sys.argv[0], run_name="__main__")
""")
    return "run.py"

def nodes(folder, *flags):
    """Two launchers on this machine, of one rank each, as on two machines."""
    port = free_port()
    return [[*LAUNCH, "--nnodes", 2, "--node_rank", node, "--nproc_per_node", 1, "--master_addr", "127.0.0.1",
             "--master_port", port, script_of(folder), *flags] for node in range(2)]

@pytest.mark.skipif(os.environ.get("RLVR_SLOW") != "1", reason="takes a minute; RLVR_SLOW=1 runs it")
def test_two_nodes_train_as_two_ranks_of_one(cache_dir, tmp_path):
    flags = arguments(**SMALL, cache_dir=cache_dir)
    found = finish(*nodes(tmp_path, *flags, "--output_dir", "nodes"), folder=tmp_path)
    assert [code for code, _, _ in found] == [0, 0], found
    (one,) = finish([*LAUNCH, "--nproc_per_node", 2, "--master_port", free_port(), "run.py", *flags, "--output_dir",
                     "one"], folder=tmp_path)
    assert one[0] == 0, one[2]
    assert rows(tmp_path / "nodes") == rows(tmp_path / "one") and steps(tmp_path / "nodes") == [1, 2]
    assert rows(tmp_path / "nodes", "eval") == rows(tmp_path / "one", "eval")
    first, second = (weights(tmp_path / name / "checkpoint-2") for name in ("nodes", "one"))
    assert all(torch.equal(first[name], second[name]) for name in first)

@pytest.mark.parametrize("places", ["one node", "two nodes"])
def test_a_rank_that_dies_ends_the_run(cache_dir, tmp_path, places):
    flags = arguments(**SMALL | dict(max_steps=10**6, eval_steps=10**6, save_steps=1, save_total_limit=2),
                      cache_dir=cache_dir, output_dir="run")
    one = [[*LAUNCH, "--nproc_per_node", 2, "--master_port", free_port(), script_of(tmp_path), *flags]]
    logs = [open(tmp_path / f"{i}.log", "w+") for i in range(2)]
    processes = [subprocess.Popen([str(part) for part in command], cwd=tmp_path, env=ENVIRONMENT, stdout=log,
                                  stderr=subprocess.STDOUT)
                 for command, log in zip(one if places == "one node" else nodes(tmp_path, *flags), logs)]

    def text():
        return "".join((tmp_path / f"{i}.log").read_text() for i in range(2))

    try:
        begun = time.monotonic()
        while "metrics 2/" not in text() and time.monotonic() < begun + 120:
            time.sleep(0.1)
        ranks = dict(re.findall(r"rank (\d) is (\d+)", text()))
        os.kill(int(ranks["1"]), signal.SIGKILL)
        killed = time.monotonic()
        for process in processes:
            assert process.wait(timeout=60) != 0
        assert time.monotonic() < killed + 60
    finally:
        for process in processes:
            process.kill()
    assert len(re.findall(r"grpo.py: error: rank 0 has lost another one, which has ended or hangs; .*\n", text())) == 1
    assert "Traceback" not in text().partition("torch/distributed/elastic")[0]  # what follows is the launcher's
    with pytest.raises(ProcessLookupError):
        os.kill(int(ranks["0"]), 0)
    for checkpoint in (tmp_path / "run").glob("checkpoint-*"):
        assert weights(checkpoint)

def test_a_rank_that_hangs_ends_the_others(cache_dir, tmp_path):
    """Stopped, as where a machine is gone without a word: the other waits for it and cannot know."""
    flags = arguments(**SMALL | dict(max_steps=10**6, eval_steps=10**6), cache_dir=cache_dir, output_dir="run")
    script = script_of(tmp_path, "import runner; runner.BEAT, runner.SILENCE = 0.5, 4.0")
    command = [*LAUNCH, "--nproc_per_node", 2, "--master_port", free_port(), script, *flags]
    with open(tmp_path / "log", "w") as log:
        process = subprocess.Popen([str(part) for part in command], cwd=tmp_path, env=ENVIRONMENT, stdout=log,
                                   stderr=subprocess.STDOUT)
    try:
        begun = time.monotonic()
        while "metrics 2/" not in (tmp_path / "log").read_text() and time.monotonic() < begun + 120:
            time.sleep(0.1)
        ranks = dict(re.findall(r"rank (\d) is (\d+)", (tmp_path / "log").read_text()))
        os.kill(int(ranks["1"]), signal.SIGSTOP)
        stopped = time.monotonic()
        while "error: rank 0 has not heard of rank 1 for 4 s" not in (tmp_path / "log").read_text():
            assert time.monotonic() < stopped + 30, (tmp_path / "log").read_text()
            time.sleep(0.1)
    finally:
        os.kill(int(ranks["1"]), signal.SIGKILL)
        process.wait(timeout=60)
    assert process.returncode != 0 and "Traceback" not in (tmp_path / "log").read_text().partition(
        "torch/distributed/elastic")[0]
