"""A run from its first to its last line, also as a process, on two ranks, and of every variant."""

import ast
import json
import math
import re
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import rlvr.policy.models
import rlvr.training.checkpoints
import rlvr.training.run
from rlvr import progress
from rlvr.errors import UserError, loading
from rlvr.flags.config import Config
from rlvr.tasks.problems import Sample
from rlvr.training.run import Run, launch
from rlvr.training.updates import UpdateMetrics, make_optimizer

import pytest
import runs
import torch
from local_sets import write
from runs import ROOT, before_calls, first_fast, refused, rows, run_python, steps, weights
from samples import writer_of_batch

import common
import grpo


@pytest.mark.usefixtures("no_evaluation")
def test_a_rank_draws_by_seed_and_number(run, monkeypatch):
    """It leaves files and messages to rank 0."""
    asked = []
    for name in ("process_group", "own", "gather", "end_one_of_several_ranks"):
        before_calls(monkeypatch, rlvr.machine, name, lambda *given: asked.append(given))
    before_calls(monkeypatch, Run, "start", lambda *given, **_: asked.append(given[5].seed))
    monkeypatch.setattr("rlvr.world.RANK", 2)
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(__spec__="found"))  # without init
    result = run("grpo", max_steps=1, seed=5, report_to="wandb")
    assert (result.code, result.out) == (0, "") and not Path("run").exists()
    assert asked == [(torch.device("cpu"),), (Path("run"),), 5, ([0.0],), ([],), ()]
    assert torch.initial_seed() == 7  # the problems have the same order on all ranks


def test_which_checkpoints_are_saved_and_kept(monkeypatch, tmp_path):
    """One after each third of the run, and the last one; the newest two stay."""
    save = Mock(side_effect=lambda folder, *_: folder.mkdir() or (folder / "state.pt").touch())
    monkeypatch.setattr("rlvr.training.checkpoints.save", save)
    config = Config(max_steps=7, save_total_limit=2)
    run = SimpleNamespace(config=config, stopped=0.0, folder=tmp_path)
    run.training = SimpleNamespace(memory=None)
    run.draw = lambda: None
    assert not any(Run.end_step(run, step) for step in range(1, 8))
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoint-6", "checkpoint-7"}
    monkeypatch.setattr(rlvr.machine, "gather", lambda mine: [*mine, 1.0])  # a rank had a signal
    assert Run.end_step(run, 8)
    assert [call.args[2] for call in save.call_args_list] == [3, 6, 7, 8]  # ceil(7 / 3) is 3
    monkeypatch.setattr("rlvr.world.RANK", 1)
    assert Run.end_step(run, 9) and len([*tmp_path.iterdir()]) == 3  # rank 0 deletes the oldest


@pytest.mark.usefixtures("no_evaluation")
def test_the_seconds_of_a_step_are_those_of_its_rollout_and_its_updates(run, monkeypatch):
    """Not those before the first step, nor of evaluations and checkpoints."""
    now = [0.0]

    def tick(seconds):
        now[0] += seconds

    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    for owner, name, seconds in (
        (common, "evaluate", 1000),
        (common, "sample_groups", 10),
        (common, "optimizer_step", 1),
        (rlvr.training.checkpoints, "save", 100),
    ):
        before_calls(monkeypatch, owner, name, lambda *_, seconds=seconds, **__: tick(seconds))
    assert run("grpo").code == 0  # two steps of two updates
    found = rows("run", timed=True)
    assert [(row["seconds_rollout"], row["seconds_update"]) for row in found] == [(10, 2)] * 2


def test_a_long_gradient_is_clipped_and_one_that_is_not_finite_skipped():
    """Ten in a row end the run. Nine and nine with a good one between them do not."""
    policy = torch.nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(policy.parameters(), lr=1.0)
    run = SimpleNamespace(skipped_in_a_row=0, updates=UpdateMetrics(), folder="the folder")
    run.training = SimpleNamespace(policy=policy)
    run.config, run.count_update = Config(), lambda *given: Run.count_update(run, *given)

    def moved_by(*gradient):
        before, policy.weight.grad = policy.weight.detach().clone(), torch.tensor([gradient])
        common.optimizer_step(policy, optimizer, run)
        assert policy.weight.grad is None
        return (before - policy.weight.detach())[0].tolist()

    assert moved_by(3.0, 4.0) == pytest.approx([0.6, 0.8], abs=1e-5)
    optimizer.param_groups[0]["momentum"] = 0.5  # which would still move it
    assert moved_by(0.3, 0.4) == pytest.approx([0.3, 0.4])
    assert moved_by(0.0, 0.0) == [0, 0]
    for value in (math.nan, math.inf):
        assert moved_by(value, 1.0) == [0, 0]
    run.updates.add(torch.zeros(()), *[torch.ones(1, 1)] * 2)
    assert run.updates.grad_norms[:3] == pytest.approx([5, 0.5, 0])
    assert run.updates.metrics()["skipped"] == 2
    for value in (*[math.nan] * 7, 1.0, *[math.inf] * 9):
        moved_by(value, 1.0)
    with pytest.raises(UserError, match="^10 updates in a row .* the folder/metrics.jsonl.*rate"):
        moved_by(math.nan, 1.0)


@pytest.mark.usefixtures("no_evaluation")
@pytest.mark.filterwarnings("error:Detected call of")  # torch's, which a run hides
@pytest.mark.parametrize("script", first_fast(runs.SCRIPTS))
def test_a_rollout_that_is_masked_leaves_the_weights_as_they_were(run, monkeypatch, script):
    """All are cut off, in a group with a contrast, one all wrong, and one all right."""
    samples = [
        Sample([7] * 4, [5 + i, 9, 7], f"text {i}", reward, True, [-1.0] * 3, success=reward == 1)
        for i, reward in enumerate([1.0, 0.5, 0.0, 0.0, 1.0, 1.0])
    ]

    def roll_out(sampler, stream, config):
        return common.make_batch(samples, config, writer_of_batch(sampler.tokenizer))

    monkeypatch.setattr(common, "roll_out", roll_out)
    flags = dict(prompts_per_step=3, num_generations=2, minibatch_size=6, entropy_coef=0.1)
    result = run(script, max_steps=1, mask_truncated_completions=True, **flags)
    assert result.code == 0, result.err
    runs.assert_finite("run")
    (row,) = rows("run")
    assert row["grad_norm"] == row["loss_share"] == row["skipped"] == 0 < row["entropy"]
    assert result.out.count("no update in 1 of 1: the gradient is 0; no group's rewards") == 1
    assert row["tokens"] == 18 and (row["advantage_max"] > 0) == (script != "cwgrpo")
    shown = [(sample["text"], sample["reward"]) for sample in rows("run", "samples")]
    assert shown == [("text 0", 1.0), ("text 1", 0.5)]
    sample = rows("run", "samples")[0]
    record = json.loads(Path("run/config.json").read_text())["record"]
    assert (sample["verdict"], sample["length"], sample["truncated"]) == ("right", 3, True)
    assert record["ranks"] == 1 and record["device"] == "cpu" and record["versions"]["torch"]
    start = weights(rlvr.policy.models.tiny_folder(Config()))
    now = weights("run/checkpoint-1")
    assert all(torch.equal(start[name], now[name]) for name in start)


def test_a_completion_that_outgrows_the_context_is_refused_before_training(run):
    result = run("grpo", max_completion_length=1020)
    assert refused(result, "grpo", "and a completion of 1020 exceed the policy's context of 1024")
    assert not list(Path("run").glob("*.jsonl"))


@pytest.mark.usefixtures("no_evaluation")
def test_what_is_told_and_reported_to_wandb(run, resume, monkeypatch):
    """A resumed run logs each row once, too, and has as many threads, which change rounding."""
    init, log = Mock(), Mock()
    stand_in = SimpleNamespace(init=init, log=log, __spec__="found")
    monkeypatch.setitem(sys.modules, "wandb", stand_in)
    torch.set_num_threads(3)
    told = run("grpo", report_to="wandb", seed=7, max_steps=1, log_tokens=0).out
    torch.set_num_threads(1)
    told += resume("grpo", "run", max_steps=2).out
    counts = {"saved run/checkpoint-": 2, "loading the policy": 2, "evaluating countdown: 4": 1}
    counts |= {"/1  pass@1 .500": 2, "pass@1 .500 -> .500": 2, "samples.jsonl\n": 2}
    assert {text: told.count(text) for text in counts} == counts
    assert steps("run", "samples") == [1, 1, 2, 2]
    first, second = (16 * row["length"] for row in rows("run"))  # tokens of 16 completions
    assert [row["tokens"] for row in rows("run")] == [first, first + second]
    first, second = (call.kwargs for call in init.call_args_list)
    assert torch.get_num_threads() == first["config"]["num_threads"] == 3
    assert first["config"].pop("seed") == 7
    assert first == dict(project="rlvr", name="run", config=first["config"], resume="never")
    assert (second["name"], second["resume"]) == ("run", "allow")
    expected = [
        ({f"{name}/{key}": x for key, x in row.items() if key not in ("set", "step")}, row["step"])
        for name, log in (("metrics", "metrics"), ("eval/countdown", "eval"))
        for row in rows("run", log, timed=True)
    ]
    logged = [call.args for call in log.call_args_list]
    assert sorted(logged, key=str) == sorted(expected, key=str)


@pytest.mark.parametrize(
    "flags, after_four",
    [
        (dict(warmup_ratio=0.31), [1] * 6),  # 3.1 updates of 10 are 4
        # 4 updates of 20 up, and 16 down
        (
            dict(lr_scheduler_type="cosine", warmup_ratio=0.2, num_iterations=2),
            [(1 + math.cos(math.pi * i / 16)) / 2 for i in range(6)],
        ),
    ],
)
def test_schedules_by_hand(flags, after_four):
    """Of 5 steps with 2 updates. FADE's --equalize_learning_rate gives a run another rate."""
    config = Config(**flags, max_steps=5, minibatch_size=256, learning_rate=3e-6)
    optimizer, scheduler = make_optimizer(torch.nn.Linear(1, 1), config, 4.0)
    assert optimizer.param_groups[0]["weight_decay"] == 0
    for share in (0, 1 / 4, 1 / 2, 3 / 4, *after_four):
        rate = pytest.approx(1.2e-5 * share, rel=1e-12, abs=1e-20)
        assert optimizer.param_groups[0]["lr"] == rate
        optimizer.step()
        scheduler.step()


def test_what_is_counted_keeps_no_graph_and_has_one_shape():
    """The ratios are 1.5 and 1/2, and the 9 is padding. Means are in tests/test_steps.py."""
    update, own = UpdateMetrics(), torch.ones(3, 1, requires_grad=True)
    mask = torch.tensor([[1.0], [1.0], [0.0]])
    log_ratio = torch.tensor([[math.log(1.5)], [math.log(0.5)], [9.0]])
    update.add(own.sum(), mask, log_ratio, kl=own)
    assert not (update.loss + update.sums["kl"]).requires_grad
    assert update.sums["ratio_k3"].item() == pytest.approx(-math.log(1.5) - math.log(0.5))
    assert update.largest[0].item() == pytest.approx(math.log(1.5))
    with pytest.raises(AssertionError, match="clip is"):  # it would broadcast in silence
        update.add(own.sum(), mask, log_ratio, clip=torch.ones(1, 1))


@pytest.mark.parametrize(
    "error, shown",
    [
        (UserError("--numbers takes\n2, 3 and 4"), "--numbers takes 2, 3 and 4\n"),
        (MemoryError("no more"), "out of memory"),
        (torch.OutOfMemoryError("no more"), "--microbatch_tokens"),
        (OSError("no such file"), None),
    ],
)
def test_what_the_user_can_mend_is_one_line(capsys, monkeypatch, error, shown):
    """A mistake in an edited script keeps its traceback."""

    def main(config):
        raise error

    monkeypatch.setattr("sys.argv", ["some/folder/grpo.py", "--seed", "3"])
    ended = []
    before_calls(monkeypatch, progress, "clear_line", lambda: ended.append("cleared"))
    rlvr.machine.AT_EXIT.callback(ended.append, "ended")
    with pytest.raises((SystemExit, OSError)) as raised, runs.left_as_it_was():
        launch(main, None)
    assert ended[-2:] == ["cleared", "ended"]  # so that a traceback has a line of its own
    written = capsys.readouterr().err
    if shown is None:
        assert [entry.name for entry in raised.traceback][-1] == "main" and written == ""
    else:
        assert raised.value.code == 2 and shown in written
        assert written.startswith("grpo.py: error: ") and written.count("\n") == 1


@pytest.mark.usefixtures("no_evaluation")
def test_advantages_that_are_not_finite_are_named_with_their_group(run, monkeypatch):
    def wrong(batch, _):
        batch.rewards[1] = torch.tensor([1.0, 0.25, 0.0, 0.5])
        bad = torch.zeros(4, 4, batch.loss_mask.shape[1])
        bad[1, 2, 1] = torch.inf  # of one token
        return bad, {}

    monkeypatch.setattr(grpo.main, "__defaults__", (wrong,))
    told = "the advantages of group 1 are NaN or infinite; its rewards are 1, 0.25, 0, 0.5. "
    assert refused(run("grpo"), "grpo", told)
    assert not Path("run/metrics.jsonl").exists()  # before the update


def test_the_line_that_says_why_is_told():
    """The end of many lines, or the cause, whose text may be empty."""
    why, caused = OSError(f"a\n{400 * 'b'}\nnames\n"), OSError("what follows from it")
    caused.__cause__ = OSError()
    for error, shown in ((why, f"{394 * 'b'} names"), (caused, "OSError('what follows from it')")):
        with pytest.raises(UserError) as raised, loading("it"):
            raise error
        assert str(raised.value) == f"cannot load it: {shown}"


def train_in_a_folder(folder, *launcher):
    """Train by grpo.py's default flags but for small sizes -> the run folder, a whole one."""
    flags = runs.SMALL | dict(eval_steps=3)  # and after the last step
    done = run_python(*launcher, ROOT / "grpo.py", *runs.arguments(**flags), folder=folder)
    assert done.returncode == 0, done.stderr
    (run,) = (folder / "runs").iterdir()
    assert run.name.startswith("grpo-grpo-")
    files = "config.json curves.png eval.jsonl metrics.jsonl problems.jsonl report.html "
    files += "samples.jsonl tokens.jsonl"
    assert f"runs/{run.name} holds: {files}" in " ".join(done.stdout.split())
    assert "evaluating countdown: 4 problems, 4 completions of each\n" in done.stdout
    checkpoints = {"checkpoint-1", "checkpoint-2"}
    assert {path.name for path in run.iterdir()} == {*files.split(), *checkpoints}
    runs.assert_finite(run)
    assert steps(run) == [1, 2] and steps(run, "eval") == [0, 2]
    for row in rows(run):
        assert 0 <= row["reward"] <= 1 and 16 * row["reward"] % 1 == 0  # of all 16 completions
        assert 0 < row["length"] <= 48 and row["entropy"] > 0 == row["kl"]
    assert any(row["grad_norm"] > 0 for row in rows(run))
    assert 0.1 < rows(run, timed=True)[1]["peak_memory_gb"] < 100
    samples = rows(run, "samples")
    assert [row["step"] for row in samples] == [1, 1, 2, 2]
    graded = run_python("-m", "rlvr.verify", run / "samples.jsonl", folder=ROOT).stdout
    assert graded.count("line ") == 4 and "was" not in graded
    return run


def test_a_process_of_its_own_and_its_checkpoint(run, tmp_path):
    """--max_steps 0 evaluates the policy as the run has done, and does nothing else."""
    trained = train_in_a_folder(tmp_path)
    assert run("grpo", max_steps=0, model=trained / "checkpoint-2").code == 0
    assert rows("run", "eval")[0] == rows(trained, "eval")[-1] | dict(step=0)
    files = {path.name for path in Path("run").iterdir()}
    assert files == {"config.json", "eval.jsonl", "problems.jsonl", "curves.png"}


@pytest.mark.slow
def test_two_ranks(tmp_path):
    train_in_a_folder(tmp_path, *runs.TWO_RANKS)


@pytest.mark.slow
@pytest.mark.parametrize("script, variant", runs.VARIANTS)
def test_every_variant_trains(run, script, variant):
    result = run(script, variant=variant)
    assert result.code == 0, result.err
    runs.assert_finite("run")
    for row in rows("run"):
        if row["all_wrong"] + row["all_right"] < 1:  # some group has a contrast to learn from
            assert row["grad_norm"] > 0


def test_a_local_model_and_two_data_sets(run, monkeypatch):
    """An evaluation has a line for each set."""
    monkeypatch.setattr("rlvr.tasks.datasets.load_problems", runs.real_load_problems)
    policy, _, tokenizer = rlvr.policy.models.load_policies(Config())
    tokenizer.chat_template = "{{ messages[0]['content'] }}<think>"
    rlvr.training.checkpoints.save_folder(Path("chat"), policy, tokenizer)
    sums = [dict(question=f"{i} 1 : ", gold=i + 1) for i in range(20)]
    sums = write(Path("sums.jsonl"), sums)
    data = dict(dataset=sums, eval_dataset=f"countdown,{sums}", columns="question,gold")
    data |= dict(verifier="number", system_prompt="none", max_completion_length=16)
    result = run("grpo", model="chat", max_steps=1, eval_samples=3, **data)
    assert result.code == 0, result.err
    (row,) = rows("run")
    assert row["length"] <= 16
    assert row["mismatch"] < 1e-4
    assert not rows("run", "samples")[0]["text"].startswith("<think>")  # it is of the prompt
    first, second, *_ = rows("run", "eval")
    for name, row in (("countdown", first), (sums, second)):
        assert row["set"] == name and {"pass@2", "pass@3", "greedy"} <= row.keys()
        assert f"eval 0/1 {name}  pass@1 " in result.out


WITHOUT_TORCH = """
import runpy
import sys

sys.modules["torch"] = None
sys.version_info = (3, int(sys.argv[2]), 14, "final", 0)
sys.argv[0] = sys.argv[1]
runpy.run_path(sys.argv[1], run_name="__main__")
"""


@pytest.mark.parametrize(
    "version, code, told",
    [(10, 2, "Python 3.11 or newer is needed, .*\n"), (11, 1, "torch is not installed in .*\n")],
)
def test_an_older_python_or_one_without_torch_gets_one_line(version, code, told):
    done = run_python("-c", WITHOUT_TORCH, "grpo.py", str(version), folder=ROOT)
    assert done.returncode == code
    assert re.fullmatch(told, done.stderr), done.stderr
    for file in (*ROOT.glob("*.py"), ROOT / "rlvr/__init__.py"):
        ast.parse(file.read_text(), feature_version=(3, 8))
