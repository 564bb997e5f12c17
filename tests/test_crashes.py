"""Checkpoints, and runs that are killed or stopped: what resuming makes of them."""

import contextlib
import fcntl
import os
import re
import resource
import shutil
import signal
import sys
import time
from copy import deepcopy
from pathlib import Path
from unittest.mock import Mock

import rlvr.training.checkpoints as checkpoints
from rlvr.errors import UserError
from rlvr.flags.command_line import find_run
from rlvr.flags.config import Config
from rlvr.machine.ending import handle_signals, leave
from rlvr.policy.settings import Settings
from rlvr.tasks.problems import Problem, ProblemStream
from rlvr.training.checkpoints import TrainingState, checkpoints_of, save_folder, step_of
from rlvr.training.run import Run
from rlvr.training.updates import make_optimizer

import pytest
import safetensors.torch
import torch
from local_sets import write
from runs import before_calls, first_fast, left_as_it_was, refused, rows, steps
from safetensors import SafetensorError

import grpo

LOGS = ("metrics", "eval", "samples")


def loaded(checkpoint):
    """All that a whole checkpoint holds and resuming restores."""
    state = torch.load(checkpoint / "state.pt", weights_only=True)
    state["optimizer"].pop("param_groups", None)  # texts, which assert_close does not take
    return state | {"weights": safetensors.torch.load_file(checkpoint / "model.safetensors")}


def printed_steps(result):
    assert result.code == 0, result.err
    return [int(step) for step in re.findall(r"^ +(\d+)/\d+ ", result.out, re.M)]


def saved_steps(folder):
    """The steps of the checkpoints of a run folder, all of which have to be whole."""
    return [loaded(checkpoint)["step"] for checkpoint in checkpoints_of(Path(folder))][::-1]


def assert_same_end(folder, straight, logs=LOGS):
    """The rows, the last weights and all that goes with them equal another run's, bit for bit."""
    for name in logs:
        assert rows(folder, name) == rows(straight, name), name
    last, expected = (loaded(checkpoints_of(Path(run))[0]) for run in (folder, straight))
    torch.testing.assert_close(last, expected, rtol=0, atol=0)


def tree(folder):
    """What a folder holds: {path: bytes, or None for a folder}."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in Path(folder).rglob("*")
    }


@pytest.fixture(autouse=True)
def no_curves(monkeypatch):
    """To draw them takes longer than a whole run here."""
    monkeypatch.setattr("rlvr.show.draw_curves", lambda folder: None)


@pytest.fixture
def straight(run, tmp_path_factory):
    """The folder of a run of 3 steps that nothing has interrupted; made once, and only read."""
    kept = tmp_path_factory.getbasetemp() / "straight"
    if not kept.exists():
        assert run("grpo", output_dir=kept, max_steps=3).code == 0
    return kept


KEEPING_STATE = {
    "fade": dict(ema_beta=0.9, equalize_learning_rate=True),
    "baselines": dict(token="clip_cov", advantage="power", log_schedule=True),
}


@pytest.mark.parametrize(
    "script", first_fast(["fade", "baselines", "grpo", "agrae", "asymgrpo", "cwgrpo"])
)
def test_a_resumed_run_ends_as_one_that_went_on(run, resume, script):
    """With a reference, a schedule, groups drawn again, and all else that a script remembers."""
    flags = dict(beta=0.01, dynamic_sampling=True, prompts_per_step=2, minibatch_size=4)
    flags |= dict(lr_scheduler_type="cosine", warmup_ratio=0.25, **KEEPING_STATE.get(script, {}))
    flags |= dict(max_steps=4, eval_steps=2, save_steps=2)
    assert run(script, **flags).code == 0
    Path("run").rename("straight")
    shutil.copytree("straight", "run")
    assert printed_steps(resume(script, "run/checkpoint-2")) == [3, 4]
    assert all(row["kl"] > 0 for row in rows("run")[2:])  # so that the reference policy counts
    assert_same_end("run", "straight")
    assert printed_steps(resume(script, "run")) == []  # there is nothing left to do
    assert len([*Path("run").glob("before-*")]) == 1  # of the first time, for checkpoint-4


@contextlib.contextmanager
def each_state_copied(folder, copies):
    """Copy the folder before each thing that Python does to files, as a kill may leave it."""
    watched, seen = [Path(folder).absolute()], []

    def on_event(event, _):
        if watched and event.startswith(("open", "os.", "shutil.")):
            folder = watched.pop()  # what follows is not to be watched
            now = {(path, path.stat().st_size) for path in folder.rglob("*")}
            if now not in seen:
                shutil.copytree(folder, copies / f"{len(seen):03}")
                seen.append(now)
            watched.append(folder)

    sys.addaudithook(on_event)  # it stays until this process ends
    try:
        yield
        os.scandir(folder).close()  # one more event, for the last state
    finally:
        watched.clear()


@pytest.mark.slow
def test_a_kill_at_any_point(resume, straight, tmp_path):
    """A run goes back to its first checkpoint, beside two later ones, and later removes it."""
    shutil.copytree(straight, "run")
    with each_state_copied("run", tmp_path / "copies"):
        assert resume("grpo", "run/checkpoint-1", save_total_limit=1, max_steps=2).code == 0
    copies = sorted(Path("copies").iterdir())
    saved = {tuple(saved_steps(copy)) for copy in copies}  # all of which are whole
    assert saved == {(1, 2, 3), (1, 2), (1,), (2,)}
    by_names = {}  # one of those that hold the same
    for copy in copies:
        names = [re.sub(r"^(\.saving-).*", r"\1", path.name) for path in copy.iterdir()]
        by_names[frozenset(names)] = copy
    for copy in by_names.values():
        last = step_of(checkpoints_of(copy)[0])
        result = resume("grpo", copy, max_steps=3)
        assert last not in printed_steps(result)  # it does not begin at the start
        assert "damaged" not in result.out and not [*copy.glob(".saving-*")]
        assert_same_end(copy, straight)


def test_damaged_checkpoints(resume, straight):
    """The user names an earlier one; later ones are put aside. Without any, the run restarts."""
    shutil.copytree(straight, "run")
    os.truncate("run/checkpoint-2/model.safetensors", 1000)
    os.truncate("run/checkpoint-3/state.pt", 1000)
    shutil.copytree("run/checkpoint-3", "run/.saving-rest/new")  # as a kill leaves it
    with open("run/metrics.jsonl", "a") as file:
        file.write('{"step": 1}')  # even a whole row may lack the end of a longer number
    Path("run/.metrics.jsonl").write_text("half")
    Path("run/mine.jsonl").write_text('{"step": 9}')  # of the user
    before = tree("run")
    for folder, number in (("run", 3), ("run/checkpoint-2", 2)):
        told = f"cannot load run/checkpoint-{number}: "
        assert refused(resume("grpo", folder), "grpo", told, "can be resumed by its name")
        assert tree("run") == before
    result = resume("grpo", "run/checkpoint-1")
    assert printed_steps(result) == [2, 3] and "to continue" not in result.out
    assert_same_end("run", straight)
    assert saved_steps("run") == [1, 2, 3] and not [*Path("run").glob(".*")]
    assert Path("run/mine.jsonl").read_text() == '{"step": 9}'
    (aside,) = Path("run").glob("before-*")
    assert {path.name for path in aside.glob("checkpoint-*")} == {"checkpoint-2", "checkpoint-3"}
    for name in ("eval.jsonl", "config.json"):
        assert (aside / name).read_bytes() == (straight / name).read_bytes()
    for checkpoint in checkpoints_of(Path("run")):
        shutil.rmtree(checkpoint)
    assert printed_steps(resume("grpo", "run", max_steps=1)) == [1]
    assert steps("run", "eval") == [0, 1]


def test_a_second_process_is_refused_and_touches_nothing(resume, straight, monkeypatch):
    """A lock is of an opened folder, so that one process can show it."""
    shutil.copytree(straight, "run")
    shutil.rmtree("run/checkpoint-3")
    before, owner = tree("run"), os.open("run", os.O_RDONLY)
    fcntl.flock(owner, fcntl.LOCK_SH)  # which stands no exclusive lock beside it
    assert refused(resume("grpo", "run"), "grpo", "another process uses the run folder run")
    assert tree("run") == before
    os.close(owner)
    with monkeypatch.context() as patch:  # a file system without locks
        patch.setattr(fcntl, "flock", Mock(side_effect=OSError))
        assert printed_steps(resume("grpo", "run")) == [3]
    assert refused(resume("grpo", "run", max_steps=2), "grpo", "--max_steps 2: 3 are done already")
    assert "all 3 steps are done; a larger --max_steps" in resume("grpo", "run").out


def signalling(patch, owner, name, *numbers):
    """Before each call of the function owner.name, this process gets these signals."""
    before_calls(patch, owner, name, lambda *_, **__: [signal.raise_signal(n) for n in numbers])


TERM, INT, USR1, HUP = signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP


@pytest.mark.parametrize("number", [INT, TERM])
def test_a_signal_while_a_run_begins_ends_it_at_once(run, monkeypatch, number):
    with monkeypatch.context() as patch:
        signalling(patch, grpo, "load_policies", number)
        result = run("grpo", output_dir="new/run")
    assert result.code == (130 if number == INT else 0) and result.err.count("Traceback") == 0
    assert result.out.endswith("stopped at once\n")
    assert not Path("new").exists()
    # Python would print a traceback of what it does at its end
    assert {signal.getsignal(number) for number in (TERM, USR1, HUP)} == {signal.SIG_IGN}
    assert signal.getsignal(INT) == signal.SIG_DFL, "Ctrl-C ends a process that hangs"


@pytest.mark.parametrize("numbers", first_fast([((INT, INT),), ((USR1,),)]))
def test_a_signal_ends_the_step_and_saves(run, resume, monkeypatch, straight, numbers):
    """Two at once: a launcher passes Ctrl-C on to its ranks. A late one of a scheduler can wait."""
    true = time.monotonic

    def terminate_late(*_):
        patch.setattr(time, "monotonic", lambda: true() + 3)
        signal.raise_signal(TERM)

    with monkeypatch.context() as patch:
        signalling(patch, Run, "end_step", *numbers)
        before_calls(patch, checkpoints, "save_folder", terminate_late)
        result = run("grpo", max_steps=3, save_steps=100)
    assert result.code == 0 and "Traceback" not in result.err
    assert result.out.count("stopping after this step") == 1
    assert "to continue: --resume_from_checkpoint run" in result.out
    assert saved_steps("run") == steps("run") == [1]
    assert printed_steps(resume("grpo", "run")) == [2, 3]
    assert_same_end("run", straight, ("metrics", "samples"))


def test_an_ignored_signal_stays_ignored():
    """As SIGHUP is under nohup. So does one that has ended the run, which may be sent twice."""
    with left_as_it_was():
        signal.signal(HUP, signal.SIG_IGN)
        handle_signals(leave)
        assert [*map(signal.getsignal, (INT, TERM, USR1))] == [leave] * 3
        with pytest.raises(SystemExit):
            leave(TERM, None)
        assert signal.getsignal(HUP) == signal.getsignal(TERM) == signal.SIG_IGN


GRPO = Path("grpo.py")  # the script that looks for its runs


class Saved:
    def __init__(self, text, error=None):
        self.text, self.error = text, error

    def save_pretrained(self, folder, **_):
        assert folder.parent.name.startswith(".saving-")  # which a resumed run deletes
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(self.text)
        if self.error:
            raise self.error


@pytest.mark.parametrize("kind", [OSError, SafetensorError, RuntimeError, KeyboardInterrupt])
def test_save_folder_leaves_nothing_half_written(tmp_path, kind):
    """What fails half-way leaves no trace, and an older folder of that name as it was."""
    folder = tmp_path / "checkpoint-1"
    save_folder(folder, Saved("-"), Saved("first"))
    assert {path.name for path in folder.iterdir()} == {"config.json"}
    save_folder(folder, Saved("-"), Saved("second"), dict(step=3))  # over one that is there
    of_a_disk = kind is not KeyboardInterrupt  # RuntimeError is torch.save's
    with pytest.raises(UserError if of_a_disk else kind, match="why"):
        save_folder(folder, Saved("never"), Saved("never", kind("why")))
    assert list(tmp_path.iterdir()) == [folder]
    assert (folder / "config.json").read_text() == "second"
    assert torch.load(folder / "state.pt") == dict(step=3)


@pytest.mark.parametrize("what", ["state.pt", "model.safetensors"])
def test_a_full_disk_is_named(tmp_path, tiny, what):
    """A limit on the size of a file fails as a full disk does, with another reason."""
    state = dict(moments=torch.zeros(2**16)) if what == "state.pt" else None
    policy, tokenizer = [Saved("-")] * 2 if state else tiny
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**17, limits[1]))  # bytes
    try:
        with pytest.raises(UserError, match="^cannot use .*checkpoint-1: .*File too large"):
            save_folder(tmp_path / "checkpoint-1", policy, tokenizer, state)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not any(tmp_path.iterdir())


def test_which_checkpoint_is_taken(tmp_path, capsys):
    """The newest one, by its number; or the one that is given."""
    (tmp_path / "config.json").write_text("{}")
    assert find_run(str(tmp_path), GRPO) == (tmp_path, None)
    assert checkpoints.newest(tmp_path) is None
    told = f"{tmp_path} has no checkpoint yet: starting from the beginning\n"
    assert capsys.readouterr().out == told
    for step in (9, 10, 2):
        save_folder(tmp_path / f"checkpoint-{step}", Saved("-"), Saved("-"), dict(step=step))
    # of the user's own: other names, and a model without the state of a run
    for name in ("checkpoint-11-old", "checkpoint-²", "before-1-checkpoint-11", "checkpoint-12"):
        (tmp_path / name).mkdir()
    assert checkpoints.newest(tmp_path) == tmp_path / "checkpoint-10"
    for name in ("checkpoint-7", "checkpoint-11-old"):
        with pytest.raises(UserError, match=f"{name}: no run there"):
            find_run(tmp_path / name, GRPO)
    given = tmp_path / "checkpoint-9"
    assert find_run(str(given), GRPO) == (tmp_path, given)


def test_latest_is_the_last_run_of_this_script(tmp_path, monkeypatch):
    """Not one of grpo-grpo.py, whose folder begins alike, and not one that evaluates alone."""
    monkeypatch.chdir(tmp_path)
    run = dict(script="grpo.py", max_steps=60)
    made = {"grpo-grpo-2": run, "grpo-grpo-1": run, "grpo-grpo-0": run | dict(max_steps=0)}
    made |= {"grpo-grpo-grpo-1": run | dict(script="grpo-grpo.py"), "list": [7], "half": b"{"}
    made |= {"model": dict(model_type="qwen2")}
    for age, (name, config) in enumerate(made.items()):  # the later, the younger
        os.utime(write(tmp_path / "runs" / name / "config.json", config), (age, age))
    folder, _ = find_run("latest", Path("some/folder/grpo.py"))
    assert folder.name == "grpo-grpo-1"


@pytest.fixture
def training_of(tiny):
    """training_of() is the state in which a run begins, on three problems."""

    def begin(first="0", held_out="8", name="own"):
        policy, tokenizer = deepcopy(tiny[0]), tiny[1]
        config = Config(learning_rate=1e-2, lr_scheduler_type="linear")
        optimizer, scheduler = make_optimizer(policy, config)
        problems = [Problem(prompt, "") for prompt in (first, "1", "2")]
        stream = ProblemStream(problems, 0, {name: [Problem(held_out, "")]})
        return TrainingState(policy, tokenizer, optimizer, scheduler, stream)

    return begin


def test_each_rank_goes_on_with_its_own_random_numbers(training_of, tmp_path, monkeypatch, capsys):
    """Where one or three were saved and now there are two, each begins with new ones of its own."""
    first, second, *at_the_start = (torch.Generator().manual_seed(n) for n in (5, 6, 0, 1))
    assert Config().seed == 0

    def drawn_after_resuming(rank, *saved, step=4, seed=0):
        with monkeypatch.context() as patch, torch.random.fork_rng([]):
            states = [(generator.get_state(), None) for generator in saved]
            patch.setattr(checkpoints, "gather", lambda mine: states)
            checkpoints.save(tmp_path / "checkpoint-4", training_of(), step)
            patch.setattr("rlvr.world.WORLD_SIZE", 2)
            patch.setattr("rlvr.world.RANK", rank)
            checkpoints.restore(tmp_path / "checkpoint-4", training_of(), Config(seed=seed))
            return torch.rand(3)

    assert torch.equal(drawn_after_resuming(1, first, second), torch.rand(3, generator=second))
    assert capsys.readouterr().out == ""
    drawn = [drawn_after_resuming(0, *[first] * 3), drawn_after_resuming(1, first)]
    assert capsys.readouterr().out.count("the run does not continue bit for bit") == 1  # by rank 0
    drawn += [drawn_after_resuming(0, first, step=6), drawn_after_resuming(0, first, seed=2)]
    drawn += [torch.rand(3, generator=generator) for generator in (*at_the_start, first)]
    assert len({tuple(numbers.tolist()) for numbers in drawn}) == 7


def test_a_run_without_moments_comes_back(training_of, tmp_path):
    """The schedule has gone on, and Adam has not begun. Other problems are refused."""
    folder, training, restored = tmp_path / "checkpoint-1", training_of(), training_of()
    # some mixtures of experts balance them by such a buffer
    training.policy.register_buffer("balance", torch.full((4,), 0.75))
    training.policy.settings, restored.policy.settings = Settings(loss_scale=4.0), Settings()
    training.scheduler.step()
    checkpoints.save(folder, training, 1)
    saved = safetensors.torch.load_file(folder / "model.safetensors")
    assert saved["balance"].tolist() == [0.75] * 4
    assert checkpoints.restore(folder, restored, Config()) == 1
    assert not restored.optimizer.state
    assert restored.policy.settings.loss_scale == 4.0  # of fp16, halved by overflows
    assert restored.optimizer.param_groups[0]["lr"] == pytest.approx(1e-2 * 119 / 120, rel=1e-12)
    with pytest.raises(UserError, match=f"^{tmp_path} began with other training problems"):
        checkpoints.restore(folder, training_of(first="7"), Config())
    with pytest.raises(UserError, match="began with other problems of own to evaluate on"):
        checkpoints.restore(folder, training_of(held_out="9"), Config())
    assert checkpoints.restore(folder, training_of(held_out="9", name="another"), Config()) == 1


@pytest.mark.parametrize("umask, mode", [(0o022, 0o644), (0o077, 0o600)])
def test_files_follow_the_umask(tiny, tmp_path, monkeypatch, umask, mode):
    """Others may evaluate a checkpoint where the user's umask lets them read it."""
    synced = []
    before_calls(monkeypatch, os, "fsync", lambda number: synced.append(os.fstat(number).st_ino))
    with contextlib.ExitStack() as afterwards:
        afterwards.callback(os.umask, os.umask(umask))
        save_folder(tmp_path / "policy", *tiny, dict(step=1))
    files = {file.name: file.stat() for file in (tmp_path / "policy").iterdir()}
    assert {each.st_mode & 0o777 for each in files.values()} == {mode}
    assert {each.st_ino for each in files.values()} == {*synced} and "model.safetensors" in files
