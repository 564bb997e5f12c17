"""studies/claims.py: the rule, and how runs become verdicts, by hand-computed numbers."""

import importlib
import math
import sys

import project

import rlvr.flags.command_line

import claims
import claims_rule
import numpy as np
import pytest
from claims_rows import (
    BASES,
    ROWS,
    RUNS,
    TINY,
    Job,
    runs_of,
)
from claims_rule import LOOKS, Evidence
from runs import ROOT, run_study


@pytest.mark.parametrize(
    "probability, freedom, printed",  # of the tables of Student's t
    [(0.975, 1, 12.706), (0.975, 3, 3.182), (0.999, 10, 4.144), (0.975, 30, 2.042)],
)
def test_students_t(probability, freedom, printed):
    assert claims_rule.quantile(probability, freedom) == pytest.approx(printed, abs=6e-4)
    assert claims_rule.below(-printed, freedom) == pytest.approx(1 - probability, abs=1e-4)


def test_interval_and_p_value():
    values = np.array([1.0, 2, 3, 4, 5])  # mean 3, standard error sqrt(1/2)
    half = 2.776 / math.sqrt(2)
    assert claims_rule.interval(values) == pytest.approx((3, 3 - half, 3 + half), abs=1e-3)
    # 2.776 standard errors below the mean is where the one-sided p-value is 0.025
    assert claims_rule.p_above(values, 3 - half) == pytest.approx(0.025, abs=1e-4)
    assert claims_rule.p_above(np.ones(4), 0.0) == 0
    assert claims_rule.p_above(np.ones(4), 1.0) == 1


def test_holm():
    """By hand: 0.01 x 4, 0.02 x 3, then 0.03 x 2 = 0.06, and 0.5."""
    assert claims_rule.holm([0.03, 0.5, 0.01, 0.02]) == pytest.approx([0.06, 0.5, 0.04, 0.06])


def evidence_of(values, effect=0.02):
    at_looks = [np.asarray(values)[:look] for look in LOOKS if look <= len(values)]
    return claims_rule.weigh(at_looks, effect, LOOKS)


def test_looks_are_paid_for():
    """The best look so far counts, times the number of looks."""
    values = np.array([1.0, 1.1, 0.9, 1.05, -3.0, 4.0, -2.0, 3.0])
    evidence = evidence_of(values, 0.5)
    assert evidence.seeds == 8
    assert evidence.p_holds == pytest.approx(len(LOOKS) * claims_rule.p_above(values[:4], 0))
    assert evidence_of(values[:3]) is None


def test_the_verdicts():
    noise = np.array([1, -1] * (LOOKS[-1] // 2))
    means = {0.03: "holds", 0.0: "does not", -0.03: "does not", 0.01: "holds"}
    family = [evidence_of(mean + 0.001 * noise) for mean in means]
    family += [evidence_of(0.01 + 0.2 * noise), None]
    assert claims_rule.decide(family) == [*means.values(), "unclear", "open"]
    border = Evidence(8, 0.02, 0.01, 0.03, p_holds=0.02, p_fails=1.0)
    assert claims_rule.decide([border]) == ["holds"]
    assert claims_rule.decide([border, None]) == ["unclear", "open"]  # another row of the paper


def test_every_row_can_be_tried(monkeypatch):
    """Its runs exist, and their commands are taken by the scripts."""
    assert {name for row in ROWS for name in runs_of(row)} == {*RUNS["middle"]}
    for base in BASES:
        plan = claims.PLAN if base in TINY else claims.MODEL_PLAN
        for name in RUNS[base]:
            script, *given = claims.command_of(Job(base, name, 3), plan).split()
            module = importlib.import_module(script)
            monkeypatch.setattr(sys, "argv", [f"{script}.py", *given])
            config = rlvr.flags.command_line.parse_flags(module.Config, module.VARIANTS)
            assert (config.seed, config.max_steps) == (3, plan.steps_of(name))


@pytest.mark.slow
def test_mine_by_its_command(tmp_path):
    """Two runs of a copy against grpo.py, whose runs are kept for the next time."""
    source = (ROOT / "grpo.py").read_text()
    (tmp_path / "my.py").write_text(source.replace("(rewards - mean)", "2 * (rewards - mean)"))
    for _ in range(2):
        command = ["--mine", "my.py --beta 1", "--quick", "--processes", "1"]
        done = run_study("claims", *command, folder=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "| weak | my.py --beta 1 less grpo.py | " in done.stdout
    assert done.stdout.startswith("0 of 8 runs are missing")


@pytest.mark.slow
def test_the_page_is_what_the_results_give(tmp_path):
    """Writing it anew changes no byte."""
    page = (project.STUDIES / "CLAIMS.md").read_text()
    (tmp_path / "CLAIMS.md").write_text(page)
    claims.report(tmp_path)
    assert (tmp_path / "CLAIMS.md").read_text() == page
