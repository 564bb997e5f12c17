"""studies/claims.py: the rule, what is measured of a run, and the committed results."""

import json
import math
import sys
from dataclasses import replace
from types import SimpleNamespace

import project

import rlvr.run
from rlvr.errors import UserError
from rlvr.logs import read_rows

import claims
import claims_measures
import claims_report
import claims_training
import pytest
import verdicts_rule
from runs import run_study
from written_runs import evaluation, write_rows, write_run

RECORD = json.loads((project.STUDIES / "claims.json").read_text())


def table_of(**runs):
    """Numbers of runs, the same for two metrics; an underscore of a name stands for a space."""
    return {
        name.replace("_", " "): [{"x": value, "reach": value} for value in values]
        for name, values in runs.items()
    }


def judge(table, metric, above, below, margin=0.0):
    return claims.judge(table, claims.Claim("paper", "text", metric, above, below, margin))


def test_interval_of_students_t():
    # mean 3, standard deviation sqrt(2.5), t with 4 degrees of freedom
    half = 2.776445 * math.sqrt(2.5 / 5)
    assert verdicts_rule.interval([1, 2, 3, 4, 5]) == pytest.approx((3, 3 - half, 3 + half))


def test_the_rule():
    runs = table_of(a=[2, 4, 6], b=[1, 2, 3], c=[2.1, 3.9, 6.0])
    half = 4.302653 / math.sqrt(3)  # of the interval of a - b = 1, 2, 3
    found = judge(runs, "x", "a", "b")
    assert found.pop("verdict") == "unclear"
    assert found == pytest.approx(dict(mean=2, low=2 - half, high=2 + half))
    assert judge(runs, "x", "a", "b", 0.5)["verdict"] == "holds"
    assert judge(runs, "x", "a", 0)["verdict"] == "unclear"
    assert judge(runs, "x", "b", -1)["verdict"] == "holds"
    assert judge(runs, "x", -1, "b")["verdict"] == "does not"
    assert judge(runs, "x", "c", "a")["verdict"] == "unclear"
    assert judge(runs, "x", "a", "never run") is None
    assert judge(runs, "x", "never run", "a") is None


def test_the_best_static_weight_is_that_of_the_best_mean():
    runs = table_of(mean=[1, 1, 4], Power_2=[3, 3, 3], FADE=[4, 5, 6])
    runs["delta 0.5"] = table_of(other=[0, 0, 0])["other"]
    assert judge(runs, "x", "FADE", "best static")["mean"] == 2  # less Power 2
    assert judge(runs, "reach", "best static", "FADE")["mean"] == -5  # delta 0.5, the fewest steps
    assert judge(table_of(FADE=[1, 2]), "x", "FADE", "best static") is None
    # a base without static weights measures no reach
    assert judge({"FADE": [{"x": 1}, {"x": 2}]}, "reach", "best static", "FADE") is None


def test_every_claim_is_about_runs_that_are_made():
    known = {*claims.FROM_THE_WEAK_BASE, "start", "GRPO, long", "best static"}
    for claim in claims.CLAIMS:
        paper, section = claim.paper.rsplit(" ", 1)
        assert paper in claims_report.BY_PAPER
        assert section.replace(".", "").isdigit()
        for side in (claim.above, claim.below):
            assert side in known if isinstance(side, str) else isinstance(side, (int, float))
    assert len({(claim.paper, claim.text) for claim in claims.CLAIMS}) == len(claims.CLAIMS)


def test_every_run_that_is_drawn_is_made():
    for names in claims_report.BY_PAPER.values():
        assert {*names} <= {*claims.FROM_THE_WEAK_BASE}


def test_what_is_measured_of_a_run(tmp_path):
    scale = replace(claims.QUICK, steps=12, seeds=2)
    rewards = {
        "mean": [0.2] * 12,
        "Power 2": [0] * 9 + [2, 3, 4],
        "delta 0.5": [0] * 12,
        "FADE": [0] * 8 + [4, 5, 0, 0],
        "GRPO": [1] * 4 + [0] * 4 + [2] * 4,
    }
    for name, values in rewards.items():
        for seed in range(2):
            write_run(tmp_path / "other" / f"{name}-{seed}", values, seed)
    found = claims_measures.collect(tmp_path, "other", scale, [*rewards])
    first, second = found["GRPO"]
    assert first["early"] == 1
    assert second["late"] == 2
    assert first["swing"] == 8.5 - 1  # the mean of steps 5 to 12 less that of the first
    assert first["entropy"] == 0.5
    assert found["start"][0]["entropy"] == 0.25
    # means of ten steps: at step 10, 11 and 12 0.2, 0.5, 0.9 under Power 2 and 0.9 under FADE
    reach = {name: found[name][0]["reach"] for name in rewards if name != "GRPO"}
    assert reach == {"mean": 3, "Power 2": 2, "delta 0.5": 3, "FADE": 0}


def test_what_is_measured_of_entropy_growth(tmp_path):
    rows = [
        dict(step=1, kappa=-0.1, growth=-0.2, easy=1, easy_gap=0.5, hard=3, hard_gap=0.1),
        dict(step=2, kappa=-0.3, growth=-0.4, easy=3, easy_gap=0.1, hard=0, hard_gap=0.0),
    ]
    write_rows(tmp_path, "metrics", rows)
    found = claims_measures.measure(tmp_path, claims.QUICK, 2)
    assert found == pytest.approx(
        {
            "kappa": -0.2,
            "growth": 0.3,  # it goes the way of kappa
            "correlation": 1.0,
            "easy gap": (1 * 0.5 + 3 * 0.1) / 4,  # the mean over the groups of both batches
            "hard gap": 0.1,
        }
    )


def test_misfit_of_the_power_law(tmp_path):
    folder = write_run(tmp_path / "a", [0, 0])
    fit = dict(fit_a=1.0, fit_b=1.0, fit_c=1.0)  # exp(-1 / (1 + k)): furthest from 0.5 at k = 32
    write_rows(folder, "eval", [evaluation(0, 0.25), evaluation(2, 0.5, **fit)])
    found = claims_measures.measure(folder, claims.QUICK, 2)
    assert found["fit error"] == pytest.approx(math.exp(-1 / 33) - 0.5)


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
    assert claims_measures.share_of_false_steps(texts, step=0, window=2) == 1
    assert claims_measures.share_of_false_steps(texts, step=20, window=2) == 0


# -------------------------------------------------------------------------------- the runs


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


def test_flags_of_the_runs(monkeypatch, tmp_path):
    """GRPO goes on for longer from the weak base; every base has its flags, and every seed."""
    jobs = claims_training.list_jobs(tmp_path, claims.FULL, claims.ALL_RUNS)
    assert len(jobs) == 5 * sum(map(len, claims.ALL_RUNS.values())) == 230
    assert "--max_steps 192" in jobs[tmp_path / "weak" / "GRPO-4"]
    assert "--max_steps 48" in jobs[tmp_path / "middle" / "GRPO-4"]
    assert "--sft_steps 1600 --numbers 3,4 --seed 2" in jobs[tmp_path / "middle" / "FADE-2"]


@pytest.mark.slow
def test_claims_quick_mode_makes_what_is_not_finished(tmp_path):
    runs = tmp_path / "runs"
    jobs = claims_training.list_jobs(runs, claims.QUICK, claims.QUICK_RUNS)
    kept, other, unfinished = [*jobs][:3]
    write_run(kept, [0.5, 0.5, 0.5])  # by the same command
    write_rows(kept, "eval", [evaluation(step, 0.5) for step in (0, 2, 3)])
    (kept / "command.txt").write_text(jobs[kept])
    (other / "old").mkdir(parents=True)  # by another command
    (other / "command.txt").write_text("cwgrpo --max_steps 1")
    unfinished.with_name(f"{unfinished.name}.part").mkdir()  # what a kill leaves

    done = run_study("claims", "--quick", "--runs", runs, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "7/7 runs" in done.stdout
    assert len(read_rows(other, "metrics")) == len(read_rows(unfinished, "metrics")) == 2
    assert not (other / "old").exists()
    assert not [*runs.glob("*/*.part")]
    saved = json.loads((tmp_path / "claims.json").read_text())
    assert saved["runs"]["weak"]["GRPO"][0]["pass@1"] == 0.5
    assert {row["base"] for row in saved["claims"]} == {"weak", "middle"}
    text = (tmp_path / "CLAIMS.md").read_text()
    assert "| two-stage dynamics 4.2 | GRPO raises pass@1 | pass@1 | **" in text
    assert "| GRPO, long | " in text
    figures = sorted(file.name for file in (tmp_path / "figures").iterdir())
    assert figures == ["claims_entropy.png", "claims_pass_at_k.png"]


# ------------------------------------------------------------------------------ the report


def test_a_row_of_the_table():
    results = [
        dict(paper="FADE 5", claim="it wins", metric="x", base=base, verdict="holds")
        | dict(mean=mean, low=0.001234, high=12.0)
        for base, mean in (("weak", 0.5), ("strong", -0.25))
    ]
    assert claims_report.claims_table(results, ["weak", "middle", "strong"]) == [
        "| paper | claim | difference in | weak base | middle base | strong base |",
        "|---|---|---|---|---|---|",
        "| FADE 5 | it wins | x | **holds** +0.5 [+0.0012, +12] |  "
        "| **holds** -0.25 [+0.0012, +12] |",
    ]


def test_the_report_is_that_of_the_results():
    """CLAIMS.md is what claims.json says."""
    assert (project.STUDIES / "CLAIMS.md").read_text() == claims_report.report_text(RECORD)


def test_the_verdicts_follow_from_the_runs():
    """The committed verdicts are those of today's claims and rule on the committed numbers."""
    found = claims.judge_all(RECORD["runs"])
    assert len(found) == len(RECORD["claims"]) == 96
    for ours, committed in zip(found, RECORD["claims"], strict=True):
        for key in ("paper", "claim", "metric", "base", "verdict"):
            assert ours[key] == committed[key]
        for key in ("mean", "low", "high"):
            assert ours[key] == pytest.approx(committed[key], rel=1e-9, abs=1e-12)


def test_the_committed_scale_is_the_full_one():
    assert RECORD["scale"] == claims_report.asdict(claims.FULL)
