"""Runs that are killed, stopped or out of disk, and damaged checkpoints: what resuming makes of it.

`-m slow` kills processes at random moments, resumes from every point of a save, and stops two ranks
during a save.
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

import rlvr.flags.config
import rlvr.machine.folders
import rlvr.policy.models
import rlvr.policy.saving
import rlvr.policy.tiny
import rlvr.rollout.samplers
import rlvr.tasks.datasets
import rlvr.training.checkpoints
import rlvr.training.run

import pytest
import safetensors.torch
import torch
from runs import (
    ROOT,
    SCRIPTS,
    SMALL,
    WITH_PROJECT,
    arguments,
    first_fast,
    first_slow,
    free_port,
    real_load_problems,
    refused,
    rows,
    steps,
    write_sums,
)

LOGS = ("metrics", "eval", "samples")
slow = pytest.mark.slow


def checkpoints(folder):
    """The checkpoints of a run folder, the oldest first."""
    found = [path for path in Path(folder).iterdir() if re.fullmatch(r"checkpoint-\d+", path.name)]
    return sorted(found, key=step_of)


def step_of(checkpoint):
    """The step in a checkpoint's name."""
    return int(checkpoint.name.removeprefix("checkpoint-"))


def loaded(checkpoint):
    """All that a checkpoint holds and resuming restores, once its checksums are compared."""
    assert rlvr.machine.folders.is_whole(checkpoint), checkpoint
    state = torch.load(checkpoint / "state.pt", weights_only=True)
    return {
        "weights": safetensors.torch.load_file(checkpoint / "model.safetensors"),
        "step": state["step"],
        "moments": state["optimizer"].get("state", {}),
        "position": state["position"],
        "state": state["state"],
        "random": state["rng"][0][0],
    }


def saved_steps(folder):
    """The steps of the checkpoints of a run folder, all of which have to be whole."""
    return [loaded(checkpoint)["step"] for checkpoint in checkpoints(folder)]


def saving(folder):
    """The names of what is being saved, or was when a kill came."""
    return {path.name for path in Path(folder).glob(".saving-*")}


def assert_same_end(folder, straight):
    """The rows, the last weights and all that goes with them equal another run's, bit for bit."""
    for name in LOGS:
        assert rows(folder, name) == rows(straight, name), name
    last = loaded(checkpoints(folder)[-1])
    expected = loaded(checkpoints(straight)[-1])
    torch.testing.assert_close(last, expected, rtol=0, atol=0)


def tree(folder):
    """What a folder holds: {path: bytes, or None for a folder}."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in Path(folder).rglob("*")
    }


def before_calls(patch, owner, name, action):
    """Call action(*arguments) before each call of the function owner.name."""
    true = getattr(owner, name)

    def with_action(*given, **named):
        action(*given, **named)
        return true(*given, **named)

    patch.setattr(owner, name, with_action)


@pytest.fixture(autouse=True)
def no_curves(monkeypatch):
    """To draw them takes longer than a whole run here; test_scripts.py draws them."""
    monkeypatch.setattr(rlvr.training.run.Run, "finish", lambda run: None)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return tmp_path_factory.mktemp("kept") / "straight"


@pytest.fixture
def straight(run, kept):
    """The folder of a run of 3 steps that nothing has interrupted; made once, and only read."""
    if not kept.exists():
        assert run("grpo", output_dir=kept, max_steps=3).code == 0
    return kept


# ------------------------------------------------------------------------ kill -9, by processes


@pytest.fixture(scope="module")
def nursery(tmp_path_factory):
    """start(folder, script, flag=value, ...) runs a script in a folder -> its process id.

    Its output is in the files `out` and `err` there. wait() -> its exit code.
    """
    process = subprocess.Popen(
        [sys.executable, ROOT / "tests/nursery.py"],
        cwd=tmp_path_factory.mktemp("nursery"),
        env=WITH_PROJECT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def start(folder, script, curves=False, **flags):
        for name in ("out", "err"):
            (Path(folder) / name).unlink(missing_ok=True)
        request = [str(folder), script, arguments(**flags), curves]
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        return int(process.stdout.readline())

    yield SimpleNamespace(start=start, wait=lambda: int(process.stdout.readline()))
    process.stdin.close()
    process.wait(timeout=300)


def send(child, number):
    """Send a signal -> whether the process was still there."""
    try:
        os.kill(child, number)
        return True
    except ProcessLookupError:
        return False


def until(child, condition):
    """Wait until the condition holds or the process has ended."""
    while not condition() and send(child, 0):
        time.sleep(0.001)


def printed(text):
    """Whether the file `out` holds the text already."""
    return Path("out").exists() and text in Path("out").read_text()


def wait_for(moment, child, folder, before, rng, pace):
    """Wait for a random moment of a run: while it begins, in a step, or in a save.

    `before` are the names that `saving` gave at the start, `pace` the seconds of a step.
    """
    if moment == "begin":
        time.sleep(rng.uniform(0, 3 * pace))
    elif moment == "step":
        until(child, lambda: printed("metrics "))
        time.sleep(rng.uniform(0, pace))
    elif moment == "save":
        until(child, lambda: saving(folder) - before)
        time.sleep(rng.uniform(0, 0.01))


@pytest.mark.parametrize("wanted, max_steps, curves", first_slow([(3, 3, False), (30, 12, True)]))
def test_kill_at_random_moments(
    nursery, run, straight, cache_dir, tmp_path, wanted, max_steps, curves
):
    """Runs are killed until they have ended all the same: each is resumed, to the same end."""
    moments = ["step", "save", "begin"]
    first, *_, last = [
        (checkpoint / "state.pt").stat().st_mtime for checkpoint in checkpoints(straight)
    ]
    pace = (last - first) / 2
    flags = {**SMALL, "max_steps": max_steps, "cache_dir": cache_dir}
    if max_steps != 3:
        straight = Path("straight")
        assert run("grpo", **{**flags, "output_dir": straight}).code == 0
    rng = random.Random(time.time_ns())
    kills = Counter()
    inside_a_save = 0
    for number in itertools.count():
        folder = Path(f"killed-{number}")
        code = None
        while code != 0:
            begun = (folder / "config.json").exists()
            what = {"resume_from_checkpoint": folder} if begun else {**flags, "output_dir": folder}
            before = saving(folder)
            child = nursery.start(tmp_path, "grpo", curves=curves, **what)
            moment = None
            if kills.total() < wanted:
                # each moment once, and then any
                moment = moments[kills.total()] if kills.total() < 3 else rng.choice(moments)
                wait_for(moment, child, folder, before, rng, pace)
                send(child, signal.SIGKILL)
            code = nursery.wait()
            assert code in (0, -signal.SIGKILL), Path("err").read_text()
            assert "damaged" not in Path("out").read_text()
            if code != 0:
                kills[moment] += 1
                inside_a_save += bool(saving(folder) - before)
            for checkpoint in checkpoints(folder) if folder.exists() else ():
                assert loaded(checkpoint)["step"] == step_of(checkpoint)
        assert_same_end(folder, straight)
        assert not saving(folder)
        assert len(checkpoints(folder)) == max_steps
        if kills.total() >= wanted:
            break
    print(f"{wanted} kills, {inside_a_save} inside a save: {kills}")
    assert kills.keys() == set(moments)
    assert inside_a_save


# ---------------------------------------------------------------- what a kill leaves, at any point


class Watch:
    """Copies of a folder as a kill may leave it: before each thing that Python does to files."""

    def __init__(self):
        self.folder = None  # to copy; None while nothing is watched
        self.copies = None  # where to
        self.last = None  # what the last copy looked like

    def on_event(self, event, _):
        """An audit hook. It copies the folder where anything in it has changed."""
        touches_files = event == "open" or event.startswith(("os.", "shutil."))
        if self.folder is None or not touches_files:
            return
        folder, self.folder = self.folder, None  # what follows is not to be watched
        now = []
        for path in sorted(folder.rglob("*")):
            status = path.stat()
            now.append((str(path), status.st_size, status.st_mtime_ns))
        if folder.exists() and now != self.last:
            shutil.copytree(folder, self.copies / f"{len(list(self.copies.iterdir())):03}")
            self.last = now
        self.folder = folder


@pytest.fixture(scope="module")
def watch():
    found = Watch()
    sys.addaudithook(found.on_event)  # it stays until this process ends
    return found


@contextlib.contextmanager
def watching(watch, folder, copies):
    """Copy the folder to copies/000, 001, ...: each state that it has on the way."""
    copies.mkdir()
    watch.copies, watch.last = copies, None
    watch.folder = Path(folder).absolute()
    try:
        yield
        os.scandir(folder).close()  # one more event, for the last state
    finally:
        watch.folder = None


def copies_to_resume(every):
    """All copies, or one each of those that hold files and folders of the same names."""
    copies = sorted(Path("copies").iterdir())
    if every:
        return copies
    by_names = {}
    for copy in copies:
        names = [re.sub(r"^(\.saving-).*", r"\1", path.name) for path in copy.iterdir()]
        by_names[frozenset(names)] = copy
    return by_names.values()


every_point = pytest.mark.parametrize("every", first_slow([False, True]))


@every_point
def test_a_kill_at_any_point_of_a_save(run, resume, monkeypatch, straight, tmp_path, watch, every):
    """The second of three saves, with --save_total_limit 1, so that it also removes the first."""
    end_step = rlvr.training.run.Run.end_step

    def watched(self, step, training):
        if step != 2:
            return end_step(self, step, training)
        with watching(watch, self.folder, tmp_path / "copies"):
            return end_step(self, step, training)

    with monkeypatch.context() as patch:
        patch.setattr(rlvr.training.run.Run, "end_step", watched)
        assert run("grpo", max_steps=3, save_total_limit=1).code == 0
    copies = sorted(Path("copies").iterdir())
    for copy in copies:
        assert saved_steps(copy)  # there is at least one, and none is damaged
    present = {tuple(path.name for path in checkpoints(copy)) for copy in copies}
    assert present == {
        ("checkpoint-1",),
        ("checkpoint-1", "checkpoint-2"),
        ("checkpoint-2",),
    }
    half_written = {Path(name).name for copy in copies for name in tree(copy) if ".saving" in name}
    assert {"model.safetensors", "state.pt", "checksums.json", "tokenizer.json"} <= half_written
    for copy in copies_to_resume(every):
        last = step_of(checkpoints(copy)[-1])
        result = resume("grpo", copy)
        assert result.code == 0, result.err
        assert "damaged" not in result.out and not saving(copy)
        assert f"metrics {last}/3" not in result.out  # it does not begin at the start
        assert "metrics 3/3" in result.out
        assert_same_end(copy, straight)


@every_point
def test_a_kill_at_any_point_of_picking_a_run_up(
    resume, monkeypatch, straight, tmp_path, watch, every
):
    """A run goes back to its first checkpoint, beside two later ones and the rests of a kill."""
    shutil.copytree(straight, "run")
    shutil.copytree("run/checkpoint-3", "run/.saving-rest/new")
    with open("run/metrics.jsonl", "a") as file:
        file.write('{"step": 4, "rew')
    true_resume = rlvr.training.run.Run.resume

    def resume_and_end(self, training):
        true_resume(self, training)
        sys.exit(0)

    with monkeypatch.context() as patch:
        patch.setattr(rlvr.training.run.Run, "resume", resume_and_end)
        with watching(watch, "run", tmp_path / "copies"):
            assert resume("grpo", "run/checkpoint-1", save_total_limit=5).code == 0
    assert steps("run") == [1] and not saving("run")
    assert [path.name for path in checkpoints("run")] == ["checkpoint-1"]
    # config.json and the three logs are changed by two events each, the two checkpoints by one
    assert len(list(Path("copies").iterdir())) >= 2 + 2 * 3 + 2 + 1
    for copy in copies_to_resume(every):
        names = sorted(path.name for path in copy.iterdir())
        result = resume("grpo", copy)
        assert result.code == 0, f"{names}: {result.err}"
        assert not saving(copy) and "damaged" not in result.out
        assert_same_end(copy, straight)


@pytest.mark.parametrize("backwards", first_fast([False, True]))
def test_a_kill_while_a_log_is_rewritten_whatever_the_order_of_files(
    resume, monkeypatch, straight, backwards
):
    """A folder lists its files in any order: a half-rewritten log before or after the log."""
    shutil.copytree(straight, "run")
    for name in LOGS:
        shutil.copy(f"run/{name}.jsonl", f"run/.{name}.jsonl")
    glob = Path.glob
    monkeypatch.setattr(Path, "glob", lambda *given: iter(sorted(glob(*given), reverse=backwards)))
    result = resume("grpo", "run/checkpoint-2")
    assert result.code == 0, result.err
    assert_same_end("run", straight)


# ---------------------------------------------------------------------------- damaged checkpoints


def flip(file):
    """Change a bit of the byte in the middle of a file."""
    held = bytearray(file.read_bytes())
    held[len(held) // 2] ^= 1
    file.write_bytes(held)


def cut_in_half(file):
    os.truncate(file, file.stat().st_size // 2)


def empty(folder):
    for path in folder.iterdir():
        path.unlink()


DAMAGES = {
    "state.pt cut off": lambda folder: cut_in_half(folder / "state.pt"),
    "a bit of the weights flipped": lambda folder: flip(folder / "model.safetensors"),
    "config.json missing": lambda folder: (folder / "config.json").unlink(),
    "checksums.json empty": lambda folder: (folder / "checksums.json").write_text(""),
    "nothing left": empty,
}


def assert_put_aside(folder, name, held):
    """A checkpoint stands under another name, with all that it held, and so do the logs."""
    (aside,) = Path(folder).glob(f"before-*-{name}")
    assert tree(aside) == held
    started = aside.name.removesuffix(f"-{name}")
    assert (Path(folder) / f"metrics.{started}").read_text().count("\n") >= 1


def lines_about_damage(result):
    return [line for line in result.out.splitlines() if "damaged" in line]


@pytest.mark.parametrize("damage", first_fast(DAMAGES))
def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before(resume, straight, damage):
    shutil.copytree(straight, "run")
    DAMAGES[damage](Path("run/checkpoint-3"))
    held = tree("run/checkpoint-3")
    others = [tree(f"run/checkpoint-{step}") for step in (1, 2)]
    result = resume("grpo", "run")
    assert result.code == 0, result.err
    assert lines_about_damage(result) == ["run/checkpoint-3 is damaged"]
    assert "metrics 3/3" in result.out and "metrics 2/3" not in result.out
    assert_same_end("run", straight)
    assert_put_aside("run", "checkpoint-3", held)
    assert [tree(f"run/checkpoint-{step}") for step in (1, 2)] == others


def test_an_empty_folder_named_as_a_later_checkpoint(resume, straight):
    shutil.copytree(straight, "run")
    Path("run/checkpoint-9").mkdir()
    result = resume("grpo", "run")
    assert result.code == 0, result.err
    assert lines_about_damage(result) == ["run/checkpoint-9 is damaged"]
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
    """There are an older run, too, and a newer one of another script."""
    for age, name in enumerate(("fade-fade-2", "grpo-grpo-2", "grpo-grpo-1")):
        shutil.copytree(straight, f"runs/{name}")
        modified = time.time() - 1000 * age
        os.utime(f"runs/{name}/config.json", (modified, modified))
    flip(Path("runs/grpo-grpo-2/checkpoint-3/state.pt"))
    others = {name: tree(f"runs/{name}") for name in ("fade-fade-2", "grpo-grpo-1")}
    held = tree("runs/grpo-grpo-2/checkpoint-3")
    result = resume("grpo", "latest")
    assert result.code == 0, result.err
    assert lines_about_damage(result) == ["runs/grpo-grpo-2/checkpoint-3 is damaged"]
    assert_same_end("runs/grpo-grpo-2", straight)
    assert_put_aside("runs/grpo-grpo-2", "checkpoint-3", held)
    assert {name: tree(f"runs/{name}") for name in others} == others


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_that_is_given_itself_is_refused(resume, straight, damage):
    shutil.copytree(straight, "run")
    DAMAGES[damage](Path("run/checkpoint-3"))
    before = tree("run")
    result = resume("grpo", "run/checkpoint-3")
    assert refused(result, "grpo", "--resume_from_checkpoint run/checkpoint-3")
    assert tree("run") == before


def test_all_damaged(resume, straight):
    shutil.copytree(straight, "run")
    for checkpoint, damage in zip(checkpoints("run"), DAMAGES.values(), strict=False):
        damage(checkpoint)
    before = tree("run")
    assert refused(resume("grpo", "run"), "grpo", "--resume_from_checkpoint run", "whole")
    assert tree("run") == before


# ---------------------------------------------------------------- full disks, folders read-only


@contextlib.contextmanager
def no_limit_afterwards():
    """limit(bytes): from then on no file can grow beyond, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    "size, fails",
    first_fast([(200_000, "the weights"), (500, "config.json"), (2_000_000, "state.pt")]),
)
def test_a_full_disk_during_a_save(run, resume, monkeypatch, straight, size, fails):
    saved = straight / "checkpoint-1"
    written = [path.stat().st_size for path in saved.iterdir() if path.name != "state.pt"]
    only_the_state = max(written) < size < (saved / "state.pt").stat().st_size
    assert only_the_state == (fails == "state.pt")
    with no_limit_afterwards() as limit, monkeypatch.context() as patch:

        def fill(run, step, training):
            if step == 2:
                limit(size)

        before_calls(patch, rlvr.training.run.Run, "end_step", fill)
        result = run("grpo", max_steps=3)
    assert refused(result, "grpo", "cannot write run/checkpoint-2")
    assert steps("run") == [1, 2] and not saving("run")
    assert saved_steps("run") == [1]
    result = resume("grpo", "run")
    assert result.code == 0, result.err
    assert_same_end("run", straight)


@pytest.mark.slow
@pytest.mark.parametrize("name", first_fast(["metrics", "eval"]))
def test_a_full_disk_while_a_row_is_written(run, resume, monkeypatch, straight, name):
    """20 bytes of the row of step 2 still find room."""
    file = Path(f"run/{name}.jsonl")
    with no_limit_afterwards() as limit, monkeypatch.context() as patch:

        def fill(run, log, step, *_):
            if (log, step) == (name, 2):
                limit(file.stat().st_size + 20)

        before_calls(patch, rlvr.training.run.Run, "log", fill)
        result = run("grpo", max_steps=3)
    assert refused(result, "grpo", f"cannot write {file}", "too large")
    assert len(file.read_text().splitlines()[-1]) == 20
    assert saved_steps("run") == [1]
    result = resume("grpo", "run")
    assert result.code == 0, result.err
    assert_same_end("run", straight)


@pytest.mark.parametrize(
    "moment, left", [("resume", ".config.json"), ("forget_after", ".metrics.before")]
)
def test_a_full_disk_while_a_run_is_picked_up(resume, monkeypatch, straight, moment, left):
    """No file can be over 100 bytes: config.json, or the logs, stay as they were."""
    shutil.copytree(straight, "run")
    for name in ("eval", "samples"):  # so that only that of the metrics is too long
        Path(f"run/{name}.jsonl").write_text("")
    before = tree("run")
    with no_limit_afterwards() as limit, monkeypatch.context() as patch:
        before_calls(patch, rlvr.training.run.Run, moment, lambda *_: limit(100))
        assert refused(resume("grpo", "run/checkpoint-2"), "grpo", "too large")
    now = {re.sub("before-.*", "before", name): held for name, held in tree("run").items()}
    assert now.pop(left) is not None
    if moment == "forget_after":  # by then config.json holds what was given
        del now["config.json"], before["config.json"]
    assert now == before
    shutil.rmtree("run/checkpoint-3", ignore_errors=True)
    result = resume("grpo", "run")
    assert result.code == 0, result.err
    assert steps("run") == [1, 2, 3] and not [*Path("run").glob(f"{left}*")]


@contextlib.contextmanager
def somebody_else():
    """The superuser, who may do all, is another user within the block."""
    superuser = os.geteuid() == 0
    if superuser:
        os.seteuid(65534)  # nobody
    try:
        yield
    finally:
        if superuser:
            os.seteuid(0)


@contextlib.contextmanager
def read_only(folder):
    """All in the folder can only be read within the block."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        with somebody_else():
            yield
    finally:
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755)


def test_a_folder_that_may_only_be_read(run, resume, straight, cache_dir, tmp_path):
    """A run cannot begin in it, and cannot be picked up from it."""
    shutil.copytree(straight, "run")
    shutil.copytree(cache_dir, "cache")  # within a folder that anybody may read
    Path("empty").mkdir()
    before = tree(".")
    with read_only(tmp_path):
        in_an_old_one = run("grpo", output_dir="empty", cache_dir="cache")
        in_a_new_one = run("grpo", output_dir="new", cache_dir="cache")
        resumed = resume("grpo", "run", cache_dir="cache")
    assert refused(in_an_old_one, "grpo", "cannot write empty/config.json", "Permission denied")
    assert refused(in_a_new_one, "grpo", "cannot write new", "Permission denied")
    assert refused(resumed, "grpo", "cannot write run/config.json", "Permission denied")
    assert tree(".") == before


def test_a_cache_that_may_not_be_read(run, cache_dir, tmp_path):
    """The folder that holds it is closed to others, as that of another user would be."""
    shutil.copytree(cache_dir, "closed/cache")
    Path("closed").chmod(0)
    tmp_path.chmod(0o777)
    with somebody_else():
        result = run("grpo", cache_dir="closed/cache")
    assert refused(result, "grpo", "--cache_dir closed/cache", "Permission denied")


@pytest.mark.parametrize(
    "owner, name, lost, logged",
    [
        (rlvr.training.run.Run, "log", "run/eval.jsonl", False),
        (rlvr.training.checkpoints, "save_folder", "run/checkpoint-1", True),
    ],
)
def test_a_run_folder_that_is_lost_during_the_run(run, monkeypatch, owner, name, lost, logged):
    """None is made anew, in which half of the run would be."""
    Path("moved").mkdir()

    def lose(*_):
        if Path("run/eval.jsonl").exists() or owner is rlvr.training.run.Run:
            os.rename("run", "moved/run")

    before_calls(monkeypatch, owner, name, lose)
    assert refused(run("grpo"), "grpo", f"cannot write {lost}")
    assert Path("moved/run/metrics.jsonl").exists() == logged
    assert not Path("run").exists()


# ------------------------------------------------------------------------------- save_total_limit


@pytest.mark.parametrize("limit, left", first_fast([(2, [2, 3]), (0, [1, 2, 3])]))
def test_save_total_limit(run, limit, left):
    """test_a_kill_at_any_point_of_a_save shows that a whole one is there at every moment."""
    assert run("grpo", max_steps=3, eval_steps=100, save_total_limit=limit).code == 0
    assert saved_steps("run") == left
    assert not saving("run")


# ---------------------------------------------------------------------------------------- SIGTERM

ENDLESS = {**SMALL, "max_steps": 10**6, "eval_steps": 10**6, "save_steps": 10**6}


def signalling(patch, owner, name, count=1):
    """Before each call of the function owner.name, this process gets SIGTERM, `count` times."""

    def signal_this_process(*_, **__):
        for _ in range(count):
            signal.raise_signal(signal.SIGTERM)

    before_calls(patch, owner, name, signal_this_process)


@pytest.mark.parametrize(
    "module, name, is_warmed_up",
    first_fast(
        [
            (rlvr.policy.tiny, "completion_logprobs", False),
            (rlvr.policy.models, "load_policy", False),
            (rlvr.policy.tiny, "warm_up", False),
            (rlvr.policy.tiny, "save_folder", False),
            (rlvr.tasks.datasets, "load_problems", True),
            (rlvr.policy.models, "load_reference", True),
            (rlvr.rollout.samplers, "make_sampler", True),
        ]
    ),
)
def test_sigterm_at_any_stage_of_the_start(run, monkeypatch, module, name, is_warmed_up):
    """Nothing is left but the tiny policy, once it is warmed up."""
    with monkeypatch.context() as patch:
        signalling(patch, module, name)
        result = run("grpo", cache_dir="cache", sft_steps=1, beta=0.01)
    assert result.code == 0 and "Traceback" not in result.err
    assert [*Path("run").iterdir()] == []
    warmed_up = list(Path("cache").iterdir()) if Path("cache").exists() else []
    assert len(warmed_up) == is_warmed_up
    assert all(map(rlvr.machine.folders.is_whole, warmed_up))


@pytest.mark.parametrize("is_left_early", [True, False])
def test_a_signal_while_the_process_ends(run, monkeypatch, is_left_early):
    """What a process does at its end is not to be interrupted: Python would print a traceback."""
    with monkeypatch.context() as patch:
        if is_left_early:
            signalling(patch, rlvr.policy.models, "load_policy")
        assert run("grpo", max_steps=0).code == 0
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
        try:
            signal.raise_signal(number)
        except SystemExit as again:
            pytest.fail(f"{number!r} raises {again!r}")
    assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL, "Ctrl-C ends a process that hangs"


@pytest.mark.parametrize("count", first_slow([2, 12]))
def test_sigterm_at_random_moments_of_the_start(nursery, run, cache_dir, tmp_path, count):
    """As a process, so that its end is seen, too. After the start, the last step is saved."""
    run("grpo", max_steps=0, output_dir="warm")
    rng = random.Random(time.time_ns())
    for i in range(count):
        folder = Path(f"run-{i}")
        flags = {**ENDLESS, "cache_dir": cache_dir, "output_dir": folder}
        child = nursery.start(tmp_path, "grpo", **flags)
        until(child, (folder / "config.json").exists)
        time.sleep(rng.uniform(0, 0.5))
        for _ in range(1 + i % 2):  # once or twice
            send(child, signal.SIGTERM)
            time.sleep(rng.uniform(0, 0.05))
        code = nursery.wait()
        err = Path("err").read_text()
        assert code == 0 and "Traceback" not in err and "Exception" not in err, err
        assert not saving(folder) and not saving(cache_dir)
        logged = steps(folder) if (folder / "metrics.jsonl").exists() else []
        assert saved_steps(folder) == logged[-1:]


@pytest.mark.slow
def test_sigterm_twice(run, resume, monkeypatch, straight):
    """In a step and in the save after it: the checkpoint is whole, and goes on to the same end."""
    with monkeypatch.context() as patch:
        signalling(patch, rlvr.training.run.Run, "end_step", 2)
        signalling(patch, rlvr.training.checkpoints, "save_folder", 1)
        result = run("grpo", max_steps=3, save_steps=100)
    assert result.code == 0 and "Traceback" not in result.err
    assert saved_steps("run") == steps("run") == [1]
    assert resume("grpo", "run").code == 0
    for name in ("metrics", "samples"):
        assert rows("run", name) == rows(straight, name)


@slow
def test_sigterm_twice_to_a_process(nursery, run, cache_dir, tmp_path):
    """Within a second: in a step, and as soon as it saves."""
    run("grpo", max_steps=0, output_dir="warm")
    flags = {**ENDLESS, "cache_dir": cache_dir, "output_dir": "run"}
    child = nursery.start(tmp_path, "grpo", **flags)
    until(child, lambda: printed("metrics 1/"))
    begun = time.monotonic()
    assert send(child, signal.SIGTERM)
    until(child, lambda: saving("run") or time.monotonic() > begun + 0.9)
    assert send(child, signal.SIGTERM)
    assert nursery.wait() == 0
    err = Path("err").read_text()
    assert "Traceback" not in err and "Exception" not in err
    assert err.count("stopping after this step") == 1
    (last,) = saved_steps("run")
    assert steps("run") == list(range(1, last + 1))


SLOW_SAVES = f"""
import runpy
import sys
import time

import rlvr.training.checkpoints

save_folder = rlvr.policy.saving.save_folder


def slowly(*given):
    print("saving", flush=True)
    time.sleep(3)
    save_folder(*given)


rlvr.policy.saving.save_folder = slowly
sys.argv[0] = "{ROOT}/grpo.py"
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.longest
@pytest.mark.parametrize("signalled", [[0, 1], [0], [1]], ids=str)
def test_sigterm_to_ranks_while_one_of_them_saves(run, cache_dir, signalled):
    """The other one is in the next step already; both have to end after the same step."""
    run("grpo", max_steps=0, output_dir="warm")
    Path("slow_saves.py").write_text(SLOW_SAVES)
    flags = {**SMALL, "max_steps": 50, "eval_steps": 100}
    given = arguments(**flags, cache_dir=cache_dir, output_dir="run")
    world = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "WORLD_SIZE": "2"}
    logs = [Path(f"{rank}.log") for rank in range(2)]
    ranks = []
    for rank, log in enumerate(logs):
        place = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        process = subprocess.Popen(
            [sys.executable, "slow_saves.py", *given],
            stdout=log.open("w"),
            stderr=subprocess.STDOUT,
            env={**WITH_PROJECT, **world, **place},
        )
        ranks.append(process)
    try:
        until(ranks[0].pid, lambda: "saving" in logs[0].read_text() or ranks[0].poll() is not None)
        time.sleep(1)
        for rank in signalled:
            ranks[rank].send_signal(signal.SIGTERM)
        codes = [rank.wait(timeout=120) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert codes == [0, 0], [log.read_text()[-2000:] for log in logs]
    assert steps("run") == saved_steps("run")
    assert steps("run")


# --------------------------------------------------------------------------- exactness, refusals

KEEPING_STATE = {
    "grpo": dict(variant="dapo"),
    "agrae": dict(variant="agrae-dapo"),
    "asymgrpo": dict(log_gain=True),
    "fade": dict(ema_beta=0.9, equalize_learning_rate=True),
    "cwgrpo": dict(variant="clip-cov"),
}


@pytest.mark.parametrize("script", first_fast(["fade", "grpo", "agrae", "asymgrpo", "cwgrpo"]))
def test_three_steps_and_three_after_resuming_are_six(run, resume, script):
    """With a reference policy, groups drawn again, and all else that a script remembers."""
    flags = dict(
        beta=0.01,
        dynamic_sampling=True,
        max_redraws=1,
        prompts_per_step=2,
        minibatch_size=4,
        eval_samples=1,
        eval_steps=3,
        save_steps=3,
        **KEEPING_STATE[script],
    )
    assert run(script, output_dir="straight", max_steps=6, **flags).code == 0
    assert run(script, max_steps=3, **flags).code == 0
    result = resume(script, "run", max_steps=6)
    assert result.code == 0, result.err
    assert steps("run") == [1, 2, 3, 4, 5, 6]
    assert all(row["kl"] > 0 for row in rows("run")[3:])  # so that the reference policy counts
    assert_same_end("run", "straight")


SHARED = {field.name for field in fields(rlvr.flags.config.Config)}
ANOTHER = {  # value that a flag may have, where no rule gives one
    "model": ".",
    "dataset": "data.jsonl",
    "numbers": "3",
    "weight": "grpo",
    "weight_args": "k=2",
    "engine": "hf",
    "prompt_column": "question",
    "answer_column": "solution",
    "minibatch_size": 16,
    "prompts_per_step": 8,
    "num_generations": 8,
    "chat_template_kwargs": '{"enable_thinking": false}',
    "arithmetic_levels": "2",
    "base": "middle",
}


def fixed_flags(script):
    """(script, flag) for each flag that a resumed run has to keep.

    Of all scripts but the first, these are only the flags that others do not have.
    """
    config = importlib.import_module(script).Config()
    fixed = [field.name for field in fields(config) if not config.may_change(field.name)]
    repeated = set() if script == SCRIPTS[0] else SHARED - {"seed", "variant"}
    return [(script, name) for name in fixed if name not in repeated]


def begun(script, **flags):
    """Leave the folder of a run that has no checkpoint yet -> its config."""
    given = {**SMALL, "numbers": str(SMALL["numbers"]), **flags}
    config = importlib.import_module(script).Config(**given)
    Path("run").mkdir()
    Path("run/config.json").write_text(json.dumps({"script": f"{script}.py", **asdict(config)}))
    Path("data.jsonl").touch()
    return config


def another(config, name):
    """A value that a flag may have, and does not have."""
    kind = get_type_hints(type(config))[name]
    value = getattr(config, name)
    if name in ANOTHER:
        return ANOTHER[name]
    if get_origin(kind) is Literal:
        return next(choice for choice in get_args(kind) if choice != value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return 2 * value + 1
    return value / 2 if value else 0.5


@pytest.mark.parametrize("script, name", [flag for s in SCRIPTS for flag in fixed_flags(s)])
def test_a_resumed_run_keeps_what_it_was_begun_with(resume, script, name):
    needed = {  # flags without which another value of this one would be refused for itself
        "base": {"base": "weak", "sft_steps": None},
        "model": {"sft_steps": None},
        "max_turns": {"tool": "calculator"},
        "max_redraws": {"dynamic_sampling": True},
        "weight_args": {"weight": "mix_pass_k", "weight_args": "k=4"},
        "arithmetic_levels": {"dataset": "arithmetic"},
        "control_beta": {"method": "positive_dominant"},
        "control_gamma": {"method": "hard_focused"},
        "success_weight": {"method": "w_reinforce"},
        "clip_cov_fraction": {"method": "clip_cov"},
    }
    of_a_file = ("prompt_column", "answer_column", "image_column", "verifier", "answer_lists")
    needed |= {flag: {"dataset": "data.jsonl"} for flag in of_a_file}
    config = begun(script, **needed.get(name, {}))
    value = another(config, name)
    before = tree("run")
    result = resume(script, "run", **{name: value}, report_to="tensorboard")
    assert refused(result, script, f"--{name} {value} (was {getattr(config, name)})")
    assert "--report_to" not in result.err  # which may change
    assert tree("run") == before


def test_the_flags_that_a_resumed_run_keeps():
    """Those of the mathematics are among them; those about memory, or how often, are not."""
    found = {name for _, name in fixed_flags(SCRIPTS[0])}
    kept = "seed model dataset learning_rate beta num_generations eval_problems variant"
    assert set(kept.split()) <= found
    free = "max_steps save_steps microbatch_tokens eval_samples cache_dir num_threads"
    assert not set(free.split()) & found


def test_an_edited_config_is_refused(resume, straight):
    """The weights and Adam's moments come from a run with other flags. The file says nothing."""
    shutil.copytree(straight, "run")
    file = Path("run/config.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | {"learning_rate": 0.5}))
    before = tree("run")
    result = resume("grpo", "run", max_steps=4)
    edited = "run/config.json has been edited since checkpoint-3: --learning_rate 0.5 (was 0.0001)"
    assert refused(result, "grpo", edited)
    assert tree("run") == before


@pytest.mark.parametrize(
    "name, value",
    [("learning_rate", "fast"), ("fsdp", "yes"), ("minibatch_size", 7), ("max_steps", -1)],
)
def test_a_flag_of_config_json_that_cannot_be_is_said_to_be_of_that_file(resume, name, value):
    begun("grpo")
    file = Path("run/config.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | {name: value}))
    assert refused(resume("grpo", "run"), "grpo", name, "are those of run/config.json")


def test_latest_is_found_once(resume, straight, monkeypatch):
    """A run that begins after the flags have been read is not taken with the flags of another."""
    shutil.copytree(straight, "runs/grpo-grpo-1")
    newer = Path("runs/grpo-grpo-2/config.json")

    def begin_another(*_):
        newer.parent.mkdir()
        newer.write_text("{}")

    before_calls(monkeypatch, rlvr.training.run.Run, "choose_folder", begin_another)
    assert resume("grpo", "latest", max_steps=4).code == 0
    assert steps("runs/grpo-grpo-1") == [1, 2, 3, 4]
    assert list(newer.parent.iterdir()) == [newer]


def test_latest_is_a_run_of_this_script(resume, straight):
    """A run of grpo-grpo.py has a folder of the same beginning, and is newer."""
    shutil.copytree(straight, "runs/grpo-grpo-1")
    shutil.copytree(straight, "runs/grpo-grpo-grpo-1")
    file = Path("runs/grpo-grpo-grpo-1/config.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | {"script": "grpo-grpo.py"}))
    os.utime("runs/grpo-grpo-1/config.json", (time.time() - 1000,) * 2)
    result = resume("grpo", "latest", max_steps=4)
    assert result.code == 0, result.err
    assert steps("runs/grpo-grpo-1") == [1, 2, 3, 4]


@pytest.mark.parametrize("script", SCRIPTS)
def test_several_changes_are_all_listed(resume, script):
    begun(script)
    changes = dict(seed=7, beta=0.25, temperature=0.5, eval_problems=9, save_total_limit=3)
    result = resume(script, "run", **changes)
    listed = [
        "--seed 7 (was 0)",
        "--beta 0.25 (was 0.0)",
        "--temperature 0.5 (was 1.0)",
        "--eval_problems 9 (was 4)",
    ]
    assert refused(result, script, *listed)
    assert "--save_total_limit" not in result.err


def test_a_schedule_over_the_steps_keeps_their_number(resume):
    begun("fade", variant="log-schedule", weight="log_schedule", max_steps=6)
    assert refused(resume("fade", "run", max_steps=12), "fade", "--max_steps 12 (was 6)")


def test_other_training_problems_are_refused(run, resume, monkeypatch):
    """A file has changed since: no flag tells, but what it holds. The folder stays as it was."""
    monkeypatch.setattr(rlvr.tasks.datasets, "load_problems", real_load_problems)
    flags = dict(
        verifier="number",
        system_prompt="none",
        max_steps=1,
        prompt_column="question",
        answer_column="gold",
        max_completion_length=8,
    )
    result = run("grpo", dataset=write_sums("sums.jsonl", 20), **flags)
    assert result.code == 0, result.err
    write_sums("sums.jsonl", 21)
    before = tree("run")
    result = resume("grpo", "run", max_steps=2)
    # what stands before is the progress of reading the file
    result.err = result.err[result.err.rindex("grpo.py") :]
    assert refused(result, "grpo", "training problems", "run has begun with")
    assert tree("run") == before
