"""studies/claims.py: the rule, and how runs become verdicts, by hand-computed numbers."""

import importlib
import math
import sys
from dataclasses import replace

import project

import rlvr.flags.command_line

import claims
import claims_judge
import claims_mine
import claims_rule
import numpy as np
import pytest
from claims_rows import (
    BASES,
    BEST_STATIC,
    GROWTH,
    ROWS,
    RUNS,
    START,
    STATIC_WEIGHTS,
    TINY,
    Job,
    Row,
    runs_of,
)
from claims_rule import LOOKS, Evidence
from run_scripts import add_result, read_results
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


def test_what_is_measured_of_a_training():
    """Of 12 steps a third has 4, and the entropy's means of 8 steps go from 1 to 8.5."""
    rewards = [1.0] * 4 + [0.0] * 4 + [2.0] * 4
    rows = [
        {"reward": reward, "all_wrong": step / 10, "entropy": float(step), "delta": 0.75}
        for step, reward in enumerate(rewards, 1)
    ]
    expected = {"early": 1.0, "late": 2.0, "all_wrong": 1.05, "swing": 7.5}
    expected |= {"delta": 0.75, "1 - delta": 0.25}
    assert claims_judge.measure_training(rows) == pytest.approx(expected)


def lines_of(base="middle", **runs):
    """A line of each seed, whose numbers are all the one that is given."""
    return {
        Job(base, name.replace("_", " "), seed): {"numbers": {"pass@1": number}, "rewards": []}
        for name, numbers in runs.items()
        for seed, number in enumerate(numbers)
    }


def a_row(above="A-GRAE", below="GRPO"):
    return Row("A-GRAE", "5.3", "text", "pass@1", above, below, 0.02, True, "", False)


def test_differences_are_of_the_seeds_that_both_have():
    lines = lines_of(GRPO=[1, 2, 3, 4], **{"A-GRAE": [2, 4, 6]})
    assert claims_judge.differences(lines, "middle", a_row()).tolist() == [1, 2, 3]
    assert claims_judge.differences(lines, "middle", a_row(below=0.5)).tolist() == [1.5, 3.5, 5.5]


def test_the_best_static_weight_is_chosen_on_the_other_seeds():
    """`mean` is best by seed 0 alone, so seed 0 is compared with the best of the others."""
    values = {"mean": [9, 0, 0], "delta 0.5": [2, 2, 2], "Power 2": [1, 1, 1]}
    values = {name: np.array(found) for name, found in values.items()}
    assert claims_judge.best_static(values).tolist() == [2, 0, 0]


def test_a_look_is_not_changed_by_later_seeds():
    """Over four seeds `mean` is the best static weight, over all eight it is delta 0.5."""
    lines = lines_of(FADE=[1] * 8, mean=[3] * 4 + [0] * 4, Power_2=[0] * 8)
    lines |= lines_of(**{"delta 0.5": [2] * 8})
    row = a_row(above="FADE", below=BEST_STATIC)
    first, second = claims_judge.at_looks(lines, "middle", row, LOOKS)
    assert (first.tolist(), second.tolist()) == ([1 - 3] * 4, [1 - 2] * 8)


def test_reach_is_counted_to_a_target_of_other_seeds():
    """Ten-step means rise from 0; the target is 0.5, the other seeds' peak of the best weight."""
    flat, rising = [0.1] * 12, [0.0] * 7 + [1.0] * 5
    lines = {}
    for seed in range(2):
        for name in STATIC_WEIGHTS:
            lines[Job("middle", name, seed)] = {"rewards": rising if name == "mean" else flat}
        lines[Job("middle", "FADE", seed)] = {"rewards": [1.0] * 12 if seed == 0 else flat}
    (row,) = (row for row in ROWS if row.metric == "reach")
    # means of ten steps of `mean` at steps 10, 11, 12: 0.3, 0.4, 0.5
    assert claims_judge.differences(lines, "middle", row).tolist() == [2 - 0, 2 - 3]


def test_results_are_one_file_of_the_same_bytes(tmp_path):
    lines = [dict(base="weak", name="a b", seed=seed, numbers={"x": 0.5}) for seed in (1, 0)]
    for name, order in (("a", lines), ("b", lines[::-1])):
        for line in order:
            add_result(tmp_path / name, line)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert [*read_results(tmp_path / "a").values()] == lines[::-1]


def test_table_of_mine_by_hand():
    """Two seeds: differences of 0.1 and 0.3 have mean 0.2, s = 0.1 sqrt(2), t = 12.706."""
    grpo = claims_mine.read_script(str(ROOT / "grpo.py"))._replace(label="grpo.py")
    mine, scale = grpo._replace(label="my.py", flags="--beta 1"), claims_mine.Scale(seeds=2)
    lines = {}
    for script, values in ((grpo, (0.2, 0.4)), (mine, (0.3, 0.7))):
        for base in TINY:
            for seed, value in enumerate(values):
                when = dict.fromkeys(claims_mine.METRICS, value)
                line = dict(before=dict.fromkeys(claims_mine.METRICS, 0.1), after=when)
                lines[base, script.name_of_runs(scale), seed] = line
    found = claims_mine.table(lines, [grpo, mine], scale)
    half = 12.706 * 0.1
    cell = f"+0.200 [{0.2 - half:+.3f}, {0.2 + half:+.3f}]"
    assert found[2] == "| middle | before training | 0.100 | 0.100 | 0.100 |"
    assert found[5] == f"| middle | my.py less grpo.py | {cell} | {cell} | {cell} |"
    assert found[-1].startswith("An interval that holds 0")


@pytest.mark.parametrize(
    "given, told",
    [
        (["--mine", "none.py"], "cannot read none.py"),
        (["--mine", f"{ROOT / 'grpo.py'} --seed 1"], "--mine takes no --seed"),
        (["--mine", str(ROOT / "common.py")], "has to be a copy of grpo.py"),
        (["--mine", str(ROOT / "grpo.py")], "change a copy"),
        (["--seeds", "1"], "--seeds must be 2 or more"),
    ],
)
def test_what_cannot_be_run_is_one_line(given, told, monkeypatch):
    parser_of = dict(mine=None, against=None, seeds=None, processes=1, quick=True, runs=None)
    value = [given[1]] if given[0] == "--mine" else int(given[1])
    found = parser_of | {given[0].strip("-"): value}
    with pytest.raises(claims.UserError, match=told):
        claims.main(type("Given", (), found))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, measured", [("CW-GRPO", "cool pass@1"), (GROWTH, "growth"), (START, "pass@16")]
)
def test_a_run_becomes_a_line(name, measured, tmp_path):
    flags = "--prompts_per_step 8 --num_generations 8 --minibatch_size 16"
    plan = replace(claims.PLAN, steps=2, growth=2, held_out=2, flags=flags)
    line = claims.train(tmp_path / "run", Job("weak", name, 0), plan)
    assert math.isfinite(line["numbers"][measured])


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
