"""Checkpoints: whole or not there, found again, and restored to the last number."""

import copy
import os
import resource
from pathlib import Path

import rlvr.training.checkpoints as checkpoints
from rlvr import world
from rlvr.errors import UserError
from rlvr.flags.command_line import find_run
from rlvr.flags.config import Config
from rlvr.policy.settings import Settings
from rlvr.tasks.problems import Problem, ProblemStream
from rlvr.training.checkpoints import TrainingState, save_folder
from rlvr.training.updates import make_optimizer

import pytest
import safetensors.torch
import torch
from runs import before_calls
from safetensors import SafetensorError

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
    with pytest.raises(UserError, match="no run there"):
        find_run(tmp_path, GRPO)
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
    steps = [checkpoints.step_of(path) for path in checkpoints.checkpoints_of(tmp_path)]
    assert steps == [10, 9, 2]
    assert checkpoints.newest(tmp_path) == tmp_path / "checkpoint-10"
    for name in ("checkpoint-7", "checkpoint-11-old"):
        with pytest.raises(UserError, match=f"{name}: no run there"):
            find_run(tmp_path / name, GRPO)
    given = tmp_path / "checkpoint-9"
    assert find_run(str(given), GRPO) == (tmp_path, given)


def test_latest_is_the_last_run_of_this_script(tmp_path, monkeypatch):
    """Not one of grpo-grpo.py, whose folder begins alike, and not one that evaluates alone."""
    monkeypatch.chdir(tmp_path)
    made = "grpo-grpo-2 grpo 60, grpo-grpo-1 grpo 60, grpo-grpo-0 grpo 0, fade-fade-1 fade 60, "
    made += "grpo-grpo-grpo-1 grpo-grpo 60"
    for age, each in enumerate(made.split(", ")):  # the later, the younger
        name, script, max_steps = each.split()
        config = tmp_path / "runs" / name / "config.json"
        config.parent.mkdir(parents=True)
        config.write_text(f'{{"script": "{script}.py", "max_steps": {max_steps}}}')
        os.utime(config, (age, age))
    for name, text in (("model", '{"model_type": "qwen2"}'), ("list", "[7]"), ("half", '{"scr')):
        (tmp_path / f"runs/grpo-{name}").mkdir()
        (tmp_path / f"runs/grpo-{name}/config.json").write_text(text)
    folder, _ = find_run("latest", Path("some/folder/grpo.py"))
    assert folder.name == "grpo-grpo-1"


@pytest.fixture
def training_of(tiny):
    """training_of() is the state in which a run begins, on ten problems by default."""

    def begin(problems=10, gold="", first=0, held_out="8", name="own"):
        policy, tokenizer = copy.deepcopy(tiny[0]), tiny[1]
        config = Config(learning_rate=1e-2, lr_scheduler_type="linear")
        optimizer, scheduler = make_optimizer(policy, config)
        prompts = map(str, (first, *range(1, problems)))
        training = [Problem(each, gold) for each in prompts]
        stream = ProblemStream(training, 0, {name: [Problem(held_out, "")]})
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
            patch.setattr(world, "WORLD_SIZE", 2)
            patch.setattr(world, "RANK", rank)
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
    for problems in (dict(problems=9), dict(gold="7"), dict(first=1)):
        with pytest.raises(UserError, match=f"^{tmp_path} began with other training problems"):
            checkpoints.restore(folder, training_of(**problems), Config())
    with pytest.raises(UserError, match="began with other problems of own to evaluate on"):
        checkpoints.restore(folder, training_of(held_out="9"), Config())
    assert checkpoints.restore(folder, training_of(held_out="9", name="another"), Config()) == 1


@pytest.mark.parametrize("umask, mode", [(0o022, 0o644), (0o077, 0o600)])
def test_files_follow_the_umask(tiny, tmp_path, monkeypatch, umask, mode):
    """Others may evaluate a checkpoint where the user's umask lets them read it."""
    synced = []
    before_calls(monkeypatch, os, "fsync", lambda number: synced.append(os.fstat(number).st_ino))
    before = os.umask(umask)
    try:
        save_folder(tmp_path / "policy", *tiny, dict(step=1))
    finally:
        os.umask(before)
    files = {file.name: file.stat() for file in (tmp_path / "policy").iterdir()}
    assert {each.st_mode & 0o777 for each in files.values()} == {mode}
    assert {each.st_ino for each in files.values()} == {*synced} and "model.safetensors" in files
