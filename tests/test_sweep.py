"""studies/sweep.py: what commands stand for, which runs are made, and the table, by hand."""

import math

import pytest
import sweep
from runs import run_study
from written_runs import evaluation, write_rows

SCALE = sweep.Scale(flags="--prompts_per_step 4 --sft_steps 3", steps=2, seeds=2)


def test_values_stand_for_a_command_each():
    assert sweep.expand("grpo") == ["grpo"]
    assert sweep.expand("asymgrpo --beta_pos 0.5|0.9 --beta_neg 0.3|0.4") == [
        "asymgrpo --beta_pos 0.5 --beta_neg 0.3",
        "asymgrpo --beta_pos 0.5 --beta_neg 0.4",
        "asymgrpo --beta_pos 0.9 --beta_neg 0.3",
        "asymgrpo --beta_pos 0.9 --beta_neg 0.4",
    ]


def test_jobs(tmp_path):
    """A seed after the other, so that what is there early can be compared."""
    jobs = sweep.list_jobs(tmp_path, ["grpo", "agrae --variant released"], SCALE)
    rest = "--prompts_per_step 4 --sft_steps 3 --seed {} --max_steps 2 --eval_steps 2"
    assert jobs == {
        tmp_path / "grpo" / "seed-0": f"grpo {rest.format(0)}",
        tmp_path
        / "agrae-variant-released"
        / "seed-0": f"agrae --variant released {rest.format(0)}",
        tmp_path / "grpo" / "seed-1": f"grpo {rest.format(1)}",
        tmp_path
        / "agrae-variant-released"
        / "seed-1": f"agrae --variant released {rest.format(1)}",
    }
    assert [*jobs][0].parent != [*jobs][1].parent


def test_table_by_hand(tmp_path):
    """Two seeds: differences 0.1 and 0.3 have mean 0.2, s = 0.1 sqrt(2), t = 12.706."""
    for command, values in {"grpo": (0.2, 0.4), "agrae": (0.3, 0.7)}.items():
        for seed, value in enumerate(values):
            folder = sweep.folder_of(tmp_path, command, seed)
            folder.mkdir(parents=True)
            write_rows(folder, "eval", [evaluation(0, 0.1), evaluation(2, value)])
    half = 12.706 * 0.1 * math.sqrt(2) / math.sqrt(2)
    cell = f"+0.200 [{0.2 - half:+.3f}, {0.2 + half:+.3f}]"
    assert sweep.table(tmp_path, ["grpo", "agrae"], 2) == [
        "| less the first | pass@1 | pass@16 | token_entropy |",
        "|---|---|---|---|",
        "| grpo | 0.300 | 0.300 | 0.300 |",
        f"| agrae | {cell} | {cell} | {cell} |",
    ]


@pytest.mark.longest
def test_quick_mode_keeps_what_is_finished(tmp_path):
    done = run_study("sweep", "grpo", "--quick", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "2/2 runs" in done.stdout
    commands = ("grpo", "agrae --variant released|grpo-lead")
    done = run_study("sweep", *commands, "--quick", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "4/4 runs" in done.stdout
    lines = done.stdout.splitlines()[-5:]
    names = [line.split(" | ")[0].strip("| ") for line in lines]
    assert names[2:] == ["grpo", "agrae --variant released", "agrae --variant grpo-lead"]
