"""studies/calculator.py, and that a policy which was taught to call gains by the calculator."""

import subprocess
import sys
from dataclasses import replace

import project

import rlvr.models
import rlvr.rollouts
import rlvr.samplers
from rlvr.config import Config

import calculator
import pytest
import torch
from runs import ENVIRONMENT, countdown_problems
from written_runs import evaluation, write_rows


def test_the_runs_and_their_table(tmp_path, monkeypatch):
    """Rows share seeds and flags; the first two share a policy, too."""
    monkeypatch.setattr(calculator.rlvr.tiny, "tiny_folder", lambda config: config.tool)
    jobs = calculator.list_jobs(tmp_path, 7, 5, "--eval_samples 4")
    rest = "--eval_samples 4 --seed 2 --max_steps 7 --eval_steps 7 --learning_rate 2e-4"
    assert len(jobs) == 9
    assert [command for job, command in jobs.items() if job.name == "seed-2"] == [
        f"grpo --model calculator --tool calculator {rest}",
        f"grpo --model calculator {rest}",
        f"grpo --sft_steps 5 {rest}",
    ]
    for number, job in enumerate(jobs, 1):
        job.mkdir(parents=True)
        write_rows(job, "eval", [evaluation(0, number / 100), evaluation(7, number / 10)])
    assert calculator.table(tmp_path) == [
        "| the policy | pass@1 before | after GRPO |",
        "|---|---|---|",
        "| taught to call, with the calculator | 0.010, 0.040, 0.070 | 0.100, 0.400, 0.700 |",
        "| taught to call, without it | 0.020, 0.050, 0.080 | 0.200, 0.500, 0.800 |",
        "| taught to compute, without it | 0.030, 0.060, 0.090 | 0.300, 0.600, 0.900 |",
    ]


@pytest.mark.longest
def test_the_quick_form(tmp_path):
    done = subprocess.run(
        [sys.executable, project.STUDIES / "calculator.py", "--quick"],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "9/9 runs" in done.stdout
    names = [line.split(" | ")[0].strip("| ") for line in done.stdout.splitlines()[-3:]]
    assert names == [*calculator.ROWS.values()]


@pytest.mark.longest
def test_a_policy_that_was_taught_to_call_gains_by_the_calculator(tmp_path):
    """pass@1 of 128 held-out problems with it and without it, by three seeds."""
    config = Config(tool="calculator", sft_steps=300, cache_dir=str(tmp_path))
    policy, tokenizer = rlvr.models.load_policy(config, torch.device("cpu"))
    problems = countdown_problems(config, tokenizer)[1]["countdown"]
    rates = {}
    for tool in ("calculator", "none"):
        sampler = rlvr.samplers.make_sampler(policy, tokenizer, replace(config, tool=tool))
        for seed in range(3):
            torch.manual_seed(seed)
            groups = rlvr.rollouts.sample_groups(sampler, problems, 4, 1.0, 48)
            successes = [sample.success for group in groups for sample in group]
            rates[tool, seed] = sum(successes) / len(successes)
    for seed in range(3):
        assert rates["calculator", seed] > 1.3 * rates["none", seed], rates
