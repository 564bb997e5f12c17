"""fade.py in a run: the schedule follows the step, and the head's change is against the start."""

import rlvr.flags.command_line
import rlvr.policy.tiny
from rlvr.baselines.statistics import rank1_statistics
from rlvr.flags.config import Config

import pytest
from runs import SMALL, rows, weights

import fade


@pytest.mark.usefixtures("no_evaluation")
def test_a_run_logs_the_schedule_of_its_step(run):
    assert run("fade", variant="log-schedule", max_steps=3, save_steps=9).code == 0
    expected = [fade.log_schedule(step, 3, 2.0, 1.917, 8500) for step in (1, 2, 3)]
    assert [row["alpha"] for row in rows("run")] == expected
    assert len({*expected}) == 3 and expected[2] == pytest.approx(1.917)


@pytest.mark.usefixtures("no_evaluation")
def test_a_run_logs_what_has_become_of_its_head(run, cache_dir):
    config = Config(
        numbers=str(SMALL["numbers"]), sft_steps=SMALL["sft_steps"], cache_dir=str(cache_dir)
    )
    start = weights(rlvr.policy.tiny.warmed_up_tiny(config))["lm_head.weight"]
    assert run("fade", beta=0.1, learning_rate=1e-3).code == 0
    before, *after = rows("run", "eval")
    assert (before["r1"], before["ratio"], before["srank"]) == (0, 1, 0)
    for row in after:
        head = weights(f"run/checkpoint-{row['step']}")["lm_head.weight"]
        expected = rank1_statistics(head - start)
        assert {key: row[key] for key in expected} == pytest.approx(expected, rel=1e-4)
        assert 0 < row["r1"] < 1
