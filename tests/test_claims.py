"""studies/claims.py: the rule, the rows, how runs become verdicts, and what the page says."""

import gzip
import importlib
import itertools
import json
import math
import sys
from types import SimpleNamespace

import project

import rlvr.flags
import rlvr.run
from rlvr.errors import UserError

import claims
import claims_judge
import claims_measures
import claims_report
import claims_rows
import claims_rule
import claims_runs
import claims_training
import language_model_results
import numpy as np
import pytest
from claims_rows import (
    BASES,
    BEST_STATIC,
    LANGUAGE_MODEL,
    ROWS,
    RUNS,
    STATIC_WEIGHTS,
    Row,
    runs_of,
)
from claims_rule import LOOKS, Evidence
from claims_runs import FULL, Job
from runs import first_fast, run_study
from written_runs import evaluation

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
    assert claims_rule.quantile(probability, freedom) == pytest.approx(printed, abs=6e-4)
    assert claims_rule.below(printed, freedom) == pytest.approx(probability, abs=1e-4)
    assert claims_rule.below(-printed, freedom) == pytest.approx(1 - probability, abs=1e-4)


def test_one_and_two_degrees_have_closed_forms():
    for t in (-3.0, -0.2, 0.0, 1.7):
        assert claims_rule.below(t, 1) == pytest.approx(0.5 + math.atan(t) / math.pi)
        assert claims_rule.below(t, 2) == pytest.approx(0.5 + t / (2 * math.sqrt(2 + t * t)))


def test_interval_and_p_value():
    values = np.array([1.0, 2, 3, 4, 5])  # mean 3, standard error sqrt(1/2)
    mean, low, high = claims_rule.interval(values)
    half = 2.776 / math.sqrt(2)
    assert (mean, low, high) == pytest.approx((3, 3 - half, 3 + half), abs=1e-3)
    # 2.776 standard errors below the mean is where the one-sided p-value is 0.025
    assert claims_rule.p_above(values, low) == pytest.approx(0.025)
    assert claims_rule.p_above(values, 3.0) == pytest.approx(0.5)
    assert claims_rule.p_above(np.ones(4), 0.0) == 0
    assert claims_rule.p_above(np.ones(4), 1.0) == 1


def test_holm():
    """By hand: 0.01 x 4, 0.02 x 3, then 0.03 x 2 = 0.06, and 0.5."""
    adjusted = claims_rule.holm([0.03, 0.5, 0.01, 0.02])
    assert adjusted == pytest.approx([0.06, 0.5, 0.04, 0.06])
    assert claims_rule.holm([0.4, 0.3]) == pytest.approx([0.6, 0.6])


def by_looks(values):
    """The differences at each look that so many seeds reach."""
    return [values[:look] for look in LOOKS if look <= len(values)]


def test_looks_are_paid_for():
    """The best look so far counts, times the number of looks."""
    values = np.array([1.0, 1.1, 0.9, 1.05, -3.0, 4.0, -2.0, 3.0])
    evidence = claims_rule.weigh(by_looks(values), 0.5)
    assert evidence.seeds == 8
    assert evidence.p_holds == pytest.approx(len(LOOKS) * claims_rule.p_above(values[:4], 0))
    assert evidence.mean == pytest.approx(values.mean())
    # the seeds between two looks are not looked at
    assert claims_rule.weigh(by_looks(values[:7]), 0.5) == claims_rule.weigh([values[:4]], 0.5)
    assert claims_rule.weigh(by_looks(values[:3]), 0.5) is None


def evidence_of(mean, spread=0.001, effect=0.02):
    noise = np.array([1, -1] * (LOOKS[-1] // 2)) * spread
    return claims_rule.weigh(by_looks(mean + noise), effect)


def test_the_three_verdicts():
    holds, small, opposite = evidence_of(0.03), evidence_of(0.0), evidence_of(-0.03)
    between, noisy = evidence_of(0.01), evidence_of(0.01, spread=0.2)
    family = [holds, small, opposite, between, noisy, None]
    assert claims_rule.decide(family) == [
        "holds",
        "does not",  # it is above 0 for nobody to see, and below the effect for sure
        "does not",
        "holds",  # less than the paper's, but above 0
        "unclear",
        "open",
    ]


def test_other_claims_of_the_paper_make_a_verdict_harder():
    border = Evidence(8, 0.02, 0.01, 0.03, p_holds=0.02, p_fails=1.0, spread=0.01)
    assert claims_rule.decide([border]) == ["holds"]
    assert claims_rule.decide([border, None]) == ["unclear", "open"]


@pytest.mark.slow
def test_wrong_decisions_are_as_rare_as_the_rule_says():
    """1000 papers of three claims whose true differences are 0 and the effect, by simulation."""
    rng = np.random.default_rng(0)
    wrong = 0
    for _ in range(1000):
        draws = rng.standard_normal((3, LOOKS[-1])) + [[0.0], [0.0], [1.0]]
        family = [claims_rule.weigh(by_looks(values), 1.0) for values in draws]
        first, second, third = claims_rule.decide(family)
        wrong += "holds" in (first, second) or third == "does not"
    assert wrong / 1000 < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 1000)


def test_power_is_that_of_the_normal_limit():
    """With very many seeds: Phi(effect sqrt(n) / spread - z), where z = 2.576 at 0.005."""
    seeds, spread = 3000, 1.0
    rows = claims_rule.LEVEL / (2 * len(LOOKS) * 0.005)
    found = claims_rule.power(2.576 / math.sqrt(seeds), spread, rows, (*LOOKS[:-1], seeds))
    assert found == pytest.approx(0.5, abs=0.015)
    assert claims_rule.power(0.02, 0.0, 10) == 1


# ------------------------------------------------------------------------------ the rows


def test_every_row_can_be_tried():
    texts = [(row.paper, row.text) for row in ROWS]
    assert len({*texts}) == len(texts)
    for row in ROWS:
        assert row.paper in claims_rows.FAR
        assert row.effect > 0
        assert {*runs_of(row)} <= {*RUNS["middle"]}
    used = {name for row in ROWS for name in runs_of(row)}
    assert used == {*RUNS["middle"]}


def test_papers_md_counts_the_rows():
    places = sum(len(claims_rows.rows_from(base)) for base in BASES)
    text = " ".join((project.ROOT / "docs" / "papers.md").read_text().split())
    assert f"tries {len(ROWS)} claims on Countdown" in text
    assert f"and {len(claims_rows.rows_from('weak'))} also from that of `--base weak`" in text
    assert f"which makes {places} verdicts" in text


def test_ten_headlines():
    for paper in claims_rows.PAPERS:
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
    script, *given = claims_runs.command_of(Job(base, name, 3), FULL).split()
    module = importlib.import_module(script)
    monkeypatch.setattr(sys, "argv", [f"{script}.py", *given])
    config = rlvr.flags.parse_flags(module.Config, module.VARIANTS)
    assert (config.base, config.seed) == (base, 3)
    assert config.max_steps == FULL.steps_of(name)


# ------------------------------------------------------------------ what is measured of a run


def test_what_is_measured_of_a_training():
    """Of 12 steps a third has 4, and the entropy's means of 8 steps go from 1 to 8.5."""
    rewards = [1.0] * 4 + [0.0] * 4 + [2.0] * 4
    rows = [
        {
            "step": step,
            "reward": reward,
            "all_wrong": step / 10,
            "entropy": float(step),
            "kappa": 0.5,
            "covariance_top_1%_share": 0.25,
            "success_gain_completion": reward,
            "delta": 0.75,
        }
        for step, reward in enumerate(rewards, 1)
    ]
    assert claims_measures.measure_training(rows) == pytest.approx(
        {
            "early": 1.0,
            "late": 2.0,
            "all_wrong": (0.9 + 1.0 + 1.1 + 1.2) / 4,
            "swing": 8.5 - 1.0,
            "kappa": 0.5,
            "top 1% share": 0.25,
            "gain": 1.0,
            "delta": 0.75,
            "1 - delta": 0.25,
        }
    )


def test_what_is_measured_of_entropy_growth():
    rows = [
        dict(step=1, kappa=-0.1, growth=-0.2, easy=1, easy_gap=0.5, hard=3, hard_gap=0.1),
        dict(step=2, kappa=-0.3, growth=-0.4, easy=3, easy_gap=0.1, hard=0, hard_gap=0.0),
    ]
    assert claims_measures.measure_growth(rows) == pytest.approx(
        {
            "kappa": -0.2,
            "growth": 0.3,  # it goes the way of kappa
            "correlation": 1.0,
            "easy gap": (1 * 0.5 + 3 * 0.1) / 4,  # the mean over the groups of both batches
            "hard gap": 0.1,
        }
    )
    assert "hard gap" not in claims_measures.measure_growth([row | {"hard": 0} for row in rows])


def test_what_is_measured_of_an_evaluation():
    fit = dict(fit_a=1.0, fit_b=1.0, fit_c=1.0)  # exp(-1 / (1 + k)): furthest from 0.5 at k = 32
    found = claims_measures.measure_evaluation(evaluation(2, 0.5, **fit))
    assert found["fit error"] == pytest.approx(math.exp(-1 / 33) - 0.5)
    assert (found["entropy"], found["slope"]) == (0.5, 1.0)
    assert "slope" not in claims_measures.measure_evaluation(evaluation(2, 0.5))


@pytest.mark.parametrize(
    "text, false",
    [
        ("<think>9*5=45 3+45=48</think><answer>3+(9*5)</answer>", False),
        ("<think>8/4=2 2-1=1</think>", False),
        ("<think>9*5=45 3+45=49</think>", True),
        ("<think>8/3=2</think>", True),
        ("<think>8/0=0</think>", True),
        ("<think>8-9=1</think>", True),
        ("no steps", False),
    ],
)
def test_false_steps_are_found(text, false):
    assert claims_measures.has_false_step(text) is false


def test_share_of_false_steps():
    def text(step, false, reward=0.0):
        return dict(step=step, text="1+1=3" if false else "1+1=2", reward=reward)

    texts = [
        text(1, True),
        text(1, True),
        text(8, False),
        text(9, True),
        text(9, True, reward=1.0),  # right answers do not count
        text(10, False),
    ]
    assert claims_measures.share_of_false_steps(texts, step=10, window=2) == 1 / 2
    assert claims_measures.share_of_false_steps(texts, step=1, window=2) == 1
    assert claims_measures.share_of_false_steps(texts, step=20, window=2) == 0


# ------------------------------------------------------------------------------ the runs


def test_a_run_that_fails_says_where_to_look(tmp_path, monkeypatch):
    monkeypatch.setattr(rlvr.run.Run, "finish", None)  # `train` replaces it in its process
    monkeypatch.setattr(sys, "argv", [])
    with pytest.raises(UserError, match=r"exit code 2: see .*a-0\.part\.log"):
        claims_training.train(tmp_path / "my runs" / "a-0", "grpo --num_generations 1")
    log = (tmp_path / "my runs" / "a-0.part.log").read_text()
    assert "--num_generations must be 2 or more" in log
    assert not (tmp_path / "my runs" / "a-0").exists()


def test_a_run_that_is_stopped_is_not_finished():
    with pytest.raises(KeyboardInterrupt):
        claims_training.finish(SimpleNamespace(stopped=1.0))
    assert claims_training.finish(SimpleNamespace(stopped=0.0)) is None


# ------------------------------------------------------------------- from runs to verdicts


def line(number, rewards=()):
    numbers = dict.fromkeys(claims_runs.KEPT, number)
    return {"numbers": numbers, "rewards": [*rewards], "seconds": 40}


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
    assert claims_judge.differences(lines, "middle", a_row()).tolist() == [1, 2, 3]
    assert claims_judge.differences(lines, "middle", a_row(below=0.5)).tolist() == [1.5, 3.5, 5.5]
    assert claims_judge.differences(lines, "weak", a_row()).tolist() == []


def test_the_best_static_weight_is_chosen_on_the_other_seeds():
    """`mean` is best by seed 0 alone, so seed 0 is compared with the best of the others."""
    values = {"mean": [9, 0, 0], "delta 0.5": [2, 2, 2], "Power 2": [1, 1, 1]}
    values = {name: np.array(found) for name, found in values.items()}
    assert claims_judge.best_static(values).tolist() == [2, 0, 0]


def test_a_look_is_not_changed_by_later_seeds():
    """Over four seeds `mean` is the best static weight, over all eight it is delta 0.5."""
    lines = lines_of(FADE=[1] * 8, **{"mean": [3] * 4 + [0] * 4, "Power 2": [0] * 8})
    lines |= lines_of(**{"delta 0.5": [2] * 8})
    row = a_row(above="FADE", below=BEST_STATIC)
    first, second = claims_judge.at_looks(lines, "middle", row, LOOKS)
    assert first.tolist() == [1 - 3] * 4
    assert second.tolist() == [1 - 2] * 8
    assert claims_judge.differences(lines, "middle", row).tolist() == second.tolist()


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
    assert claims_judge.differences(lines, "middle", row).tolist() == [2 - 0, 2 - 3]


def test_the_first_look_is_for_all_and_the_next_for_what_is_unclear():
    jobs = claims_judge.next_jobs({}, BASES)
    assert {job.base for job in jobs} == {"middle"}
    assert {job.seed for job in jobs} == {*range(LOOKS[0])}
    headlines = {name for row in ROWS if row.headline for name in runs_of(row)}
    first_ones = jobs[: len(headlines) * LOOKS[0]]
    assert {job.name for job in first_ones} == headlines
    assert [job.seed for job in first_ones] == [*range(LOOKS[0])] * len(headlines)
    assert {job.name for job in jobs} == {*RUNS["middle"]}
    lines = lines_without_a_difference(LOOKS[0])
    assert claims_judge.next_jobs(lines, BASES) == []
    # with noise in one run, its rows are unclear and get the seeds of the next look
    rng = itertools.cycle([0.5, -0.5])
    for seed in range(LOOKS[0]):
        lines[Job("middle", "GRPO-LEAD", seed)] = line(next(rng))
    jobs = claims_judge.next_jobs(lines, BASES)
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


def of_the_model(seeds):
    """The language model's verdicts, where all its runs have the same numbers."""
    lines = {
        Job(LANGUAGE_MODEL, name, seed): line(0.0, [0.1] * 12)
        for name in RUNS[LANGUAGE_MODEL]
        for seed in range(seeds)
    }
    return claims_judge.judge_all(lines, [LANGUAGE_MODEL], (language_model_results.SEEDS,))


def test_the_page(tmp_path):
    lines = lines_without_a_difference(LOOKS[0])
    text = claims_report.report_text(lines, of_the_model(3))
    assert [text.splitlines()[2 + i].split(".")[0] for i in range(10)] == [*map(str, range(1, 11))]
    assert "is unclear" not in text.split("`python")[0]
    cell = "**does not** +0 [+0, +0], {} seeds, power 1.00"
    cells = f"{cell.format(4)} | {cell.format(4)} | {cell.format(3)}"
    assert f"| 5.3 | A-GRAE beats GRPO in pass@1 | pass@1 | 0.018 | {cells} |" in text
    claims_report.write_report(lines, of_the_model(3), tmp_path)
    figures = [*(tmp_path / "figures").iterdir()]
    assert {path.name for path in figures} == {"claims.png", "claims_plane.png"}
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in figures)


def test_above_the_path_of_grpo():
    """By hand: halfway from (0.2, 0.9) to (0.4, 0.8), and behind (0.6, 0.7), the last point."""
    runs = {
        "start": [(0.2, 0.9), (0.2, 0.9), (0.2, 0.9)],
        "two-stage GRPO": [(0.4, 0.8), (0.4, 0.8), (0.4, 0.8)],
        "GRPO, long": [(0.6, 0.7), (0.6, 0.7)],
        "pass@4": [(0.3, 0.9), (0.7, 0.6), (0.3, 0.9)],
    }
    lines = {
        Job("middle", name, seed): {"numbers": {"pass@1": first, "pass@16": second}}
        for name, points in runs.items()
        for seed, (first, second) in enumerate(points)
    }
    assert claims_report.above_path(lines, "middle", "pass@4") == pytest.approx([0.05, -0.1])
    assert len(claims_report.above_path(lines, "middle", "start")) == 0


def test_differences_beside_the_claims_are_of_the_seeds_that_both_have():
    lines = lines_without_a_difference(LOOKS[0])
    for seed, value in enumerate((0.1, 0.2, 0.3)):
        lines[Job("weak", "FADE", seed)] = line(value, [0.1] * 12)
    found = [row for row in claims_report.table_beside(lines) if row.startswith("| FADE")]
    assert len(found) == 2
    assert "| middle | +0.000 [+0.000, +0.000] | 4 |" in found[0]
    # 0.1, 0.2, 0.3 and 0: mean 0.15, standard error 0.0645, and 3.182 of these on each side
    assert "| weak | +0.150 [-0.055, +0.355] | 4 |" in found[1]
    assert "| pass@4 less mean | pass@16 | weak" not in "".join(claims_report.table_beside(lines))


def test_the_language_model_has_one_look_and_no_other_temperature():
    verdicts = of_the_model(2)
    assert {found.verdict for found in verdicts} == {"open"}
    assert not [found for found in verdicts if found.row.metric.startswith("cool")]
    text = claims_report.report_text(lines_without_a_difference(LOOKS[0]), verdicts)
    cell = "**does not** +0 [+0, +0], 4 seeds, power 1.00"
    assert f"| 5.3 | A-GRAE beats GRPO in pass@1 | pass@1 | 0.018 | {cell} | {cell} |  |" in text


def test_no_page_before_every_row_has_had_its_first_look(tmp_path):
    with pytest.raises(UserError, match=f"have less than {LOOKS[0]} seeds yet"):
        claims_report.write_report(lines_without_a_difference(LOOKS[0] - 1), [], tmp_path)
    assert not [*tmp_path.iterdir()]


def test_the_committed_results_are_of_these_commands():
    """A line keeps the command that it is of."""
    for job, found in claims_runs.read_results(claims.RESULTS).items():
        assert found["command"] == claims_runs.command_of(job, claims_runs.FULL), job


def test_the_page_is_that_of_the_committed_results():
    lines = claims_runs.read_results(claims.RESULTS)
    verdicts = language_model_results.judge_language_model(claims.MODEL_RESULTS)
    page = claims_report.report_text(lines, verdicts)
    assert (project.STUDIES / "CLAIMS.md").read_text() == page


def test_results_are_kept_in_order_and_once(tmp_path):
    results = tmp_path / "results" / "x.jsonl.gz"
    for seed, number in ((1, 0.1), (0, 0.2), (1, 0.3)):
        found = dict(base="weak", name="GRPO", seed=seed, numbers={"pass@1": number})
        claims_runs.add_result(results, found)
    lines = claims_runs.read_results(results)
    assert [(job.seed, found["numbers"]["pass@1"]) for job, found in lines.items()] == [
        (0, 0.2),
        (1, 0.3),
    ]
    assert [path.name for path in results.parent.iterdir()] == ["x.jsonl.gz"]


@pytest.mark.longest
def test_quick_mode(tmp_path):
    """What a finished run leaves: a line with numbers, and no checkpoint."""
    done = run_study("claims", "--quick", "--runs", tmp_path / "runs", "--processes", "1")
    assert done.returncode == 0, done.stderr
    with gzip.open(tmp_path / "runs" / "quick.jsonl.gz", "rt") as opened:
        found = {line["name"]: line for line in map(json.loads, opened)}
    assert {*found} == {*claims_runs.QUICK.runs["weak"]}
    assert {"pass@1", "cool pass@1", "entropy", "slope", "fit error"} <= {*found["GRPO"]["numbers"]}
    assert "top 1% share" in found["CW-GRPO"]["numbers"]
    assert len(found["GRPO"]["rewards"]) == claims_runs.QUICK.steps
    assert not [*(tmp_path / "runs").rglob("checkpoint-*")]
