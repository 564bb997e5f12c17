"""studies/verdicts.py: the rule, the rows, how runs become verdicts, and what the page says."""

import gzip
import importlib
import itertools
import json
import math
import sys

import project

import rlvr.flags

import numpy as np
import pytest
import verdicts_judge
import verdicts_report
import verdicts_rows
import verdicts_rule
import verdicts_runs
from runs import first_fast, run_study
from verdicts_rows import BASES, ROWS, RUNS, STATIC_WEIGHTS, Row, runs_of
from verdicts_rule import LOOKS, Evidence
from verdicts_runs import FULL, Job

# ------------------------------------------------------------------------------ the rule


@pytest.mark.parametrize(
    "probability, freedom, printed",  # of the tables of Student's t
    [
        (0.975, 1, 12.706),
        (0.975, 2, 4.303),
        (0.975, 3, 3.182),
        (0.95, 7, 1.895),
        (0.999, 10, 4.144),
        (0.9995, 15, 4.073),
        (0.975, 30, 2.042),
    ],
)
def test_students_t(probability, freedom, printed):
    assert verdicts_rule.quantile(probability, freedom) == pytest.approx(printed, abs=6e-4)
    assert verdicts_rule.below(printed, freedom) == pytest.approx(probability, abs=1e-4)
    assert verdicts_rule.below(-printed, freedom) == pytest.approx(1 - probability, abs=1e-4)


def test_one_and_two_degrees_have_closed_forms():
    for t in (-3.0, -0.2, 0.0, 1.7):
        assert verdicts_rule.below(t, 1) == pytest.approx(0.5 + math.atan(t) / math.pi)
        assert verdicts_rule.below(t, 2) == pytest.approx(0.5 + t / (2 * math.sqrt(2 + t * t)))


def test_interval_and_p_value():
    values = np.array([1.0, 2, 3, 4, 5])  # mean 3, standard error sqrt(1/2)
    mean, low, high = verdicts_rule.interval(values)
    half = 2.776 / math.sqrt(2)
    assert (mean, low, high) == pytest.approx((3, 3 - half, 3 + half), abs=1e-3)
    # 2.776 standard errors below the mean is where the one-sided p-value is 0.025
    assert verdicts_rule.p_above(values, low) == pytest.approx(0.025)
    assert verdicts_rule.p_above(values, 3.0) == pytest.approx(0.5)
    assert verdicts_rule.p_above(np.ones(4), 0.0) == 0
    assert verdicts_rule.p_above(np.ones(4), 1.0) == 1


def test_holm():
    """By hand: 0.01 x 4, 0.02 x 3, then 0.03 x 2 = 0.06, and 0.5."""
    adjusted = verdicts_rule.holm([0.03, 0.5, 0.01, 0.02])
    assert adjusted == pytest.approx([0.06, 0.5, 0.04, 0.06])
    assert verdicts_rule.holm([0.4, 0.3]) == pytest.approx([0.6, 0.6])


def test_looks_are_paid_for():
    """The best look so far counts, times the number of looks."""
    values = np.array([1.0, 1.1, 0.9, 1.05, -3.0, 4.0, -2.0, 3.0])
    evidence = verdicts_rule.weigh(values, 0.5)
    assert evidence.seeds == 8
    assert evidence.p_holds == pytest.approx(len(LOOKS) * verdicts_rule.p_above(values[:4], 0))
    assert evidence.mean == pytest.approx(values.mean())
    # the seeds between two looks are not looked at
    assert verdicts_rule.weigh(values[:7], 0.5) == verdicts_rule.weigh(values[:4], 0.5)
    assert verdicts_rule.weigh(values[:3], 0.5) is None


def evidence_of(mean, spread=0.001, effect=0.02):
    noise = np.array([1, -1] * (LOOKS[-1] // 2)) * spread
    return verdicts_rule.weigh(mean + noise, effect)


def test_the_three_verdicts():
    holds, small, opposite = evidence_of(0.03), evidence_of(0.0), evidence_of(-0.03)
    between, noisy = evidence_of(0.01), evidence_of(0.01, spread=0.2)
    family = [holds, small, opposite, between, noisy, None]
    assert verdicts_rule.decide(family) == [
        "holds",
        "does not",  # it is above 0 for nobody to see, and below the effect for sure
        "does not",
        "holds",  # less than the paper's, but above 0
        "unclear",
        "open",
    ]


def test_other_claims_of_the_paper_make_a_verdict_harder():
    border = Evidence(8, 0.02, 0.01, 0.03, p_holds=0.02, p_fails=1.0, spread=0.01)
    assert verdicts_rule.decide([border]) == ["holds"]
    assert verdicts_rule.decide([border, None]) == ["unclear", "open"]


@pytest.mark.slow
def test_wrong_decisions_are_as_rare_as_the_rule_says():
    """1000 papers of three claims whose true differences are 0 and the effect, by simulation."""
    rng = np.random.default_rng(0)
    wrong = 0
    for _ in range(1000):
        draws = rng.standard_normal((3, LOOKS[-1]))
        family = [verdicts_rule.weigh(draws[0], 1.0), verdicts_rule.weigh(draws[1], 1.0)]
        family.append(verdicts_rule.weigh(draws[2] + 1.0, 1.0))
        first, second, third = verdicts_rule.decide(family)
        wrong += "holds" in (first, second) or third == "does not"
    assert wrong / 1000 < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 1000)


def test_power_is_that_of_the_normal_limit():
    """With very many seeds: Phi(effect sqrt(n) / spread - z), where z = 2.576 at 0.005."""
    seeds, spread = 3000, 1.0
    rows = verdicts_rule.LEVEL / (2 * len(LOOKS) * 0.005)
    found = verdicts_rule.power(2.576 / math.sqrt(seeds), spread, rows, seeds)
    assert found == pytest.approx(0.5, abs=0.015)
    assert verdicts_rule.power(0.02, 0.0, 10) == 1


# ------------------------------------------------------------------------------ the rows


def test_every_row_can_be_tried():
    texts = [(row.paper, row.text) for row in ROWS]
    assert len({*texts}) == len(texts)
    for row in ROWS:
        assert row.paper in verdicts_rows.FAR
        assert row.effect > 0
        assert {*runs_of(row)} <= {*RUNS["middle"]}
    used = {name for row in ROWS for name in runs_of(row)}
    assert used == {*RUNS["middle"]}


def test_papers_md_counts_the_rows():
    places = sum(len(verdicts_rows.rows_from(base)) for base in BASES)
    text = (project.ROOT / "docs" / "papers.md").read_text()
    assert f"tries {len(ROWS)} claims in {places} places" in text


def test_ten_headlines():
    for paper in verdicts_rows.PAPERS:
        assert sum(row.headline for row in ROWS if row.paper == paper) == 2


def test_asymgrpo_is_compared_by_tokens_alone():
    """The paper has aggregation over tokens in all settings."""
    for row in ROWS:
        if row.paper == "AsymGRPO":
            for command in (RUNS["middle"][name] for name in runs_of(row)):
                assert command.startswith(("asymgrpo", "entropy_growth")) or "token" in command


@pytest.mark.parametrize(
    "base, name", first_fast([(base, name) for base in BASES for name in RUNS[base]])
)
def test_commands_of_the_runs_are_taken(base, name, monkeypatch):
    script, *given = verdicts_runs.command_of(Job(base, name, 3), FULL).split()
    module = importlib.import_module(script)
    monkeypatch.setattr(sys, "argv", [f"{script}.py", *given])
    config = rlvr.flags.parse_flags(module.Config, module.VARIANTS)
    assert (config.base, config.seed) == (base, 3)
    assert config.max_steps == FULL.steps_of(name)


# ------------------------------------------------------------------- from runs to verdicts


def line(number, rewards=()):
    numbers = {key: number for key in {row.metric for row in ROWS} | {"pass@4", "delta"}}
    return {"numbers": numbers, "rewards": [*rewards]}


def lines_of(base="middle", **runs):
    return {
        Job(base, name.replace("_", " "), seed): line(number)
        for name, numbers in runs.items()
        for seed, number in enumerate(numbers)
    }


def a_row(metric="pass@1", above="A-GRAE", below="GRPO"):
    return Row("A-GRAE", "5.3", "text", metric, above, below, 0.02, True, "", False)


def test_differences_are_of_the_seeds_that_both_have():
    lines = lines_of(GRPO=[1, 2, 3, 4], **{"A-GRAE": [2, 4, 6]})
    assert verdicts_judge.differences(lines, "middle", a_row()).tolist() == [1, 2, 3]
    assert verdicts_judge.differences(lines, "middle", a_row(below=0.5)).tolist() == [1.5, 3.5, 5.5]
    assert verdicts_judge.differences(lines, "weak", a_row()).tolist() == []


def test_the_best_static_weight_is_chosen_on_the_other_seeds():
    """`mean` is best by seed 0 alone, so seed 0 is compared with the best of the others."""
    values = {"mean": [9, 0, 0], "delta 0.5": [2, 2, 2], "Power 2": [1, 1, 1]}
    values = {name: np.array(found) for name, found in values.items()}
    assert verdicts_judge.best_static(values).tolist() == [2, 0, 0]


def test_reach_is_counted_to_a_target_of_other_seeds():
    """Ten-step means rise from 0; the target is 0.5, the other seeds' peak of the best weight."""
    flat, rising = [0.1] * 12, [0.0] * 7 + [1.0] * 5
    lines = {}
    for seed in range(2):
        for name in STATIC_WEIGHTS:
            rewards = rising if name == "mean" else flat
            lines[Job("middle", name, seed)] = line(0, rewards)
        lines[Job("middle", "FADE", seed)] = line(0, [1.0] * 12 if seed == 0 else flat)
    # means of ten steps of `mean` at steps 10, 11, 12: 0.3, 0.4, 0.5
    (row,) = (row for row in ROWS if row.metric == "reach")
    assert verdicts_judge.differences(lines, "middle", row).tolist() == [2 - 0, 2 - 3]


def test_the_first_look_is_for_all_and_the_next_for_what_is_unclear():
    jobs = verdicts_judge.next_jobs({}, BASES)
    assert {job.base for job in jobs} == {"middle"}
    assert {job.seed for job in jobs} == {*range(LOOKS[0])}
    assert [job.seed for job in jobs] == sorted(job.seed for job in jobs)
    assert {job.name for job in jobs} == {*RUNS["middle"]}
    lines = lines_without_a_difference(LOOKS[0])
    assert verdicts_judge.next_jobs(lines, BASES) == []
    # with noise in one run, its rows are unclear and get the seeds of the next look
    rng = itertools.cycle([0.5, -0.5])
    for seed in range(LOOKS[0]):
        lines[Job("middle", "GRPO-LEAD", seed)] = line(next(rng))
    jobs = verdicts_judge.next_jobs(lines, BASES)
    assert {job.name for job in jobs} == {"A-GRAE", "GRPO-LEAD"}
    assert {job.seed for job in jobs} == {*range(LOOKS[0], LOOKS[1])}


def lines_without_a_difference(seeds):
    """All runs have the same numbers: every row is surely below its effect."""
    rewards = [0.1] * 12
    return {
        Job(base, name, seed): line(0.0, rewards)
        for base in BASES
        for name in RUNS[base]
        for seed in range(seeds)
    }


# ------------------------------------------------------------------------------ the page


def test_the_page(tmp_path):
    lines = lines_without_a_difference(LOOKS[0])
    text = verdicts_report.report_text(lines)
    assert [text.splitlines()[2 + i].split(".")[0] for i in range(10)] == [*map(str, range(1, 11))]
    assert "is unclear" not in text.split("`python")[0]
    assert "| 5.3 | A-GRAE beats GRPO in pass@1 | middle | **does not** | pass@1 |" in text
    verdicts_report.write_report(lines, tmp_path)
    assert (tmp_path / "figures" / "verdicts.png").read_bytes()[:4] == b"\x89PNG"


def test_no_page_before_every_row_has_had_its_first_look(tmp_path):
    with pytest.raises(SystemExit, match=f"have less than {LOOKS[0]} seeds yet"):
        verdicts_report.write_report(lines_without_a_difference(LOOKS[0] - 1), tmp_path)
    assert not [*tmp_path.iterdir()]


def test_results_are_kept_in_order_and_once(tmp_path):
    results = tmp_path / "results" / "x.jsonl.gz"
    for seed, number in ((1, 0.1), (0, 0.2), (1, 0.3)):
        found = dict(base="weak", name="GRPO", seed=seed, numbers={"pass@1": number})
        verdicts_runs.add_result(results, found)
    lines = verdicts_runs.read_results(results)
    assert [(job.seed, found["numbers"]["pass@1"]) for job, found in lines.items()] == [
        (0, 0.2),
        (1, 0.3),
    ]
    assert [path.name for path in results.parent.iterdir()] == ["x.jsonl.gz"]


@pytest.mark.slow
def test_quick_mode(tmp_path):
    """What a finished run leaves: a line with numbers, and no checkpoint."""
    results = tmp_path / "x.jsonl.gz"
    places = ("--runs", tmp_path / "runs", "--results", results)
    done = run_study("verdicts", "run", "--quick", *places, "--processes", "1")
    assert done.returncode == 0, done.stderr
    with gzip.open(results, "rt") as opened:
        found = {line["name"]: line for line in map(json.loads, opened)}
    assert {*found} == {*verdicts_runs.QUICK.runs["weak"]}
    assert {"pass@1", "cool pass@1", "entropy", "slope", "fit error"} <= {*found["GRPO"]["numbers"]}
    assert "top 1% share" in found["CW-GRPO"]["numbers"]
    assert len(found["GRPO"]["rewards"]) == verdicts_runs.QUICK.steps
    assert not [*(tmp_path / "runs").rglob("checkpoint-*")]
