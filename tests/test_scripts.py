"""The scripts as a user runs them: all variants, settings off the defaults, wrong input, stopping, resuming, ranks.

Most runs are in this process, because importing torch anew costs more than training two steps; one run of each script,
those of two ranks and those that get a signal are processes of their own.
"""
import importlib
import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import fields
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace

import matplotlib.image
import pytest
import torch
import transformers

import common
import tasks

ROOT = Path(common.__file__).parent
SCRIPTS = [name for name in ("grpo", "agrae", "asymgrpo", "fade", "cwgrpo") if (ROOT / f"{name}.py").exists()]
VARIANTS = [(script, variant) for script in SCRIPTS for variant in importlib.import_module(script).VARIANTS]
# 80 steps on two numbers: right answers are some 10 to 30 in 100, so that there are gradients to train on
SMALL = dict(numbers=2, sft_steps=80, max_steps=2, prompts_per_step=4, num_generations=4, minibatch_size=8,
             eval_problems=4, eval_samples=4, eval_steps=1, save_steps=1)
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "",
               "PYTHONUNBUFFERED": "1"}
real_load_problems = common.load_problems
TOKENIZER = common.build_tiny()[1]


@cache
def problems_of(numbers, eval_problems):
    return real_load_problems(tasks.Config(numbers=numbers, eval_problems=eval_problems), TOKENIZER)


def arguments(**flags):
    return [part for name, value in flags.items() for part in (f"--{name}", str(value))]


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory):
    """One for all tests: the tiny policy is warmed up by the first of them, and read by the others."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def bare(tmp_path, monkeypatch, capsys):
    """bare(script, *arguments) runs a script in this process, in an empty folder -> its exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    # always the same, and 1 s of every run
    monkeypatch.setattr(common, "load_problems", lambda config, _: problems_of(config.numbers, config.eval_problems))
    for key, value in (("savefig.dpi", 20), *((f"{axis}.{side}", False) for axis, side in (
            ("xtick", "bottom"), ("xtick", "labelbottom"), ("ytick", "left"), ("ytick", "labelleft")))):
        monkeypatch.setitem(matplotlib.rcParams, key, value)  # plain figures are drawn 5 times as fast
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)

    def run(script, *given):
        module = importlib.import_module(script)
        monkeypatch.setattr(sys, "argv", [str(ROOT / f"{script}.py"), *given])
        capsys.readouterr()
        try:
            common.launch(module.main, tasks.parse_flags(module.Config, module.VARIANTS))
            code = 0
        except SystemExit as stopped:
            code = stopped.code
        out, err = capsys.readouterr()
        return SimpleNamespace(code=code, out=out, err=err)

    with torch.random.fork_rng():
        yield run
    torch.set_num_threads(threads)
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def run(bare, cache_dir):
    """run(script, flag=value, ...) -> what `bare` gives; in the run folder `run` unless told otherwise."""
    return lambda script, **flags: bare(
        script, *arguments(**{**SMALL, "output_dir": "run", "cache_dir": cache_dir, **flags}))


@pytest.fixture
def resume(bare, cache_dir):
    """resume(script, folder, flag=value, ...): the flags that are not given come from the run's config.json."""
    return lambda script, folder, **flags: bare(script, *arguments(resume_from_checkpoint=folder, **flags))


def rows(folder, name="metrics", timed=False):
    """The rows of <name>.jsonl, without the only numbers that no seed settles."""
    found = [json.loads(line) for line in (Path(folder) / f"{name}.jsonl").read_text().splitlines()]
    return found if timed else [{k: v for k, v in row.items() if not k.startswith("seconds_")} for row in found]


def steps(folder, name="metrics"):
    return [row["step"] for row in rows(folder, name)]


def assert_finite(folder):
    for row in rows(folder, timed=True) + rows(folder, "eval"):
        assert all(math.isfinite(value) for value in row.values()), row


def weights(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder).state_dict()


def refused(result, script, *mentioned):
    """One line that names the script and what is wrong, and exit code 2."""
    assert result.code == 2
    assert result.err.startswith(f"{script}.py: error: ") and result.err.count("\n") == 1, result.err
    for text in mentioned:
        assert text in result.err
    return True


# --------------------------------------------------------------------------------------------------- whole runs
def test_clip_cov_fraction_is_of_the_tokens_that_are_detached(run, monkeypatch):
    cwgrpo = importlib.import_module("cwgrpo")
    monkeypatch.setattr(cwgrpo, "clip_cov_mask", partial(cwgrpo.clip_cov_mask, low=0.0))
    losses = {}
    for variant, fraction in (("grpo", 2e-4), ("clip-cov", 2e-4), ("clip-cov", 0.5)):
        assert run("cwgrpo", variant=variant, clip_cov_fraction=fraction, output_dir=f"{variant}-{fraction}").code == 0
        losses[variant, fraction] = [row["loss"] for row in rows(f"{variant}-{fraction}")]
    assert losses["clip-cov", 2e-4] == losses["grpo", 2e-4]  # a minibatch has too few tokens for one to be detached
    assert losses["clip-cov", 0.5] != losses["grpo", 2e-4]
    assert refused(run("cwgrpo", clip_cov_fraction=1.5), "cwgrpo", "--clip_cov_fraction")


@pytest.mark.parametrize("script, variant", VARIANTS)
def test_every_variant_trains_and_leaves_a_whole_run_folder(run, script, variant):
    result = run(script, variant=variant)
    assert result.code == 0, result.err
    config = json.loads(Path("run/config.json").read_text())
    preset = importlib.import_module(script).VARIANTS[variant]
    assert {key: config[key] for key in preset} == preset and config["variant"] == variant
    assert steps("run") == [1, 2] and steps("run", "eval") == [0, 1, 2]
    assert_finite("run")
    for row in rows("run"):
        assert 0 <= row["reward"] <= 1 and 0 < row["length"] <= 48 and row["entropy"] > 0
        if row["all_wrong"] + row["all_right"] < 1:  # some group has a contrast to learn from
            assert row["grad_norm"] > 0
    for row in rows("run", "eval"):
        assert 0 <= row["pass@1"] <= row["pass@2"] <= row["pass@4"] <= 1
        assert row["pass@1"] == pytest.approx(row["reward"])  # as many samples a problem: the same mean
    samples = rows("run", "samples")
    assert {row["step"] for row in samples} == {1, 2} and {row["reward"] for row in samples} <= {0, 1}
    assert all("<" in row["text"] for row in samples)  # the text, with its tags
    assert Path("run/curves.png").read_bytes().startswith(b"\x89PNG") and matplotlib.image.imread("run/curves.png").size
    policy, info = transformers.AutoModelForCausalLM.from_pretrained("run/checkpoint-2", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert policy.dtype == torch.float32 and all(value.isfinite().all() for value in policy.parameters())
    before, after = rows("run", "eval")[0], rows("run", "eval")[-1]
    for key in ("pass@1", "pass@4", "answer_entropy", "token_entropy"):  # the table at the end
        assert re.search(rf"^{key} +{before[key]:.3f} +{after[key]:.3f}$", result.out, re.M)


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def in_processes(folder, cache_dir, ranks, **flags):
    """All scripts, one after the other in a process, or in as many as ranks -> the process, {script: its stdout}.

    With ranks there is one process group for all, because to make several in a row is a race; that a script ends it,
    without which a process aborts at exit every few times, shows in its output.
    """
    (folder / "all.py").write_text(f"""
import runpy, sys
import torch.distributed as dist
sys.path.insert(0, {str(ROOT)!r})
init, end = dist.init_process_group, dist.destroy_process_group
dist.init_process_group = lambda *given, **named: dist.is_initialized() or init(*given, **named)
dist.destroy_process_group = lambda *_: print("process group ended by", dist.get_rank())
for script in {SCRIPTS!r}:
    sys.argv = [f"{ROOT}/{{script}}.py", *{arguments(**SMALL | flags, cache_dir=cache_dir)!r}]
    print("script", script)
    runpy.run_path(sys.argv[0], run_name="__main__")
if dist.is_initialized():
    end()
""")
    torchrun = ["-m", "torch.distributed.run", "--nproc_per_node", str(ranks), "--master_port", free_port()]
    done = subprocess.run([sys.executable, *(torchrun if ranks > 1 else []), "all.py"], cwd=folder, env=ENVIRONMENT,
                          capture_output=True, text=True, timeout=300)
    return done, dict(part.split("\n", 1) for part in re.split("^script ", done.stdout, flags=re.M)[1:])


@pytest.fixture(scope="module")
def whole_runs(cache_dir, tmp_path_factory):
    """4 steps of each script by default in `runs` -> {script: its stdout}, {script: run folder}."""
    folder = tmp_path_factory.mktemp("whole")
    done, out = in_processes(folder, cache_dir, 1, max_steps=4, eval_steps=2, save_steps=2)
    assert done.returncode == 0, done.stderr
    return out, {path.name.split("-")[0]: path for path in (folder / "runs").iterdir()}


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_process_of_its_own(whole_runs, script):
    out, folder = (found[script] for found in whole_runs)
    assert folder.name.startswith(f"{script}-{script}")  # <script>-<variant>, the default one has the script's name
    assert [line.split(" | ")[0] for line in out.splitlines() if line.startswith("metrics ")] == [
        f"metrics {step}/4" for step in (1, 2, 3, 4)]
    names = {"config.json", "metrics.jsonl", "eval.jsonl", "samples.jsonl", "curves.png"}
    assert names | {"checkpoint-2", "checkpoint-4"} == {path.name for path in folder.iterdir()}
    assert f"runs/{folder.name}" in out  # says where all is
    assert any(row["grad_norm"] > 0 for row in rows(folder))
    first, last = weights(folder / "checkpoint-2"), weights(folder / "checkpoint-4")
    assert any(not torch.equal(first[key], last[key]) for key in first)


@pytest.mark.parametrize("script", SCRIPTS)
def test_two_steps_and_two_after_resuming_are_four(run, resume, whole_runs, script):
    _, straight = (found[script] for found in whole_runs)
    assert run(script, eval_steps=2, save_steps=2).code == 0
    result = resume(script, "run", max_steps=4)
    assert result.code == 0, result.err
    assert rows("run") == rows(straight) and rows("run", "eval") == rows(straight, "eval")
    assert rows("run", "samples") == rows(straight, "samples")
    resumed, expected = weights("run/checkpoint-4"), weights(straight / "checkpoint-4")
    assert resumed.keys() == expected.keys() and all(torch.equal(resumed[key], expected[key]) for key in expected)


def test_resume_from_an_earlier_checkpoint_drops_the_rows_after_it(run, resume):
    run("grpo", max_steps=3)
    before, before_eval = rows("run"), rows("run", "eval")
    assert resume("grpo", "run/checkpoint-1").code == 0
    assert rows("run") == before and rows("run", "eval") == before_eval
    assert steps("run") == [1, 2, 3] and steps("run", "samples") == [1, 1, 2, 2, 3, 3]


def test_resuming_a_finished_run_adds_nothing(run, resume):
    run("grpo", max_steps=1)
    before = rows("run", timed=True)
    result = resume("grpo", "run")
    assert result.code == 0 and rows("run", timed=True) == before and "metrics 1/1" not in result.out


def test_a_row_that_a_killed_run_left_half_written_does_not_hinder_resuming(run, resume):
    run("grpo", max_steps=1)
    with open("run/metrics.jsonl", "a") as file:
        file.write('{"step": 2, "rew')
    result = resume("grpo", "run", max_steps=2)
    assert result.code == 0, result.err
    assert steps("run") == [1, 2]


def test_a_flag_that_is_given_wins_over_the_preset_and_over_the_resumed_run(run, resume):
    run("grpo", variant="dapo", epsilon_high=0.3, max_steps=1, seed=3)
    config = json.loads(Path("run/config.json").read_text())
    assert (config["epsilon_high"], config["aggregation"], config["seed"]) == (0.3, "token", 3)
    assert resume("grpo", "run", max_steps=2, eval_protocol="002", eval_samples=3).code == 0
    config = json.loads(Path("run/config.json").read_text())
    assert (config["epsilon_high"], config["aggregation"], config["seed"]) == (0.3, "token", 3)
    assert (config["variant"], config["max_steps"]) == ("dapo", 2)
    assert (config["eval_samples"], config["eval_temperature"]) == (3, 0.4)  # the protocol's 10 gives way to the flag


def test_the_seed_settles_everything(run):
    for folder, seed in (("first", 5), ("again", 5), ("other", 6)):
        run("grpo", output_dir=folder, seed=seed)
    assert rows("first") == rows("again") and rows("first", "eval") == rows("again", "eval")
    assert rows("first", "samples") == rows("again", "samples")
    assert rows("first") != rows("other") and rows("first", "samples") != rows("other", "samples")


def test_how_often_one_evaluates_and_saves_does_not_change_the_training(run):
    run("grpo", output_dir="often", max_steps=3)
    run("grpo", output_dir="seldom", max_steps=3, eval_steps=100, save_steps=100)
    assert rows("often") == rows("seldom")
    assert steps("seldom", "eval") == [0, 3] and not Path("seldom/checkpoint-2").exists()  # the last is always saved
    assert Path("seldom/checkpoint-3").exists()


def test_max_steps_0_evaluates_a_checkpoint_and_nothing_else(run):
    run("grpo")
    result = run("grpo", model="run/checkpoint-2", output_dir="evaluated", max_steps=0)
    assert result.code == 0 and "warming up" not in result.err
    assert rows("evaluated", "eval") == [{**rows("run", "eval")[-1], "step": 0}]
    assert not Path("evaluated/metrics.jsonl").exists() and not list(Path("evaluated").glob("checkpoint-*"))
    assert Path("evaluated/curves.png").exists()


def test_training_can_start_from_a_checkpoint_folder(run):
    run("grpo", max_steps=1)
    assert run("grpo", model="run/checkpoint-1", output_dir="second", learning_rate=0).code == 0
    assert steps("second") == [1, 2] and rows("second", "eval")[0] == {**rows("run", "eval")[-1], "step": 0}
    start, end = weights("run/checkpoint-1"), weights("second/checkpoint-2")
    assert all(torch.equal(start[key], end[key]) for key in start)  # at learning rate 0


# ----------------------------------------------------------------------------------------- off the default settings
@pytest.mark.parametrize("script", SCRIPTS)
def test_many_settings_off_the_defaults_at_once(run, monkeypatch, script):
    updates, step = [], common.Run.optimizer_step
    monkeypatch.setattr(common.Run, "optimizer_step", lambda *given: updates.append(1) or step(*given))
    result = run(script, temperature=0.7, beta=0.001, entropy_coef=1e-4, num_iterations=2, aggregation="constant",
                 mask_truncated_completions=True, dynamic_sampling=True, importance_sampling_level="sequence",
                 epsilon=1e-5, microbatch_tokens=64, rollout_batch_size=5, top_p=0.9, eval_temperature=0.6)
    assert result.code == 0, result.err
    assert_finite("run")
    assert len(updates) == 8  # 2 steps, 2 epochs, 2 minibatches
    first, second = rows("run")
    assert first["kl"] > 0 and second["kl"] > 0  # away from where it started
    assert first["clip_low"] + first["clip_high"] > 0  # so narrow a range clips from the second update on


@pytest.mark.parametrize("script", SCRIPTS)
def test_one_update_a_rollout_is_on_policy(run, script):
    run(script, minibatch_size=16, beta=0.001)
    first, second = rows("run")
    assert [row[key] for row in (first, second) for key in ("clip_low", "clip_high")] == [0, 0, 0, 0]
    assert first["grad_norm"] > 0
    assert abs(first["kl"]) < 1e-9 < second["kl"]  # the reference is the policy before the first update


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_rollout_whose_completions_are_all_cut_off_and_masked_changes_nothing(run, script):
    result = run(script, max_completion_length=3, mask_truncated_completions=True, max_steps=1)
    assert result.code == 0, result.err
    assert_finite("run")
    assert rows("run")[0]["truncated"] == 1 and rows("run")[0]["length"] == 3 and rows("run")[0]["grad_norm"] == 0


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_policy_that_solves_nothing_still_runs(run, script):
    result = run(script, sft_steps=0)
    assert result.code == 0, result.err
    assert_finite("run")
    assert [row["all_wrong"] for row in rows("run")] == [1, 1]


def test_entropy_bonus_alone_gives_a_gradient(run):
    for folder, coefficient in (("without", 0), ("with", 1e-4)):  # nothing is solved: no other term is left
        run("grpo", sft_steps=0, output_dir=folder, entropy_coef=coefficient, max_steps=1)
    assert rows("without")[0]["grad_norm"] == 0 < rows("with")[0]["grad_norm"]


def test_a_lower_temperature_lowers_the_entropy_of_the_rollout(run):
    for folder, temperature in (("one", 1.0), ("lower", 0.7)):
        run("grpo", output_dir=folder, temperature=temperature, max_steps=1)
    assert rows("lower")[0]["entropy"] < rows("one")[0]["entropy"]
    # the evaluation has a temperature of its own
    assert rows("lower", "eval")[0] == rows("one", "eval")[0]


def test_constant_aggregation_divides_by_max_completion_length(run):
    for length in (40, 80):
        run("grpo", output_dir=str(length), aggregation="constant", max_completion_length=length, max_steps=1,
            minibatch_size=16)
    shorter, longer = rows("40")[0], rows("80")[0]
    assert shorter["truncated"] == 0 and shorter["reward"] == longer["reward"]  # the same rollout
    assert shorter["grad_norm"] == pytest.approx(2 * longer["grad_norm"], rel=1e-4) and longer["grad_norm"] > 0


def test_numbers_of_several_sizes(run, monkeypatch):
    sizes, roll_out = [], common.roll_out

    def spy(sampler, problems, *given, **named):
        sizes.extend(len(problem.gold.split(":")[0].split()) for problem in problems)
        return roll_out(sampler, problems, *given, **named)

    monkeypatch.setattr(common, "roll_out", spy)
    assert run("grpo", numbers="2,3,4", sft_steps=2, prompts_per_step=16, eval_problems=6).code == 0
    assert set(sizes) == {2, 3, 4} and sizes[:6] == [2, 3, 4, 2, 3, 4]  # the first six are the held-out ones


# ------------------------------------------------------------------------------- other policies, sets and protocols
CHAT = ("{% for message in messages %}{{ message['content'] }}{% endfor %}"
        "{% if add_generation_prompt %}<think>{% endif %}")

@pytest.fixture
def chat_policy(cache_dir, tmp_path):
    """A folder with the warmed-up tiny policy and a chat template, as an instruction-tuned model has one."""
    config = common.Config(numbers=str(SMALL["numbers"]), sft_steps=SMALL["sft_steps"], cache_dir=str(cache_dir))
    policy, tokenizer = common.load_policy(config, torch.device("cpu"))
    tokenizer.chat_template = CHAT
    common.save_beside(tmp_path / "chat", policy, tokenizer)
    return "chat"

def write_sums(path, count):
    rows = [{"question": f"{i % 9 + 1} {i // 9 + 1} : ", "gold": i % 9 + 1 + i // 9 + 1} for i in range(count)]
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)

@pytest.mark.parametrize("script", SCRIPTS)
def test_a_local_model_and_a_local_data_set(run, chat_policy, monkeypatch, script):
    """The defaults become those of large models; the prompt goes through the chat template; numbers are verified."""
    monkeypatch.setattr(common, "load_problems", real_load_problems)
    result = run(script, model=chat_policy, dataset=write_sums("sums.jsonl", 20), verifier="number", max_steps=1,
                 system_prompt="none", prompt_column="question", answer_column="gold", max_completion_length=16)
    assert result.code == 0, result.err
    config = json.loads(Path("run/config.json").read_text())
    assert config["learning_rate"] == 1e-6 and config["gradient_checkpointing"]
    assert "memory a rank: 0.0 GB weights, gradients and Adam; " in result.out
    assert " GB activations of 16384 tokens" in result.out
    row, = rows("run")
    assert row["length"] <= 16 and 0 < row["unparsed"] < 1 and row["mismatch"] < 1e-4
    assert json.loads(Path("run/samples.jsonl").read_text().splitlines()[0])["text"].startswith("<think>") is False

def test_evaluating_several_sets_by_a_protocol(run, chat_policy, monkeypatch):
    """--max_steps 0 trains nothing; the set's name stands before each metric; the table holds what the JSON holds."""
    monkeypatch.setattr(common, "load_problems", real_load_problems)
    sums, seen, roll_out = write_sums("sums.jsonl", 6), [], common.roll_out

    def spy(sampler, problems, size, temperature, length, top_p=1.0):
        seen.append((len(problems), size, temperature, top_p))
        return roll_out(sampler, problems, size, temperature, length, top_p)

    monkeypatch.setattr(common, "roll_out", spy)
    result = run("grpo", model=chat_policy, eval_dataset=f"countdown,{sums}", verifier="number", max_steps=0,
                 prompt_column="question", answer_column="gold", eval_protocol="000", eval_samples=3,
                 eval_max_completion_length=16)
    assert result.code == 0, result.err
    assert seen == [(4, 3, 0.6, 0.95), (4, 1, 0.0, 1.0)] * 2  # a flag wins over the protocol
    row, = rows("run", "eval")
    for name in ("countdown", sums):
        assert {f"{name}/pass@1", f"{name}/pass@2", f"{name}/pass@3", f"{name}/greedy"} <= row.keys()
    for key in (f"{sums}/pass@1", "countdown/token_entropy"):
        assert re.search(rf"^{re.escape(key)} +{row[key]:.3f}$", result.out, re.M)

def test_gradient_checkpointing_changes_nothing_but_memory(run):
    for flag in (False, True):
        assert run("grpo", gradient_checkpointing=flag, output_dir=str(flag)).code == 0
    for plain, checkpointed in zip(rows("False"), rows("True")):
        for key in ("reward", "entropy", "grad_norm", "clip_low"):
            assert plain[key] == pytest.approx(checkpointed[key], rel=1e-5)
    assert rows("True")[0]["grad_norm"] > 0

@pytest.mark.parametrize("script", SCRIPTS)
def test_truncated_importance_weights(run, monkeypatch, script):
    """Of `generate` they are 1; of a sampler whose log-probs are 0.1 too low, e^0.1 each, cut at the cap."""
    run(script, max_steps=1, minibatch_size=16, output_dir="off")
    run(script, max_steps=1, minibatch_size=16, vllm_importance_sampling_cap=2, output_dir="on")
    true = common.sampled_logprobs
    monkeypatch.setattr(common, "sampled_logprobs", lambda *given: true(*given) - 0.1)
    run(script, max_steps=1, minibatch_size=16, vllm_importance_sampling_cap=2, output_dir="low")
    run(script, max_steps=1, minibatch_size=16, vllm_importance_sampling_cap=1.05, output_dir="cut")
    norms = [rows(name)[0]["grad_norm"] for name in ("off", "on", "low", "cut")]
    assert norms[0] > 0
    assert [norm / norms[0] for norm in norms] == pytest.approx([1, 1, math.exp(0.1), 1.05], rel=1e-3)
    assert rows("low")[0]["mismatch"] == pytest.approx(0.1, rel=1e-3)

def test_out_of_memory_names_the_flags(run, monkeypatch):
    def too_much(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    run("grpo", max_steps=0, output_dir="base")
    monkeypatch.setattr(common, "frozen_logprobs", too_much)
    result = run("grpo")
    assert refused(result, "grpo", "out of memory")
    assert "--microbatch_tokens" in result.err and "--gradient_checkpointing" in result.err

# ---------------------------------------------------------------------------------------------------- wrong input
@pytest.fixture
def no_model(bare, monkeypatch, tmp_path):
    """Like `bare`, with the small flags and an empty cache; building or loading a policy fails the test."""
    def built(*_, **__):
        raise AssertionError("a policy was built")
    monkeypatch.setattr(common, "build_tiny", built)
    return lambda script, *given: bare(script, *arguments(**SMALL, cache_dir=tmp_path / "no cache"), *given)


WRONG = [  # what is typed, what the message has to mention
    ("--bogus", "--bogus"), ("--bogus 3", "--bogus"), ("--max_step 3", "--max_step"), ("stray", "stray"),
    ("--variant nope", "nope"), ("--dataset nope", "nope"), ("--aggregation mean", "mean"),
    ("--eval_dataset math500,nope", "nope"), ("--eval_dataset ,", "no data set"), ("--eval_protocol 005", "005"),
    ("--system_prompt nope", "nope"),
    ("--verifier nope", "nope"), ("--engine tgi", "tgi"), ("--vllm_tensor_parallel_size 2", "tensor_parallel_size"),
    ("--importance_sampling_level batch", "batch"), ("--report_to nowhere", "nowhere"),
    ("--num_generations 1", "--num_generations"), ("--num_generations 0", "--num_generations"),
    ("--minibatch_size 3", "--minibatch_size"), ("--minibatch_size 32", "--minibatch_size"),
    ("--minibatch_size 0", "--minibatch_size"), ("--prompts_per_step 0", "--prompts_per_step"),
    ("--temperature 0", "--temperature"), ("--eval_temperature 0", "--eval_temperature"),
    ("--epsilon 0", "--epsilon"), ("--epsilon_high 0", "--epsilon_high"), ("--max_grad_norm 0", "--max_grad_norm"),
    ("--num_iterations 0", "--num_iterations"), ("--microbatch_tokens 0", "--microbatch_tokens"),
    ("--rollout_batch_size 0", "--rollout_batch_size"), ("--max_completion_length 0", "--max_completion_length"),
    ("--eval_steps 0", "--eval_steps"), ("--save_steps 0", "--save_steps"), ("--eval_samples 0", "--eval_samples"),
    ("--eval_problems 0", "--eval_problems"), ("--top_p 0", "--top_p"), ("--top_p 1.5", "--top_p"),
    ("--max_steps ten", "--max_steps"), ("--max_steps 1.5", "--max_steps"), ("--max_steps", "--max_steps"),
    ("--learning_rate fast", "--learning_rate"), ("--mask_truncated_completions perhaps", "perhaps"),
    ("--numbers 5", "--numbers"), ("--numbers 3,", "--numbers"), ("--numbers three", "--numbers"),
    ("--numbers 2;3", "--numbers"), (f"--seed {2**64}", "--seed"),
]
WRONG = [(SCRIPTS[0], *case) for case in WRONG] + [(script, *case) for script in SCRIPTS[1:] for case in WRONG[:10]]


@pytest.mark.parametrize("script, typed, mentioned", WRONG)
def test_wrong_flags_and_values_are_refused_in_one_line(no_model, script, typed, mentioned):
    assert refused(no_model(script, *typed.split()), script, mentioned)
    assert not Path("runs").exists()  # nothing was begun


@pytest.mark.parametrize("script", SCRIPTS)
def test_no_number_may_be_negative_infinite_or_nan(no_model, script):
    """Over the fields of Config, so that a new flag is covered too; all of them once, then what a script adds."""
    shared = {field.name for field in fields(common.Config)} if script != SCRIPTS[0] else set()
    flags = [(field.name, "float" in str(field.type)) for field in fields(importlib.import_module(script).Config)
             if re.search("int|float", str(field.type)) and "Literal" not in str(field.type)
             and (field.name not in shared or field.name in ("learning_rate", "max_steps"))]
    assert {("learning_rate", True), ("max_steps", False)} <= set(flags)
    for name, is_float in flags:
        for value in ("-1", "nan", "inf") if is_float else ("-1",):
            assert refused(no_model(script, f"--{name}={value}"), script, f"--{name}")


def test_a_model_that_does_not_exist(no_model):
    assert refused(no_model("grpo", "--model", "nobody/no-such-model"), "grpo", "--model nobody/no-such-model")
    Path("empty").mkdir()
    assert refused(no_model("grpo", "--model", "empty"), "grpo", "--model empty")


@pytest.mark.parametrize("script", SCRIPTS)
def test_output_dir_that_cannot_be_made(no_model, script):
    Path("file").write_text("not a folder")
    for path in ("file", "file/below", *(["/proc/x"] if Path("/proc").exists() else [])):
        assert refused(no_model(script, "--output_dir", path), script, path)
    assert Path("file").read_text() == "not a folder"


@pytest.mark.parametrize("max_steps", [1, 0])  # one that only evaluated is a run, too
def test_output_dir_that_holds_another_run_is_left_alone(run, monkeypatch, max_steps):
    run("grpo", max_steps=max_steps)
    before = {path: path.stat().st_mtime_ns for path in Path("run").rglob("*")}

    def load(*_):
        raise AssertionError("a policy was loaded")

    monkeypatch.setattr(common, "load_policy", load)
    assert refused(run("grpo", max_steps=max_steps, seed=1), "grpo", "--output_dir run")
    assert {path: path.stat().st_mtime_ns for path in Path("run").rglob("*")} == before


def test_two_runs_begun_in_the_same_second_do_not_share_a_folder(run, monkeypatch):
    monkeypatch.setattr("time.strftime", lambda *_: "now")
    _, second = (run("grpo", output_dir="", max_steps=0, seed=seed) for seed in (0, 1))
    folders = list(Path("runs").iterdir())
    assert [steps(folder, "eval") for folder in folders] == [[0]] * len(folders)
    assert len(folders) == 2 or refused(second, "grpo")


def test_resume_from_a_folder_without_a_checkpoint(no_model):
    Path("empty").mkdir()
    for path in ("empty", "missing"):
        assert refused(no_model("grpo", "--resume_from_checkpoint", path), "grpo", "--resume_from_checkpoint", path)


def test_resume_of_a_run_whose_config_is_not_readable(run, no_model):
    for text in ("{", '{"no_such_flag": 1}', '{"seed": "many"}'):
        Path("run/checkpoint-1").mkdir(parents=True, exist_ok=True)
        Path("run/checkpoint-1/state.pt").touch()
        Path("run/config.json").write_text(text)
        assert refused(no_model("grpo", "--resume_from_checkpoint", "run"), "grpo")
        assert Path("run/config.json").read_text() == text


@pytest.mark.skipif(len(SCRIPTS) < 2, reason="needs two scripts")
def test_resume_of_another_script_s_run(run, resume):
    run(SCRIPTS[0], max_steps=1)
    before = Path("run/config.json").read_text()
    result = resume(SCRIPTS[1], "run", max_steps=2)
    assert refused(result, SCRIPTS[1]) and "unpack" not in result.err  # that would not tell a user anything
    assert Path("run/config.json").read_text() == before and steps("run") == [1]


@pytest.mark.parametrize("script", SCRIPTS)
def test_report_to_wandb_without_wandb(no_model, monkeypatch, script):
    monkeypatch.setitem(sys.modules, "wandb", None)  # what `import wandb` then raises is an ImportError
    assert refused(no_model(script, "--report_to", "wandb"), script, "wandb")


def test_report_to_tensorboard_without_tensorboard(no_model, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    assert refused(no_model("grpo", "--report_to", "tensorboard"), "grpo", "tensorboard")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk(run):
    Path("run").mkdir()
    Path("run", ".config.json").symlink_to("/dev/full")  # opens, and then writing fails as on a full disk
    assert refused(run("grpo"), "grpo", "No space left on device")


def test_a_checkpoint_that_cannot_be_written(run):
    """By a limit on the size of files: as on a full disk it is the writers of weights that fail, not Python's own."""
    resource = pytest.importorskip("resource")
    assert run("grpo", max_steps=0).code == 0  # so that the warm-up does not meet the limit
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, before[1]))
    try:
        result = run("grpo", output_dir="limited")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert refused(result, "grpo", "too large")
    assert steps("limited") == [1] and not list(Path("limited").glob("checkpoint-*"))  # nor a part of one


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_explains_every_flag(bare, script):
    result = bare(script, "--help")
    assert result.code == 0 and not result.err
    entries = re.split(r"^  (?=-)", result.out.partition("options:")[2], flags=re.M)
    explained = {}
    for entry in entries:  # "--flag FLAG, --other FLAG", then the text, on the same line or on the next
        flag, _, text = entry.replace("\n", "  ").partition("   ")
        explained[flag.split()[0] if flag.split() else ""] = re.sub(r"\(default: .*?\)", "", text).strip()
    for field in fields(importlib.import_module(script).Config):
        assert len(explained[f"--{field.name}"]) > 5, f"--{field.name}: {explained[f'--{field.name}']!r}"
    for variant in importlib.import_module(script).VARIANTS:
        assert variant in result.out


@pytest.mark.parametrize("script", ["grpo", "agrae"])
@pytest.mark.parametrize("flags, passed", [
    (dict(minibatch_size=16), 0), (dict(minibatch_size=4), 12), (dict(minibatch_size=8, num_iterations=2), 8)])
def test_no_pass_where_the_old_policy_is_the_current_one(run, monkeypatch, script, flags, passed):
    """As until the first update: its minibatch's old log-probs are those that the update computes anyway."""
    done, frozen_logprobs = [], common.frozen_logprobs
    monkeypatch.setattr(common, "evaluate", lambda *_: {"pass@1": 0.0})

    def counted(policy, samples, config, rows):
        done.extend(rows)
        return frozen_logprobs(policy, samples, config, rows)
    monkeypatch.setattr(common, "frozen_logprobs", counted)
    run(script, max_steps=1, microbatch_tokens=100, **flags)
    assert len(done) == len(set(done)) == passed
    assert json.loads(Path("run/metrics.jsonl").read_text())["mismatch"] < 1e-5  # each has its log-probs all the same


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("flags, code", [(["--help"], 0), (["--nothing"], 2), (["--max_steps", "-1"], 2)])
def test_flags_are_read_before_torch_is_imported(script, flags, code):
    """Importing it takes seconds, for which nobody wants to wait to see a typing error."""
    program = "import runpy, sys; sys.modules.update(torch=None, transformers=None, numpy=None); " \
              "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    command = [sys.executable, "-c", program, f"{script}.py", *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == code and len(done.stderr.splitlines()) == (code > 0), done.stderr


# --------------------------------------------------------------------------------------------------- the cache
def test_the_tiny_policy_is_warmed_up_once(run):
    for sft_steps, warms_up in ((2, True), (2, False), (1, True), (2, False)):
        result = run("grpo", cache_dir="cache", sft_steps=sft_steps, output_dir=f"run{len(os.listdir())}", max_steps=0)
        assert result.code == 0 and ("warming up" in result.err) == warms_up
    assert len(list(Path("cache").iterdir())) == 2


def test_what_a_killed_warm_up_leaves_behind_is_not_taken_for_the_policy(run, monkeypatch):
    save = transformers.PreTrainedTokenizerFast.save_pretrained

    def save_and_copy(self, *given, **named):  # the copy is what SIGKILL here would leave on the disk
        saved = save(self, *given, **named)
        if not Path("killed").exists():
            shutil.copytree("cache", "killed")
        return saved

    monkeypatch.setattr(transformers.PreTrainedTokenizerFast, "save_pretrained", save_and_copy)
    run("grpo", cache_dir="cache", sft_steps=1, max_steps=0)
    assert [path for path in Path("killed").rglob("*") if path.is_file()]  # the weights, for one
    result = run("grpo", cache_dir="killed", sft_steps=1, max_steps=0, output_dir="second")
    assert result.code == 0 and "warming up" in result.err
    assert rows("run", "eval") == rows("second", "eval")


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
    assert rows("killed") == rows("run") and "metrics 2/2" in result.out and "metrics 1/2" not in result.out


# -------------------------------------------------------------------------------------------------- processes
@pytest.mark.parametrize("script, number", [(SCRIPTS[0], signal.SIGINT), (SCRIPTS[-1], signal.SIGTERM)])
def test_a_signal_ends_the_run_with_a_checkpoint_that_resumes(resume, cache_dir, tmp_path, script, number):
    flags = arguments(**SMALL | dict(max_steps=10**6, eval_steps=10**6, save_steps=10**6), cache_dir=cache_dir)
    process = subprocess.Popen([sys.executable, ROOT / f"{script}.py", *flags, "--output_dir", "run"], cwd=tmp_path,
                               env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        for line in process.stdout:
            if line.startswith("metrics 1/"):
                break
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0 and "Traceback" not in err, err
    checkpoint, = Path("run").glob("checkpoint-*")
    assert str(checkpoint) in out
    last = int(checkpoint.name.split("-")[1])
    assert steps("run") == list(range(1, last + 1))
    result = resume(script, "run", max_steps=last + 2)
    assert result.code == 0, result.err
    assert steps("run") == list(range(1, last + 3)) and steps("run", "eval") == [0, last + 2]


@pytest.mark.parametrize("seconds, code, last", [(0, 0, 1), (3, 130, 0)])
def test_a_second_ctrl_c(run, monkeypatch, seconds, code, last):
    """At once it is the launcher's, which passes it on to the ranks; later it is the user's, who wants to quit."""
    log, monotonic = common.Run.log, time.monotonic

    def log_and_signal(self, name, *given):
        log(self, name, *given)
        if name == "metrics":
            os.kill(os.getpid(), signal.SIGINT)
            monkeypatch.setattr(time, "monotonic", lambda: monotonic() + seconds)
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(common.Run, "log", log_and_signal)
    result = run("grpo", max_steps=5, save_steps=100)
    assert result.code == code and steps("run") == [1] and "Traceback" not in result.err
    assert Path("run/checkpoint-1").exists() == bool(last)


def test_two_ranks(cache_dir, tmp_path):
    done, _ = in_processes(tmp_path, cache_dir, 2, eval_steps=2, save_steps=2)
    assert done.returncode == 0, done.stderr
    lines = [line.split(" | ")[0] for line in done.stdout.splitlines() if line.startswith(("metrics ", "eval "))]
    assert lines == ["eval 0/2", "metrics 1/2", "metrics 2/2", "eval 2/2"] * len(SCRIPTS)
    folders = {path.name.split("-")[0]: path for path in (tmp_path / "runs").iterdir()}
    assert len(list((tmp_path / "runs").iterdir())) == len(folders) == len(SCRIPTS)  # one, which both ranks share
    for folder in folders.values():
        assert_finite(folder)
        assert steps(folder) == [1, 2] and steps(folder, "eval") == [0, 2]
        assert 16 * rows(folder)[0]["reward"] % 1 == 0  # a share of all 16 completions, those of both ranks
        assert weights(folder / "checkpoint-2")
    ended = re.findall(r"process group ended by (\d)", done.stdout)
    assert sorted(ended) == ["0"] * len(SCRIPTS) + ["1"] * len(SCRIPTS)


def test_ranks_that_do_not_divide_the_batch(no_model, monkeypatch):
    monkeypatch.setattr(tasks, "WORLD_SIZE", 3)
    assert refused(no_model("grpo"), "grpo", "3 ranks")


# --------------------------------------------------------------------------------------------------- report_to
def test_report_to_wandb_starts_a_run_that_follows_the_writer(run, monkeypatch):
    """With stand-ins for both packages, so that it needs neither."""
    started, written = [], []
    writer = SimpleNamespace(add_scalar=lambda *given: written.append(given))
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda **given: started.append(given)))
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", SimpleNamespace(SummaryWriter=lambda *_, **__: writer))
    assert run("grpo", report_to="wandb", seed=7).code == 0
    assert len(started) == 1 and started[0]["config"]["seed"] == 7 and started[0]["sync_tensorboard"]
    expected = [(f"{name}/{key}", value, row["step"]) for name in ("metrics", "eval")
                for row in rows("run", name, timed=True) for key, value in row.items() if key != "step"]
    assert sorted(written) == sorted(expected)


def test_report_to_tensorboard_writes_an_event_file(run):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    assert run("grpo", report_to="tensorboard").code == 0
    events = EventAccumulator("run").Reload()
    for name in ("metrics", "eval"):
        for key in rows("run", name)[0].keys() - {"step"}:
            found = [(event.step, event.value) for event in events.Scalars(f"{name}/{key}")]
            assert found == [(row["step"], pytest.approx(row[key], rel=1e-6)) for row in rows("run", name)]
