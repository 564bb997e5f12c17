"""Runs that are killed, stopped or out of disk, checkpoints that are damaged: what resuming then makes of them.

RLVR_SLOW=1 kills 30 times instead of 3, resumes from every point of a save, and stops two ranks during a save.
"""
import contextlib
import importlib
import itertools
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import asdict, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
import safetensors.torch
import torch

import common
import runner
from test_scripts import (ENVIRONMENT, ROOT, SCRIPTS, SMALL, arguments, bare, cache_dir,  # noqa: F401
                          free_port, real_load_problems, refused, resume, rows, run, steps, write_sums)

SLOW = os.environ.get("RLVR_SLOW") == "1"
LOGS = ("metrics", "eval", "samples")

def checkpoints(folder):
    """The checkpoints of a run folder, the oldest first."""
    found = [path for path in Path(folder).iterdir() if re.fullmatch(r"checkpoint-\d+", path.name)]
    return sorted(found, key=lambda path: int(path.name[11:]))

def loaded(checkpoint):
    """What a checkpoint holds, its checksums compared: weights, moments and what else resuming restores."""
    assert runner.is_whole(checkpoint), checkpoint
    state = torch.load(checkpoint / "state.pt", weights_only=True)
    return {"weights": safetensors.torch.load_file(checkpoint / "model.safetensors"), "step": state["step"],
            "moments": state["optimizer"].get("state", {}), "position": state["position"], "state": state["state"],
            "random": state["rng"][0][0]}

def assert_same_end(folder, straight):
    """The rows, the last weights and all that goes with them are, bit for bit, those of another run."""
    for name in LOGS:
        assert rows(folder, name) == rows(straight, name), name
    last, expected = (loaded(checkpoints(path)[-1]) for path in (folder, straight))
    torch.testing.assert_close(last, expected, rtol=0, atol=0)

def tree(folder):
    """What a folder holds: {path: bytes, or None for a folder}."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
            for path in Path(folder).rglob("*")}

@pytest.fixture(autouse=True)
def no_curves(monkeypatch):
    """Drawing them takes longer than a whole run of these; test_scripts.py draws them."""
    monkeypatch.setattr(common.Run, "finish", lambda _: None)

@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return tmp_path_factory.mktemp("kept") / "straight"

@pytest.fixture
def straight(run, kept):
    """The folder of a run of 3 steps that nothing has interrupted; made once, and only read."""
    if not kept.exists():
        assert run("grpo", output_dir=kept, max_steps=3).code == 0
    return kept

# ---------------------------------------------------------------------------------------------- kill -9, by processes
NURSERY = f"""
import json, os, runpy, signal, sys
sys.path.insert(0, {str(ROOT)!r})
import matplotlib.figure
import torch
import common
torch.set_num_threads(1)
problems = common.load_problems(common.Config(numbers="2", eval_problems=4), common.build_tiny()[1])
common.load_problems = lambda *_: problems
if not {SLOW}:
    common.Run.finish = lambda _: None
for line in sys.stdin:
    folder, script, flags = json.loads(line)
    child = os.fork()
    if not child:
        signal.alarm(300)
        os.chdir(folder)
        for number, name in ((0, os.devnull), (1, "out"), (2, "err")):
            os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), number)
        sys.argv = [f"{ROOT}/{{script}}.py", *flags]
        runpy.run_path(sys.argv[0], run_name="__main__")
        sys.exit()
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""

@pytest.fixture(scope="module")
def nursery(tmp_path_factory):
    """start(folder, script, flag=value, ...) -> the id of a process that runs a script in a folder, with its output in
    the files `out` and `err` there; wait() -> its exit code. It is forked from one that has imported everything, and
    has run nothing: importing takes longer than a few steps.
    """
    folder = tmp_path_factory.mktemp("nursery")
    (folder / "nursery.py").write_text(NURSERY)
    process = subprocess.Popen([sys.executable, "nursery.py"], cwd=folder, env=ENVIRONMENT, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)

    def start(folder, script, **flags):
        for name in ("out", "err"):
            (Path(folder) / name).unlink(missing_ok=True)
        process.stdin.write(json.dumps([str(folder), script, arguments(**flags)]) + "\n")
        process.stdin.flush()
        return int(process.stdout.readline())

    yield SimpleNamespace(start=start, wait=lambda: int(process.stdout.readline()))
    process.stdin.close()
    process.wait(timeout=300)

def send(child, number):
    """Sends a signal -> whether the process was still there."""
    try:
        os.kill(child, number)
        return True
    except ProcessLookupError:
        return False

def until(child, condition):
    """Waits until the condition holds or the process has ended."""
    while not condition() and send(child, 0):
        time.sleep(0.001)

def saving(folder):
    return {path.name for path in Path(folder).glob(".saving-*")}

def test_kill_at_random_moments(nursery, run, straight, cache_dir, tmp_path):
    """While a run begins or picks up, in a step, in a save; each time it is picked up where it was, to the same end."""
    wanted, rng, kills, inside = 30 if SLOW else 3, random.Random(time.time_ns()), Counter(), 0
    flags = {**SMALL, "max_steps": 12 if SLOW else 3, "cache_dir": cache_dir}
    first, *_, last = ((checkpoint / "state.pt").stat().st_mtime for checkpoint in checkpoints(straight))
    pace = (last - first) / 2  # seconds a step
    if SLOW:
        straight = Path("straight")
        assert run("grpo", **{**flags, "output_dir": straight}).code == 0
    for number in itertools.count():
        folder, code = Path(f"killed-{number}"), None
        while code != 0:
            resumed, before = (folder / "config.json").exists(), saving(folder)
            child = nursery.start(tmp_path, "grpo", **(
                dict(resume_from_checkpoint=folder) if resumed else flags | dict(output_dir=folder)))
            count = kills.total()
            aim = ("step", "save", "begin")[count if count < 3 else rng.randrange(3)] if count < wanted else None
            if aim == "begin":
                time.sleep(rng.uniform(0, 3 * pace))
            elif aim == "step":
                until(child, lambda: Path("out").exists() and "metrics " in Path("out").read_text())
                time.sleep(rng.uniform(0, pace))
            elif aim == "save":
                until(child, lambda: saving(folder) - before)
                time.sleep(rng.uniform(0, 0.05 if SLOW else 0.01))
            if aim:
                send(child, signal.SIGKILL)
            code = nursery.wait()
            assert code in (0, -signal.SIGKILL), Path("err").read_text()
            assert "damaged" not in Path("out").read_text()
            if code:
                kills[aim] += 1
                inside += bool(saving(folder) - before)
            for checkpoint in checkpoints(folder) if folder.exists() else ():
                assert loaded(checkpoint)["step"] == int(checkpoint.name[11:])
        assert_same_end(folder, straight)
        assert not saving(folder) and len(checkpoints(folder)) == flags["max_steps"]
        if kills.total() >= wanted:
            break
    print(f"{wanted} kills, {inside} inside a save: {kills}")
    assert {"step", "save", "begin"} == kills.keys() and inside

# ------------------------------------------------------------------------------- what a kill leaves, at every point
WATCHED = {}  # where to copy to: the folder to copy

def on_event(event, _):
    """Before the next thing that Python does to files, copies the watched folder where anything in it has changed: so
    a kill in between would leave it.
    """
    if not WATCHED or not (event == "open" or event.startswith(("os.", "shutil."))):
        return
    (copies, folder), = WATCHED.items()
    WATCHED.clear()  # what follows is not to be watched
    now = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(folder.rglob("*"))]
    if folder.exists() and now != on_event.last:
        shutil.copytree(folder, copies / f"{len(list(copies.iterdir())):03}")
        on_event.last = now
    WATCHED[copies] = folder

@contextlib.contextmanager
def watching(folder, copies):
    """Copies the folder to copies/000, 001, ...: each state that it has on the way."""
    if not hasattr(on_event, "last"):
        sys.addaudithook(on_event)
    on_event.last = None
    copies.mkdir()
    WATCHED[copies] = Path(folder).absolute()
    try:
        yield
        os.scandir(folder).close()  # one more event, for the last state
    finally:
        WATCHED.clear()

def unlike(copies):
    """Of those that hold files and folders of the same names one each."""
    return {frozenset(path.name[:8] if path.name.startswith(".saving-") else path.name for path in copy.iterdir()): copy
            for copy in copies}.values()

def test_a_kill_at_any_point_of_a_save(run, resume, monkeypatch, straight, tmp_path):
    """The second of three saves, with --save_total_limit 1, so that it also removes the first."""
    end_step = common.Run.end_step

    def watched(self, step):
        with watching(self.folder, tmp_path / "copies") if step == 2 else contextlib.nullcontext():
            return end_step(self, step)

    monkeypatch.setattr(common.Run, "end_step", watched)
    assert run("grpo", max_steps=3, save_total_limit=1).code == 0
    copies = sorted(Path("copies").iterdir())
    for copy in copies:
        assert checkpoints(copy) and all(map(loaded, checkpoints(copy)))  # at least one, and none that is damaged
    present = {tuple(path.name for path in checkpoints(copy)) for copy in copies}
    assert present == {("checkpoint-1",), ("checkpoint-1", "checkpoint-2"), ("checkpoint-2",)}
    names = {Path(name).name for copy in copies for name in tree(copy) if ".saving" in name}
    assert {"model.safetensors", "state.pt", "checksums.json", "tokenizer.json"} <= names  # states within the writing
    monkeypatch.setattr(common.Run, "end_step", end_step)
    for copy in copies if SLOW else unlike(copies):
        last = checkpoints(copy)[-1]
        result = resume("grpo", copy)
        assert result.code == 0, result.err
        assert "damaged" not in result.out and not saving(copy)
        assert (f"metrics {last.name[11:]}/3" not in result.out) and "metrics 3/3" in result.out  # not from the start
        assert_same_end(copy, straight)

def test_a_kill_at_any_point_of_picking_a_run_up(resume, monkeypatch, straight, tmp_path):
    """Of going back to the first checkpoint of a run that has two more and the rests of a kill."""
    shutil.copytree(straight, "run")
    shutil.copytree("run/checkpoint-3", "run/.saving-rest/new")
    with open("run/metrics.jsonl", "a") as file:
        file.write('{"step": 4, "rew')
    begin = common.Run.begin

    def watched(self, *given, **named):
        begin(self, *given, **named)
        sys.exit(0)

    with monkeypatch.context() as patch:
        patch.setattr(common.Run, "begin", watched)
        with watching("run", tmp_path / "copies"):
            assert resume("grpo", "run/checkpoint-1", save_total_limit=5).code == 0
    assert steps("run") == [1] and not saving("run") and [path.name for path in checkpoints("run")] == ["checkpoint-1"]
    copies = sorted(Path("copies").iterdir())
    assert len(copies) >= 3 + 2 * 3 + 2  # config.json, the two checkpoints and the three logs, each by two or by one
    for copy in copies if SLOW else unlike(copies):
        result = resume("grpo", copy)
        assert result.code == 0, f"{sorted(path.name for path in copy.iterdir())}: {result.err}"
        assert not saving(copy) and "damaged" not in result.out
        assert_same_end(copy, straight)

@pytest.mark.parametrize("backwards", [False, True])
def test_a_kill_while_a_log_is_rewritten_whatever_the_order_of_files(resume, monkeypatch, straight, backwards):
    """A folder may list its files in any order: the rest of a log that was being rewritten before or after the log."""
    shutil.copytree(straight, "run")
    for name in LOGS:
        shutil.copy(f"run/{name}.jsonl", f"run/.{name}.jsonl")
    glob = Path.glob
    monkeypatch.setattr(Path, "glob", lambda *given: iter(sorted(glob(*given), reverse=backwards)))
    result = resume("grpo", "run/checkpoint-2")
    assert result.code == 0, result.err
    assert_same_end("run", straight)

# --------------------------------------------------------------------------------------------- damaged checkpoints
def flip(file):
    """Another value for the byte in the middle of a file."""
    held = bytearray(file.read_bytes())
    held[len(held) // 2] ^= 1
    file.write_bytes(held)

DAMAGES = {
    "state.pt cut off": lambda folder: os.truncate(folder / "state.pt", (folder / "state.pt").stat().st_size // 2),
    "a bit of the weights flipped": lambda folder: flip(folder / "model.safetensors"),
    "config.json missing": lambda folder: (folder / "config.json").unlink(),
    "checksums.json empty": lambda folder: (folder / "checksums.json").write_text(""),
    "nothing left": lambda folder: [path.unlink() for path in folder.iterdir()],
}

def assert_put_aside(folder, name, held):
    """Under another name, with all that it held."""
    aside, = Path(folder).glob(f"before-*-{name}")
    assert tree(aside) == held

@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before(resume, straight, damage):
    shutil.copytree(straight, "run")
    DAMAGES[damage](Path("run/checkpoint-3"))
    held, others = tree("run/checkpoint-3"), [tree(f"run/checkpoint-{step}") for step in (1, 2)]
    result = resume("grpo", "run")
    assert result.code == 0, result.err
    assert [line for line in result.out.splitlines() if "damaged" in line] == ["run/checkpoint-3 is damaged"]
    assert "metrics 3/3" in result.out and "metrics 2/3" not in result.out
    assert_same_end("run", straight)
    assert_put_aside("run", "checkpoint-3", held)
    assert [tree(f"run/checkpoint-{step}") for step in (1, 2)] == others

def test_an_empty_folder_named_as_a_later_checkpoint(resume, straight):
    shutil.copytree(straight, "run")
    Path("run/checkpoint-9").mkdir()
    result = resume("grpo", "run")
    assert result.code == 0, result.err
    assert [line for line in result.out.splitlines() if "damaged" in line] == ["run/checkpoint-9 is damaged"]
    assert_same_end("run", straight)
    assert_put_aside("run", "checkpoint-9", {})

def test_two_damaged_ones(resume, straight):
    shutil.copytree(straight, "run")
    for step in (2, 3):
        flip(Path(f"run/checkpoint-{step}/model.safetensors"))
    held = {step: tree(f"run/checkpoint-{step}") for step in (2, 3)}
    result = resume("grpo", "run")
    assert result.code == 0, result.err
    assert "metrics 2/3" in result.out and "metrics 1/3" not in result.out
    assert_same_end("run", straight)
    for step in (2, 3):
        assert_put_aside("run", f"checkpoint-{step}", held[step])

def test_latest_with_a_damaged_checkpoint(resume, straight):
    """Beside an older run, and a newer one of another script."""
    for age, name in enumerate(("fade-fade-2", "grpo-grpo-2", "grpo-grpo-1")):
        shutil.copytree(straight, f"runs/{name}")
        os.utime(f"runs/{name}/config.json", (time.time() - 1000 * age,) * 2)
    flip(Path("runs/grpo-grpo-2/checkpoint-3/state.pt"))
    others = {name: tree(f"runs/{name}") for name in ("fade-fade-2", "grpo-grpo-1")}
    held = tree("runs/grpo-grpo-2/checkpoint-3")
    result = resume("grpo", "latest")
    assert result.code == 0, result.err
    assert result.out.count("damaged") == 1 and "runs/grpo-grpo-2/checkpoint-3 is damaged\n" in result.out
    assert_same_end("runs/grpo-grpo-2", straight)
    assert_put_aside("runs/grpo-grpo-2", "checkpoint-3", held)
    assert {name: tree(f"runs/{name}") for name in others} == others

@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_that_is_given_itself_is_refused(resume, straight, damage):
    shutil.copytree(straight, "run")
    DAMAGES[damage](Path("run/checkpoint-3"))
    before = tree("run")
    assert refused(resume("grpo", "run/checkpoint-3"), "grpo", "--resume_from_checkpoint run/checkpoint-3")
    assert tree("run") == before

def test_all_damaged(resume, straight):
    shutil.copytree(straight, "run")
    for checkpoint, damage in zip(checkpoints("run"), DAMAGES.values()):
        damage(checkpoint)
    before = tree("run")
    assert refused(resume("grpo", "run"), "grpo", "--resume_from_checkpoint run", "whole")
    assert tree("run") == before

# ------------------------------------------------------------------------------------ full disks, folders read-only
@contextlib.contextmanager
def no_limit_afterwards():
    """limit(bytes): from then on no file can grow beyond, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

@pytest.mark.parametrize("size, fails", [(500, "config.json"), (200_000, "the weights"), (2_000_000, "state.pt")])
def test_a_full_disk_during_a_save(run, resume, monkeypatch, straight, size, fails):
    end_step = common.Run.end_step
    written = [path.stat().st_size for path in (straight / "checkpoint-1").iterdir() if path.name != "state.pt"]
    assert (max(written) < size < (straight / "checkpoint-1/state.pt").stat().st_size) == (fails == "state.pt")
    with no_limit_afterwards() as limit, monkeypatch.context() as patch:
        patch.setattr(common.Run, "end_step", lambda self, step: (limit(size) if step == 2 else None,
                                                                  end_step(self, step))[1])
        result = run("grpo", max_steps=3)
    assert refused(result, "grpo", "cannot write run/checkpoint-2")
    assert steps("run") == [1, 2] and not saving("run")
    checkpoint, = checkpoints("run")
    assert loaded(checkpoint)["step"] == 1
    result = resume("grpo", "run")
    assert result.code == 0, result.err
    assert_same_end("run", straight)

@pytest.mark.parametrize("name", ["metrics", "eval"])
def test_a_full_disk_while_a_row_is_written(run, resume, monkeypatch, straight, name):
    """That of step 2, of which 20 bytes still find room."""
    log, file = common.Run.log, Path(f"run/{name}.jsonl")
    with no_limit_afterwards() as limit, monkeypatch.context() as patch:
        patch.setattr(common.Run, "log", lambda self, kind, step, *given: (
            limit(file.stat().st_size + 20) if (kind, step) == (name, 2) else None, log(self, kind, step, *given)))
        result = run("grpo", max_steps=3)
    assert refused(result, "grpo", "too large")
    assert len(file.read_text().splitlines()[-1]) == 20
    checkpoint, = checkpoints("run")
    assert loaded(checkpoint)["step"] == 1
    result = resume("grpo", "run")
    assert result.code == 0, result.err
    assert_same_end("run", straight)

@pytest.mark.parametrize("moment, left", [("begin", ".config.json"), ("forget_after", ".metrics.jsonl")])
def test_a_full_disk_while_a_run_is_picked_up(resume, monkeypatch, straight, moment, left):
    """By 100 bytes a file: config.json cannot be written, or the logs cannot be cut back. The originals stay."""
    shutil.copytree(straight, "run")
    for name in ("eval", "samples"):  # the metrics' is the only log that is too long
        Path(f"run/{name}.jsonl").write_text("")
    before, true = tree("run"), getattr(common.Run, moment)
    with no_limit_afterwards() as limit, monkeypatch.context() as patch:
        patch.setattr(common.Run, moment, lambda *given, **named: (limit(100), true(*given, **named))[1])
        assert refused(resume("grpo", "run/checkpoint-2"), "grpo", "too large")
    now = {re.sub("^before-.*-checkpoint", "checkpoint", name): held for name, held in tree("run").items()}
    assert now.pop(left) is not None
    for held in (now, before) if moment == "forget_after" else ():
        del held["config.json"]  # with what was given, by then
    assert now == before
    shutil.rmtree("run/checkpoint-3", ignore_errors=True)
    result = resume("grpo", "run")
    assert result.code == 0, result.err
    assert steps("run") == [1, 2, 3] and not Path("run", left).exists()

def test_a_folder_that_may_only_be_read(run, resume, straight, tmp_path):
    """To begin in and to pick up from; the superuser, who may do all, is somebody else in the meantime."""
    shutil.copytree(straight, "run")
    Path("empty").mkdir()
    before = tree(".")
    for path in (tmp_path, *tmp_path.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    superuser = os.geteuid() == 0
    os.seteuid(65534) if superuser else None
    try:
        found = [run("grpo", output_dir=folder) for folder in ("empty", "new")] + [resume("grpo", "run")]
    finally:
        os.seteuid(0) if superuser else None
        for path in (tmp_path, *tmp_path.rglob("*")):
            path.chmod(0o755)
    for result in found:
        assert refused(result, "grpo", "Permission denied")
    assert tree(".") == before

def test_a_run_folder_that_is_lost_during_the_run(run, monkeypatch):
    log = common.Run.log
    monkeypatch.setattr(common.Run, "log", lambda self, kind, step, *given: (
        os.rename("run", "moved") if step == 1 and kind == "metrics" else None, log(self, kind, step, *given)))
    assert refused(run("grpo"), "grpo", "run/metrics.jsonl")
    assert steps("moved", "eval") == [0]

# ------------------------------------------------------------------------------------------------ save_total_limit
@pytest.mark.parametrize("limit, left", [(2, [2, 3]), (0, [1, 2, 3])])
def test_save_total_limit(run, limit, left):
    """That with 1 there is a whole one at every moment: test_a_kill_at_any_point_of_a_save."""
    assert run("grpo", max_steps=3, eval_steps=100, save_total_limit=limit).code == 0
    assert [loaded(checkpoint)["step"] for checkpoint in checkpoints("run")] == left and not saving("run")

# --------------------------------------------------------------------------------------------------------- SIGTERM
ENDLESS = SMALL | dict(max_steps=10**6, eval_steps=10**6, save_steps=10**6)

def signalling(monkeypatch, owner, name, count=1, when=lambda *_, **__: True):
    """Before a function runs, this process gets SIGTERM, as often as told."""
    true = getattr(owner, name)

    def signalled(*given, **named):
        for _ in range(count if when(*given, **named) else 0):
            signal.raise_signal(signal.SIGTERM)
        return true(*given, **named)

    monkeypatch.setattr(owner, name, signalled)

@pytest.mark.parametrize("name", ["load_policy", "warm_up_tiny", "token_logprobs", "save_beside", "load_problems",
                                  "load_reference", "make_sampler"])
def test_sigterm_at_any_stage_of_the_start(run, monkeypatch, name):
    """With a warm-up, in which two of them are called; nothing is left but, once it is, the policy."""
    with monkeypatch.context() as patch:
        signalling(patch, common, name)
        result = run("grpo", cache_dir="cache", sft_steps=1, beta=0.01)
    assert result.code == 0 and "Traceback" not in result.err
    assert [*Path("run").iterdir()] == []
    warmed_up = list(Path("cache").iterdir()) if Path("cache").exists() else []
    assert len(warmed_up) == (name in ("load_problems", "load_reference", "make_sampler"))
    assert all(map(runner.is_whole, warmed_up))

def test_a_second_sigterm_while_the_start_is_being_left(run, monkeypatch):
    """What a process does at its end is not to be interrupted: Python would print a traceback."""
    with monkeypatch.context() as patch:
        signalling(patch, common, "load_policy")
        assert run("grpo").code == 0
    try:
        signal.raise_signal(signal.SIGTERM)
    except SystemExit as again:
        pytest.fail(f"the second one raises {again!r}")

def test_sigterm_at_random_moments_of_the_start(nursery, run, cache_dir, tmp_path):
    """Once or twice, as a process, so that its end is seen, too; and later than that, it is a checkpoint and an end."""
    run("grpo", max_steps=0, output_dir="warm")
    rng = random.Random(time.time_ns())
    for i in range(12 if SLOW else 2):
        folder = Path(f"run-{i}")
        child = nursery.start(tmp_path, "grpo", **{**ENDLESS, "cache_dir": cache_dir, "output_dir": folder})
        until(child, (folder / "config.json").exists)
        time.sleep(rng.uniform(0, 0.5))
        for _ in range(1 + i % 2):
            send(child, signal.SIGTERM)
            time.sleep(rng.uniform(0, 0.05))
        code, err = nursery.wait(), Path("err").read_text()
        assert code == 0 and "Traceback" not in err and "Exception" not in err, err
        assert not saving(folder) and not saving(cache_dir)
        assert [loaded(checkpoint)["step"] for checkpoint in checkpoints(folder)] == (
            steps(folder) if (folder / "metrics.jsonl").exists() else [])

def test_sigterm_twice(run, resume, monkeypatch, straight):
    """In a step and in the save that follows: the step's checkpoint is whole, and goes on to the same end."""
    with monkeypatch.context() as patch:
        signalling(patch, common.Run, "end_step", 2)
        signalling(patch, runner, "save_beside", 1)
        result = run("grpo", max_steps=3, save_steps=100)
    assert result.code == 0 and "Traceback" not in result.err
    assert [loaded(checkpoint)["step"] for checkpoint in checkpoints("run")] == steps("run") == [1]
    assert resume("grpo", "run").code == 0
    for name in ("metrics", "samples"):
        assert rows("run", name) == rows(straight, name)

def test_sigterm_twice_to_a_process(nursery, run, cache_dir, tmp_path):
    """Within a second: in a step, and as soon as it saves."""
    run("grpo", max_steps=0, output_dir="warm")
    child = nursery.start(tmp_path, "grpo", **{**ENDLESS, "cache_dir": cache_dir, "output_dir": "run"})
    until(child, lambda: Path("out").exists() and "metrics 1/" in Path("out").read_text())
    begun = time.monotonic()
    assert send(child, signal.SIGTERM)
    until(child, lambda: saving("run") or time.monotonic() > begun + 0.9)
    assert send(child, signal.SIGTERM)
    assert nursery.wait() == 0
    err = Path("err").read_text()
    assert "Traceback" not in err and "Exception" not in err and err.count("stopping after this step") == 1
    checkpoint, = checkpoints("run")
    assert steps("run") == list(range(1, loaded(checkpoint)["step"] + 1))

TWO_RANKS = f"""
import runpy, sys, time
sys.path.insert(0, {str(ROOT)!r})
import runner
save = runner.save_beside

def slowly(*given, **named):
    print("saving", flush=True)
    time.sleep(3)
    save(*given, **named)

runner.save_beside = slowly
sys.argv[0] = "{ROOT}/grpo.py"
runpy.run_path(sys.argv[0], run_name="__main__")
"""

@pytest.mark.skipif(not SLOW, reason="RLVR_SLOW=1 runs it")
def test_sigterm_to_two_ranks_while_one_of_them_saves(run, cache_dir, tmp_path):
    """The other one is in the next step already; both have to end after the same one."""
    run("grpo", max_steps=0, output_dir="warm")
    Path("slowly.py").write_text(TWO_RANKS)
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "WORLD_SIZE": "2"}
    flags = arguments(**{**SMALL, "max_steps": 50, "eval_steps": 100, "cache_dir": cache_dir, "output_dir": "run"})
    logs = [open(f"{rank}.log", "w+") for rank in range(2)]
    ranks = [subprocess.Popen([sys.executable, "slowly.py", *flags], stdout=logs[rank], stderr=subprocess.STDOUT, env={
        **ENVIRONMENT, **address, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(2)]
    try:
        until(ranks[0].pid, lambda: "saving" in Path("0.log").read_text() or ranks[0].poll() is not None)
        time.sleep(1)
        for rank in ranks:
            rank.send_signal(signal.SIGTERM)
        codes = [rank.wait(timeout=120) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert codes == [0, 0], [Path(f"{rank}.log").read_text()[-2000:] for rank in range(2)]
    assert steps("run") == [loaded(checkpoint)["step"] for checkpoint in checkpoints("run")]

# ------------------------------------------------------------------------------------------------ exactness, refusals
KEEPING_STATE = {"grpo": dict(variant="dapo"), "agrae": dict(variant="agrae-dapo"), "asymgrpo": dict(log_gain=True),
                 "fade": dict(ema_beta=0.9, equalize_learning_rate=True), "cwgrpo": dict(variant="clip-cov")}

@pytest.mark.parametrize("script", SCRIPTS)
def test_three_steps_and_three_after_resuming_are_six(run, resume, script):
    """With a reference policy, groups that are drawn again, and what else a script remembers."""
    flags = dict(beta=0.01, dynamic_sampling=True, max_redraws=1, prompts_per_step=2, minibatch_size=4, eval_samples=1,
                 eval_steps=3, save_steps=3, **KEEPING_STATE[script])
    assert run(script, output_dir="straight", max_steps=6, **flags).code == 0
    assert run(script, max_steps=3, **flags).code == 0
    result = resume(script, "run", max_steps=6)
    assert result.code == 0, result.err
    assert steps("run") == [1, 2, 3, 4, 5, 6]
    assert all(row["kl"] > 0 for row in rows("run")[3:])  # so that the reference policy counts
    assert_same_end("run", "straight")

SHARED = {field.name for field in fields(common.Config)}
CHANGES = {"model": ".", "dataset": "data.jsonl", "numbers": "3", "weight": "grpo", "weight_args": "k=2",
           "engine": "hf", "prompt_column": "question", "answer_column": "solution", "minibatch_size": 16,
           "prompts_per_step": 8, "num_generations": 8}

def fixed_flags(script):
    """The flags that a resumed run has to keep; of all scripts but the first, only those that others do not have."""
    module = importlib.import_module(script)
    return [(script, field.name) for field in fields(module.Config) if field.name not in module.Config.MAY_CHANGE
            and (script == SCRIPTS[0] or field.name not in SHARED - {"seed", "variant"})]

def begun(script, **flags):
    """As a run of so many flags leaves its folder behind, without a checkpoint -> its config."""
    module = importlib.import_module(script)
    config = module.Config(**{**SMALL, "numbers": str(SMALL["numbers"]), **flags})
    Path("run").mkdir()
    Path("run/config.json").write_text(json.dumps(asdict(config)))
    Path("data.jsonl").touch()
    return config

def another(config, name):
    """Another value that a flag may have."""
    kind, value = get_type_hints(type(config))[name], getattr(config, name)
    if name == "variant":
        return next(key for key in importlib.import_module(type(config).__module__).VARIANTS if key != value)
    if name in CHANGES:
        return CHANGES[name]
    if get_origin(kind) is Literal:
        return next(choice for choice in get_args(kind) if choice != value)
    if isinstance(value, bool):
        return not value
    return 2 * value + 1 if isinstance(value, int) else value / 2 if value else 0.5

@pytest.mark.parametrize("script, name", [flag for script in SCRIPTS for flag in fixed_flags(script)])
def test_a_resumed_run_keeps_what_it_was_begun_with(resume, script, name):
    config = begun(script)
    value, before = another(config, name), tree("run")
    result = resume(script, "run", **{name: value}, report_to="tensorboard")
    assert refused(result, script, f"--{name} {value} (was {getattr(config, name)})")
    assert "--report_to" not in result.err  # which may change
    assert tree("run") == before

def test_the_flags_that_a_resumed_run_keeps():
    """Those named in the README and by the papers are among them; those about memory, or how often, are not."""
    found = {name for _, name in fixed_flags(SCRIPTS[0])}
    assert {"seed", "model", "dataset", "learning_rate", "beta", "num_generations", "eval_problems", "variant"} <= found
    assert not {"max_steps", "save_steps", "microbatch_tokens", "eval_samples", "cache_dir"} & found

@pytest.mark.parametrize("script", SCRIPTS)
def test_several_changes_are_all_listed(resume, script):
    begun(script)
    result = resume(script, "run", seed=7, beta=0.25, temperature=0.5, eval_problems=9, save_total_limit=3)
    assert refused(result, script, "--seed 7 (was 0)", "--beta 0.25 (was 0.0)", "--temperature 0.5 (was 1.0)",
                   "--eval_problems 9 (was 4)")
    assert "--save_total_limit" not in result.err

def test_a_schedule_over_the_steps_keeps_their_number(resume):
    begun("fade", variant="log-schedule", weight="log_schedule", max_steps=6)
    assert refused(resume("fade", "run", max_steps=12), "fade", "--max_steps 12 (was 6)")

def test_other_training_problems_are_refused(run, resume, monkeypatch):
    """A file that has changed since: no flag tells, but what it holds. The folder stays as it was."""
    monkeypatch.setattr(common, "load_problems", real_load_problems)
    result = run("grpo", dataset=write_sums("sums.jsonl", 20), verifier="number", system_prompt="none", max_steps=1,
                 prompt_column="question", answer_column="gold", max_completion_length=8)
    assert result.code == 0, result.err
    write_sums("sums.jsonl", 21)
    before = tree("run")
    result = resume("grpo", "run", max_steps=2)
    result.err = result.err[result.err.rindex("grpo.py"):]  # what is before it is the progress of reading the file
    assert refused(result, "grpo", "training problems", "run has begun with")
    assert tree("run") == before
