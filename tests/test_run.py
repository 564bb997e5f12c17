"""A run from its first to its last line: its folder, its logs, its updates, and how it fails."""

import contextlib
import functools
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import rlvr.flags.command_line
import rlvr.machine.ending
import rlvr.machine.ranks
import rlvr.policy.logprobs
import rlvr.policy.models
import rlvr.policy.tiny
import rlvr.tasks.datasets
import rlvr.training.run
from rlvr.flags.config import Config
from rlvr.tasks.problems import Sample

import pytest
import torch
import transformers
from runs import (
    ENVIRONMENT,
    ROOT,
    SCRIPTS,
    SMALL,
    arguments,
    assert_finite,
    first_fast,
    left_as_it_was,
    real_load_problems,
    refused,
    rows,
    steps,
    weights,
)

import common


@pytest.fixture
def start(cache_dir):
    """The weights that a run with the small flags begins with."""
    config = Config(
        numbers=str(SMALL["numbers"]), sft_steps=SMALL["sft_steps"], cache_dir=str(cache_dir)
    )
    return weights(rlvr.policy.tiny.warmed_up_tiny(config))


def are_equal(first, second):
    """Whether two policies have the same weights."""
    return all(torch.equal(first[name], second[name]) for name in first)


# ------------------------------------------------------------------------------- the run folder


@pytest.mark.parametrize("script", SCRIPTS)
def test_output_dir_that_cannot_be_made(no_model, script):
    Path("file").write_text("not a folder")
    for path in ("file", "file/below", *(["/proc/x"] if Path("/proc").exists() else [])):
        assert refused(no_model(script, "--output_dir", path), script, path)
    assert Path("file").read_text() == "not a folder"


def content(folder):
    """When each file of a folder was written."""
    return {path: path.stat().st_mtime_ns for path in Path(folder).rglob("*")}


@pytest.mark.usefixtures("no_evaluation")
@pytest.mark.parametrize("max_steps", [1, 0])  # one that only evaluated is a run, too
def test_output_dir_that_holds_another_run_is_left_alone(run, monkeypatch, max_steps):
    run("grpo", max_steps=max_steps)
    before = content("run")

    def load_policy(*_):
        pytest.fail("a policy was loaded")

    monkeypatch.setattr(rlvr.policy.models, "load_policy", load_policy)
    result = run("grpo", max_steps=max_steps, seed=1)
    assert refused(result, "grpo", "--output_dir run")
    assert content("run") == before


@pytest.mark.usefixtures("no_evaluation")
def test_two_runs_begun_in_the_same_second_do_not_share_a_folder(run, monkeypatch):
    """Two processes have a folder each. Of two runs in one process, the second is refused."""
    monkeypatch.setattr("time.strftime", lambda *_: "now")
    assert run("grpo", output_dir="", max_steps=0).code == 0
    assert refused(run("grpo", output_dir="", max_steps=0), "grpo", "--output_dir")
    monkeypatch.setattr(os, "getpid", lambda: 12345)
    assert run("grpo", output_dir="", max_steps=0).code == 0
    folders = list(Path("runs").iterdir())
    assert len(folders) == 2
    assert [steps(folder, "eval") for folder in folders] == [[0], [0]]


@pytest.mark.slow
@pytest.mark.usefixtures("no_evaluation")
def test_config_json_tells_the_number_of_threads(run, resume, monkeypatch):
    """It changes rounding. So a resumed run has as many, unless it is told another number."""
    monkeypatch.setattr(rlvr.training.run, "advise_on_threads", lambda *_: None)  # takes a second

    def used_and_noted():
        config = json.loads(Path("run/config.json").read_text())
        return torch.get_num_threads(), config["num_threads"]

    torch.set_num_threads(3)
    assert run("grpo", max_steps=1).code == 0
    assert used_and_noted() == (3, 3)
    torch.set_num_threads(1)
    assert resume("grpo", "run", max_steps=2).code == 0
    assert used_and_noted() == (3, 3)
    assert resume("grpo", "run", max_steps=3, num_threads=2).code == 0
    assert used_and_noted() == (2, 2)
    assert run("grpo", max_steps=0, num_threads=4, output_dir="another").code == 0
    assert torch.get_num_threads() == 4


# ------------------------------------------------------------------------- the logs, after a kill


@pytest.mark.usefixtures("no_evaluation")
def test_a_row_that_a_killed_run_left_half_written_does_not_hinder_resuming(run, resume):
    run("grpo", max_steps=1)
    with open("run/metrics.jsonl", "a") as file:
        file.write('{"step": 2, "rew')
    result = resume("grpo", "run", max_steps=2)
    assert result.code == 0, result.err
    assert steps("run") == [1, 2]


@pytest.mark.usefixtures("no_evaluation")
def test_what_a_kill_while_saving_leaves_behind_is_not_resumed_from(run, resume, monkeypatch):
    save = torch.save

    def save_and_copy(state, *given, **named):
        save(state, *given, **named)
        if state["step"] == 2 and not Path("killed").exists():
            shutil.copytree("run", "killed")

    monkeypatch.setattr(torch, "save", save_and_copy)
    run("grpo")
    assert steps("killed") == [1, 2]
    result = resume("grpo", "killed")
    assert result.code == 0, result.err
    assert rows("killed") == rows("run")
    assert "metrics 2/2" in result.out
    assert "metrics 1/2" not in result.out


# -------------------------------------------------------------------- updates that are left out


def poison(monkeypatch, value, updates):
    """Make the loss of the updates in the set `updates`, counted from 0, infinite or NaN.

    `value` is what is added to the objective, and its gradient is no number either.
    """
    ppo_clip_loss, optimizer_step = common.ppo_clip_loss, rlvr.training.run.Run.optimizer_step
    done = []

    def bad_loss(logprobs, *given):
        loss, parts = ppo_clip_loss(logprobs, *given)
        if len(done) in updates:
            loss = loss + value * logprobs[:, 0].sum()  # a first token is never padding
        return loss, parts

    def counted_step(*given):
        norm = optimizer_step(*given)
        done.append(norm)
        return norm

    monkeypatch.setattr(common, "ppo_clip_loss", bad_loss)
    monkeypatch.setattr(rlvr.training.run.Run, "optimizer_step", counted_step)


@pytest.mark.usefixtures("no_evaluation")
@pytest.mark.parametrize("value", first_fast([math.nan, math.inf]))
@pytest.mark.parametrize("script", first_fast(SCRIPTS))
def test_an_update_that_is_not_finite_is_skipped_and_counted(run, monkeypatch, script, value):
    """The last update of the first step; the step after it trains as ever."""
    poison(monkeypatch, value, {1})
    result = run(script, beta=0.1)  # with the KL penalty there is a gradient whatever was solved
    assert result.code == 0, result.err
    assert result.out.count("no update: the gradient is NaN or infinite") == 1
    first, second = rows("run")
    assert [first["skipped"], second["skipped"]] == [1, 1]
    assert first["loss"] is None  # JSON has no word for it
    assert math.isfinite(second["loss"])
    assert second["grad_norm"] > 0
    for step in (1, 2):
        saved = weights(f"run/checkpoint-{step}")
        assert all(tensor.isfinite().all() for tensor in saved.values())


@pytest.mark.usefixtures("no_evaluation")
def test_a_skipped_update_leaves_weights_and_momentum_alone(run, start, monkeypatch):
    poison(monkeypatch, math.nan, {0})
    run("grpo", max_steps=1, minibatch_size=16, learning_rate=1)
    assert are_equal(start, weights("run/checkpoint-1"))
    assert torch.load("run/checkpoint-1/state.pt")["optimizer"] == {}


@pytest.mark.usefixtures("no_evaluation")
def test_too_many_in_a_row_end_the_run(run, resume, monkeypatch):
    """Three in a row do; two and one with a good one between them do not.

    Resuming does not forget those before it.
    """
    with monkeypatch.context() as patch:
        poison(patch, math.nan, {0, 1, 3})
        result = run("grpo", max_skipped_updates=3, beta=0.1, output_dir="not in a row")
        assert result.code == 0, result.err
    with monkeypatch.context() as patch:
        poison(patch, math.nan, {1, 2, 3})
        result = run("grpo", max_steps=3, max_skipped_updates=3, beta=0.1)
    assert refused(result, "grpo", "3 updates in a row", "--learning_rate", "run/metrics.jsonl")
    assert steps("run") == [1]
    assert Path("run/checkpoint-1").exists()
    poison(monkeypatch, math.nan, {0, 1})
    assert refused(resume("grpo", "run", max_steps=2), "grpo", "3 updates in a row")


def test_a_learning_rate_that_destroys_the_policy_ends_in_one_line(run):
    result = run("grpo", learning_rate=1e30, beta=0.1, max_steps=3)
    assert refused(result, "grpo", "--learning_rate")


# -------------------------------------------------------------------------- rollouts at the edges


@pytest.fixture
def rollouts(monkeypatch):
    """rollouts(groups): what every rollout is from then on.

    A group is a list of (prompt length, token ids, reward).
    """

    def set_rollouts(groups):
        samples = [
            Sample([7] * length, ids, "", reward, logprobs=[-1.0] * len(ids), success=reward == 1)
            for group in groups
            for length, ids, reward in group
        ]

        def roll_out(sampler, stream, config):
            batch = common.make_batch(samples, config, sampler.policy.device)
            batch.tokenizer = sampler.tokenizer
            return batch

        monkeypatch.setattr(common, "roll_out", roll_out)

    return set_rollouts


@pytest.mark.usefixtures("no_evaluation")
@pytest.mark.parametrize("script", first_fast(SCRIPTS))
@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_only_solved_or_only_unsolved_groups_make_no_update_and_say_so(
    run, rollouts, start, script, reward
):
    rollouts([[(4, [5, 9, 1], reward)] * 4] * 4)
    result = run(script, max_steps=1)
    assert result.code == 0, result.err
    assert result.out.count("no update: the gradient is 0") == 2  # of two minibatches
    (row,) = rows("run")
    assert row["grad_norm"] == 0
    assert row["skipped"] == 0
    assert are_equal(start, weights("run/checkpoint-1"))


MIXED = [
    [(4, [], 0.0), (4, [1], 0.0), (4, [5, 9, 1], 1.0), (4, [5, 1], 0.0)],
    [(3, [], 0.0)] * 4,
    [(3, [], 1.0), (3, [1], 0.0), (3, [], 0.0), (3, [], 0.0)],
    [(3, [1], 1.0), (3, [1], 1.0), (3, [1], 0.0), (3, [1], 0.0)],
]
STOP_TOKENS_ONLY = [[(3, [1], 1.0), (3, [1], 0.0), (3, [1], 0.0), (3, [1], 0.0)]] * 4


@pytest.mark.usefixtures("no_evaluation")
@pytest.mark.parametrize("groups", [MIXED, STOP_TOKENS_ONLY], ids=["mixed", "stop tokens only"])
@pytest.mark.parametrize("script", first_fast(SCRIPTS))
def test_completions_that_are_empty_or_only_the_stop_token(run, rollouts, script, groups):
    rollouts(groups)
    result = run(script, max_steps=1, beta=0.01, entropy_coef=0.01)
    assert result.code == 0, result.err
    assert_finite("run")
    assert rows("run")[0]["grad_norm"] > 0


@pytest.mark.usefixtures("no_evaluation")
@pytest.mark.parametrize("script", first_fast(SCRIPTS))
def test_two_completions_of_one_prompt(run, rollouts, script):
    """The smallest batch, as the policy writes it and with a contrast."""
    smallest = dict(prompts_per_step=1, num_generations=2, minibatch_size=2, max_steps=1)
    assert run(script, output_dir="own", **smallest).code == 0
    rollouts([[(4, [5, 9, 1], 1.0), (4, [6, 1], 0.0)]])
    result = run(script, output_dir="contrast", **smallest)
    assert result.code == 0, result.err
    assert rows("contrast")[0]["reward"] == 0.5
    assert rows("contrast")[0]["grad_norm"] > 0
    assert_finite("own")
    assert_finite("contrast")


def test_a_prompt_of_the_maximum_length_is_kept_and_one_token_more_is_not(run, tiny, monkeypatch):
    """Prompts of two numbers have 8 or 9 tokens, such as "3 9 : 12 "."""
    monkeypatch.setattr(rlvr.tasks.datasets, "load_problems", real_load_problems)
    tokenizer = tiny[1]
    lengths = []
    for longest in (8, 9):
        config = Config(numbers="2", max_prompt_length=longest, eval_problems=4)
        problems, _ = real_load_problems(config, tokenizer)
        lengths.append({len(tokenizer.encode(problem.prompt)) for problem in problems})
    assert lengths == [{8}, {8, 9}]
    result = run("grpo", max_prompt_length=8, max_steps=1)
    assert result.code == 0, result.err
    assert "over 8 tokens" in result.out


@pytest.mark.parametrize("length", [1016, 1025])
def test_a_completion_longer_than_the_context_is_refused_before_training(run, length):
    """Or one that is together with its prompt, which here has 8 or 9 tokens."""
    result = run("grpo", max_completion_length=length)
    assert refused(result, "grpo", "context of 1024", "--max_completion_length")
    assert not list(Path("run").glob("*.jsonl"))


# ------------------------------------------------------------------ what the user can mend, or not


def test_out_of_memory_names_the_flags(run, monkeypatch):
    def too_much(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(rlvr.policy.logprobs, "frozen_logprobs", too_much)
    flags = ("--microbatch_tokens", "--gradient_checkpointing")
    assert refused(run("grpo"), "grpo", "out of memory", *flags)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk(run):
    Path("run").mkdir()
    # opens, and then writing fails as on a full disk
    Path("run", ".config.json").symlink_to("/dev/full")
    assert refused(run("grpo"), "grpo", "No space left on device")


@pytest.mark.usefixtures("no_evaluation")
def test_a_checkpoint_that_cannot_be_written(run):
    """By a limit on the size of files: the writers of weights fail then as on a full disk."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, before[1]))
    try:
        result = run("grpo")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert refused(result, "grpo", "too large")
    assert steps("run") == [1]
    assert not list(Path("run").glob("checkpoint-*"))  # nor a part of one


def run_edited(folder, line):
    """Run a copy of grpo.py in a process, with one more line at the start of its main."""
    source = (ROOT / "grpo.py").read_text()
    heading = "def main(config: Config) -> None:\n"
    assert source.count(heading) == 1
    script = folder / "grpo.py"
    script.write_text(source.replace(heading, f"{heading}    {line}\n"))
    return subprocess.run(
        [sys.executable, script],
        cwd=folder,
        env={**ENVIRONMENT, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "line, error",
    [
        ("open('no such file')", "FileNotFoundError"),
        ("import no_such_module", "ModuleNotFoundError"),
        ("{}['no such key']", "KeyError"),
    ],
)
def test_a_mistake_in_an_edited_script_shows_its_traceback(tmp_path, line, error):
    done = run_edited(tmp_path, line)
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback (most recent call last):\n"), done.stderr
    assert line in done.stderr
    assert done.stderr.splitlines()[-1].startswith(error), done.stderr


@pytest.mark.slow
def test_what_an_edited_script_says_to_its_user_is_one_line(tmp_path):
    done = run_edited(tmp_path, "raise rlvr.errors.UserError('choose another number')")
    assert done.returncode == 2
    assert done.stderr == "grpo.py: error: choose another number\n"


def raise_key_error(config):
    raise KeyError("no such key")


@pytest.mark.parametrize("main", [print, raise_key_error])
def test_the_process_group_ends_with_the_run_and_the_watch_after_it(monkeypatch, main):
    """Without this, a process aborts at its exit every few times."""
    events = []

    @contextlib.contextmanager
    def watching():
        events.append("watched")
        yield
        events.append("not watched")

    for name in ("init_process_group", "destroy_process_group"):
        note = functools.partial(events.append, name)
        monkeypatch.setattr(torch.distributed, name, lambda *_, note=note, **__: note())
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(rlvr.machine.ranks, "watching", watching)
    monkeypatch.setattr(rlvr.machine.ranks.world, "WORLD_SIZE", 2)

    def connect_and_call_main(config):
        rlvr.machine.ending.AT_EXIT.enter_context(rlvr.machine.ranks.process_group(60))
        main(config)

    try:
        with left_as_it_was():
            rlvr.training.run.launch(connect_and_call_main, None)
    except KeyError:
        assert main is raise_key_error
    assert events == ["watched", "init_process_group", "destroy_process_group", "not watched"]


# -------------------------------------------------------------------------------------- the cache


@pytest.mark.slow
def test_the_tiny_policy_is_warmed_up_once(run):
    for sft_steps, warms_up in ((2, True), (2, False), (1, True), (2, False)):
        folder = f"run{len(os.listdir())}"
        result = run("grpo", cache_dir="cache", sft_steps=sft_steps, output_dir=folder, max_steps=0)
        assert result.code == 0, result.err
        assert ("teaching the tiny" in result.err) == warms_up
    assert len(list(Path("cache").iterdir())) == 2


@pytest.mark.parametrize(
    "cache_dir",
    [
        "file/below",
        # exists, and nobody may write there
        pytest.param(
            "/proc/self",
            marks=pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc here"),
        ),
    ],
)
def test_a_cache_that_cannot_be_written_is_named_before_the_warm_up(run, monkeypatch, cache_dir):
    def warm_up(*_):
        pytest.fail("the warm-up has begun")

    Path("file").write_text("not a folder")
    monkeypatch.setattr(rlvr.policy.tiny, "warm_up", warm_up)
    assert refused(run("grpo", cache_dir=cache_dir), "grpo", f"--cache_dir {cache_dir}")


def test_what_a_killed_warm_up_leaves_behind_is_not_taken_for_the_policy(run, monkeypatch):
    tokenizer_class = transformers.PreTrainedTokenizerFast
    save = tokenizer_class.save_pretrained

    def save_and_copy(self, *given, **named):
        saved = save(self, *given, **named)
        if not Path("killed").exists():
            shutil.copytree("cache", "killed")  # what SIGKILL here leaves on the disk
        return saved

    monkeypatch.setattr(tokenizer_class, "save_pretrained", save_and_copy)
    run("grpo", cache_dir="cache", sft_steps=1, max_steps=0)
    assert [path for path in Path("killed").rglob("*") if path.is_file()]  # the weights, for one
    result = run("grpo", cache_dir="killed", sft_steps=1, max_steps=0, output_dir="second")
    assert result.code == 0, result.err
    assert "teaching the tiny" in result.err
    assert rows("run", "eval") == rows("second", "eval")


@pytest.mark.slow
def test_a_comment_in_the_source_does_not_warm_up_again(cache_dir, tmp_path):
    """The name of the folder in the cache tells the settings and a version, not the source."""
    project = tmp_path / "project"
    shutil.copytree(ROOT / "rlvr", project / "rlvr", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("common.py", "grpo.py"):
        shutil.copy(ROOT / name, project)
    for file in project.rglob("*.py"):
        file.write_text(file.read_text() + "\n# a comment\n")
    before = sorted(cache_dir.glob("tiny-*"))
    flags = arguments(**SMALL | dict(max_steps=0, cache_dir=cache_dir))
    done = subprocess.run(
        [sys.executable, project / "grpo.py", *flags],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "teaching the tiny" not in done.stderr
    assert sorted(cache_dir.glob("tiny-*")) == before


# -------------------------------------------------------------------------------------- report_to


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_report_to_what_is_not_installed(no_model, monkeypatch, script, name):
    monkeypatch.setitem(sys.modules, name, None)  # what importing it then raises: ImportError
    assert refused(no_model(script, "--report_to", name), script, name)


def test_report_to_tensorboard_without_tensorboard(no_model, monkeypatch):
    loaded = [name for name in sys.modules if name.startswith("torch.utils.tensorboard")]
    for name in loaded:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    assert refused(no_model("grpo", "--report_to", "tensorboard"), "grpo", "tensorboard")


def test_report_to_wandb_starts_a_run_that_follows_the_writer(run, monkeypatch):
    """With stand-ins for both packages, so that it needs neither."""
    started, written = [], []

    def init(**given):
        started.append(given)

    def add_scalar(*given):
        written.append(given)

    tensorboard = SimpleNamespace(
        SummaryWriter=lambda *_, **__: SimpleNamespace(add_scalar=add_scalar)
    )
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", tensorboard)
    assert run("grpo", report_to="wandb", seed=7).code == 0
    assert len(started) == 1
    assert started[0]["config"]["seed"] == 7
    assert started[0]["sync_tensorboard"]
    expected = [
        (f"{name}/{key}", value, row["step"])
        for name in ("metrics", "eval")
        for row in rows("run", name, timed=True)
        for key, value in row.items()
        if key != "step"
    ]
    assert sorted(written) == sorted(expected)


def test_report_to_trackio(run, resume, monkeypatch):
    """With a stand-in: each row of the .jsonl files is logged once, also by a resumed run."""
    started, written = [], []
    stand_in = SimpleNamespace(
        init=lambda **given: started.append(given), log=lambda *given: written.append(given)
    )
    monkeypatch.setitem(sys.modules, "trackio", stand_in)
    assert run("grpo", report_to="trackio", seed=7, max_steps=1).code == 0
    assert resume("grpo", "run", max_steps=2).code == 0
    assert [given["resume"] for given in started] == ["never", "allow"]
    assert {given["name"] for given in started} == {"run"}
    assert started[0]["config"]["seed"] == 7
    expected = [
        ({f"{name}/{key}": value for key, value in row.items() if key != "step"}, row["step"])
        for name in ("metrics", "eval")
        for row in rows("run", name, timed=True)
    ]
    assert sorted(written, key=str) == sorted(expected, key=str)


def test_report_to_trackio_fills_its_database(run, tmp_path, monkeypatch):
    pytest.importorskip("trackio", reason="trackio is not installed")
    from trackio.sqlite_storage import SQLiteStorage

    monkeypatch.setattr("trackio.sqlite_storage.TRACKIO_DIR", tmp_path / "trackio")
    assert run("grpo", report_to="trackio", max_steps=1).code == 0
    sys.modules["trackio"].finish()
    found = {
        row["step"]: row for row in SQLiteStorage.get_logs("rlvr", "run") if "metrics/loss" in row
    }
    expected = rows("run")
    assert [row["metrics/loss"] for row in found.values()] == [row["loss"] for row in expected]


def test_report_to_tensorboard_writes_an_event_file(run):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert run("grpo", report_to="tensorboard").code == 0
    events = EventAccumulator("run").Reload()
    for name in ("metrics", "eval"):
        for key in rows("run", name)[0].keys() - {"step"}:
            found = [(event.step, event.value) for event in events.Scalars(f"{name}/{key}")]
            expected = [(row["step"], row[key]) for row in rows("run", name)]
            assert [step for step, _ in found] == [step for step, _ in expected]
            values = [value for _, value in expected]
            assert [value for _, value in found] == pytest.approx(values, rel=1e-6)


# ------------------------------------------------------------------ a signal with nothing to save


@pytest.mark.parametrize(
    "number, code",
    [(signal.SIGTERM, 0), (signal.SIGUSR1, 0), (signal.SIGHUP, 0), (signal.SIGINT, 130)],
)
@pytest.mark.parametrize("max_steps", [0, 2])
def test_a_signal_in_the_first_evaluation_ends_at_once(run, monkeypatch, number, code, max_steps):
    """There has been no update, so there is nothing that a checkpoint could keep."""
    monkeypatch.setattr(common, "evaluate", lambda *_: signal.raise_signal(number) or {})
    result = run("grpo", max_steps=max_steps)
    assert result.code == code and "Traceback" not in result.err
    assert not [*Path("run").glob("*.jsonl")] and not [*Path("run").glob("checkpoint-*")]


@pytest.mark.parametrize("number", first_fast([signal.SIGUSR1, signal.SIGHUP]))
def test_a_scheduler_s_warning_and_a_closed_terminal_save(run, monkeypatch, number):
    evaluate = common.evaluate
    evaluations = []

    def signalling(*given):
        evaluations.append(1)
        if len(evaluations) == 2:  # that after step 1, whose update is not saved yet
            signal.raise_signal(number)
        return evaluate(*given)

    monkeypatch.setattr(common, "evaluate", signalling)
    assert run("grpo", max_steps=5, save_steps=100).code == 0
    assert steps("run") == [1] and Path("run/checkpoint-1").exists()


def test_an_ignored_signal_stays_ignored():
    """As SIGHUP is under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert signal.SIGHUP not in rlvr.machine.ending.asking_for_an_end()
    finally:
        signal.signal(signal.SIGHUP, before)
    assert signal.SIGHUP in rlvr.machine.ending.asking_for_an_end()
