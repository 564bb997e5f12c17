"""studies/: the rule of the claims by hand, what pages say, and that each command runs."""

import math
import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import studies.project as project
from studies.project import read_results

from rlvr.errors import UserError
from rlvr.show import append_row, read_rows

import numpy as np
import pytest
from matplotlib.figure import Figure
from runs import ROOT, run_study
from test_show import write_run

from studies.claims import claims, compare, noise, regimes, rule
from studies.claims import page as claims_page
from studies.claims import runs as claims_runs
from studies.claims.rule import Evidence
from studies.papers import default_runs
from studies.speed import throughput

README = ROOT / "README.md"


@pytest.mark.slow
@pytest.mark.parametrize("study", "claims/many claims/noise papers/language_model".split())
def test_help_from_any_folder(study, tmp_path):
    done = run_study(study, "--help", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: ")


def test_a_stopped_run_is_no_result(tmp_path):
    (tmp_path / "config.json").write_text('{"max_steps": 3}')
    for step in (1, 2):
        append_row(tmp_path, "metrics", {"step": step, "reward": 0.5})
    job = claims_runs.Job("middle", "GRPO at 1e-4", claims_runs.TUNING[0])
    with pytest.raises(UserError, match="was stopped after 2 steps"):
        claims_runs.line_of(claims_runs.PLAN, job, tmp_path)
    append_row(tmp_path, "metrics", {"step": 3, "reward": 1})
    assert claims_runs.line_of(claims_runs.PLAN, job, tmp_path) == {"rewards": [0.5, 0.5, 1]}
    names = "PLAN FIELD_PLAN TRUST_PLAN MODEL_PLAN"
    for plan in (getattr(claims_runs, name) for name in names.split()):
        kept = read_results(plan.results).values()
        assert kept and {len(line["rewards"]) for line in kept} == {plan.steps}


@pytest.mark.parametrize("a, b, c", [(1.5, 0.6, 0.7), (0.3, 1.2, -0.5), (4.0, 0.3, 20.0)])
def test_fit_pass_at_k_finds_the_curve_again(a, b, c):
    """If there are three points between 0 and 1."""
    ks = [2**i for i in range(9)]
    values = [math.exp(-a * (k + c) ** -b) for k in ks]
    fit = claims_runs.fit_pass_at_k(ks, values)
    assert [fit["fit_a"], fit["fit_b"]] == pytest.approx([a, b], rel=0.05)
    assert fit["fit_c"] == pytest.approx(c, rel=0.05, abs=0.05)
    row = {f"pass@{k}": value for k, value in zip(ks, values, strict=True)}
    numbers = claims_runs.measure([dict(reward=0, all_wrong=0, entropy=0)], row)
    assert (numbers["slope"], numbers["fit error"]) == (fit["fit_b"], pytest.approx(0, abs=2e-3))
    assert claims_runs.fit_pass_at_k(ks[:3], values[:3]).keys() == fit.keys()
    assert claims_runs.fit_pass_at_k([1, 2, 4, 8], [0.0, 0.5, 0.7, 1.0]) == {}


def test_numbers_of_nine_steps_and_of_tenths():
    rows = [dict(reward=i, all_wrong=0, entropy=8 * (i == 8)) for i in range(9)]
    rows = [row | dict(kappa=0.5, delta=0.25) for row in rows]
    expected = {"early": 1, "late": 7, "all_wrong": 0, "swing": 1, "kappa": 0.5, "1 - delta": 0.75}
    assert claims_runs.measure(rows, {}) == expected
    names = "all_wrong all_right clip_low clip_high entropy length truncated reward".split()
    found = claims_runs.mechanism([dict.fromkeys(names, i) for i in range(20)])
    tenths = [2 * i + 0.5 for i in range(10)]  # of two steps each
    assert found.pop("clipped") == [2 * mean for mean in tenths] and tenths in found.values()


def test_the_best_rate_has_a_neighbor_on_both_sides():
    """Each is tried with two seeds, and judged by the mean reward of the last eight steps."""
    plan = replace(claims_runs.PLAN, runs={"middle": {"mine": "my.py"}})
    lines = {}

    def left_after(rate, *rewards):
        for seed, reward in zip(claims_runs.TUNING, rewards, strict=False):
            job = claims_runs.Job("middle", f"mine at {rate}", seed)
            lines[job] = {"rewards": [0.9] * 40 + [reward] * 8}
        return claims_runs.rates_to_try(lines, plan, "mine")

    assert left_after("1e-4", 0.4) == (["3e-5", "1e-4", "3e-4"], {})
    assert left_after("1e-4", 0.4, 0.8) == (["3e-5", "3e-4"], {"1e-4": pytest.approx(0.6)})
    assert left_after("3e-5", 0.5, 0.5)[0] == ["3e-4"]
    assert left_after("3e-4", 0.7, 0.7)[0] == ["1e-3"]
    assert claims_runs.rate_of(lines, plan, "middle", "mine") == "open"
    assert left_after("1e-3", 0.1, 0.1)[0] == []
    assert claims_runs.rate_of(lines, plan, "middle", "mine") == "3e-4"
    first = {(job.base, job.seed) for job in claims_runs.next_jobs({}, claims_runs.PLAN)}
    assert first == {("middle", seed) for seed in claims_runs.TUNING}


def test_runs_in_forks(tmp_path):
    """Finished ones are kept; one that fails is tried again; no run begins after the end."""
    script, tried, results = tmp_path / "script.py", tmp_path / "tried", tmp_path / "found.jsonl"
    script.write_text(
        "import pathlib, sys\n"
        f"if sys.argv[1] == '1' and not pathlib.Path('{tried}').exists():\n"
        f"    pathlib.Path('{tried}').touch()\n"
        "    sys.exit('once')\n"
        "assert int(sys.argv[1]) < 2, 'too large'\n"
        "folder = pathlib.Path(sys.argv[2].removeprefix('--output_dir='))\n"
        "folder.mkdir()\n"
        "(folder / 'number').write_text(sys.argv[1])\n"
    )

    def read_number(key, run):
        return {"number": int((run / "number").read_text())}

    def make(count, **limits):
        commands = {("a base", "of mine", seed): f"{script} {seed}" for seed in range(count)}
        project.make_runs(commands, results, tmp_path / "runs", read_number, 1, **limits)

    make(2, end=1.0)
    assert not results.exists()
    with pytest.raises(UserError, match="script.py 1 has failed, see .*-1.log: once"):
        make(2)
    make(2, tries=2)
    found = {key: line["number"] for key, line in read_results(results).items()}
    assert found == {("a base", "of mine", 0): 0, ("a base", "of mine", 1): 1}
    with pytest.raises(UserError, match="script.py 2 has failed, .*: too large"):
        make(3, tries=3)


def test_a_line_without_an_end_is_no_result(tmp_path):
    """A process may be writing it."""
    line = '{"base": "middle", "name": "GRPO", "seed": 0}'
    (tmp_path / "runs.jsonl").write_text(f"{line}\n{line[:-1]}")
    assert [*read_results(tmp_path / "runs.jsonl")] == [("middle", "GRPO", 0)]
    assert read_results(tmp_path / "none.jsonl") == {}


def test_the_headline_of_the_default_runs_by_hand():
    """Of 0.4 and 0.6 the mean is 0.5 and the sample's deviation sqrt(0.02) = 0.141."""
    ends = {("middle", "grpo", 0): 0.4, ("middle, second CPU", "grpo", 0): 0.6}
    lines = {
        key: {"eval": [{"pass@1": 0.2, "pass@16": 0.8}, {"pass@1": end, "pass@16": 0.9}]}
        for key, end in ends.items()
    }
    lines["middle", "fade", 0] = {"eval": []}
    told = "grpo.py, 2 runs: pass@1 0.200 ± 0.000 -> 0.500 ± 0.141, "
    assert default_runs.headline(lines) == told + "pass@16 0.800 ± 0.000 -> 0.900 ± 0.000"


def test_the_tables_of_the_pages_are_what_the_results_give(tmp_path, monkeypatch):
    """Writing the pages anew changes no byte, and the README has their counts."""
    table = default_runs.table(read_results(default_runs.RESULTS))
    assert "\n".join(table) in default_runs.PAGE.read_text()
    pages = {name: (project.STUDIES / name).read_text() for name in claims_page.PAGES}
    pages[noise.CURVES.name] = noise.CURVES.read_text()
    for name, text in pages.items():
        (tmp_path / name).write_text(text)
    claims_page.write_report(tmp_path)
    monkeypatch.setattr(noise, "CURVES", tmp_path / noise.CURVES.name)
    for study, write in ((regimes, regimes.write_page), (noise, noise.write_tables)):
        monkeypatch.setattr(study, "STUDIES", tmp_path)
        monkeypatch.setattr(study, "FIGURES", tmp_path)
        write()
    for name, text in pages.items():
        assert (tmp_path / name).read_text() == text
    page, readme = (" ".join(text.split()) for text in (pages["CLAIMS.md"], README.read_text()))
    decided, verdicts = re.search(r"In all: (\d+) of (\d+) verdicts are decided", page).groups()
    assert f"{decided} of {verdicts} verdicts are decided; " in readme
    decided, verdicts = re.search(r"SmolLM2-135M, \d+ runs: (\d+) of (\d+)", page).groups()
    assert f"for SmolLM2, {decided} of {verdicts} are." in readme


def test_figures_of_the_studies(monkeypatch):
    """Of 0.5, 0.5 and 0.8 the standard error is 0.1, and half the interval 4.303 times it.

    Of 0, 0 and 1 it is 1 / 3.
    """
    row = next(row for row in claims_page.ROWS if row.headline)._replace(effect=0.005)
    evidence = Evidence(8, 0.03, 0.01, 0.05, 1, 1, 1)
    verdict = rule.Verdict(row, claims_page.BASES[0], evidence, "holds", True)
    second = verdict._replace(row=row._replace(text="another"))
    axis = claims_page.draw_headlines([verdict, second]).axes[0]
    ends, middle, _, _, *at = ([*line.get_xdata()] for line in axis.lines[:6])
    assert [*ends, *middle] == pytest.approx([2, 10, 6]) and at == [[0, 0], [1, 1]]
    assert axis.get_xlim()[1] > 10  # no interval is cut off
    labels = [label.get_text().endswith(": another") for label in axis.get_yticklabels()]
    shown = axis.get_title(), axis.lines[2].get_ydata()[0]
    assert shown == (claims_page.BASES[0], labels.index(True))
    metrics = dict.fromkeys(regimes.METRICS, 0.25)
    rates = [metrics | {"pass@16": rate} for rate in (0.625, 0.5, 0.5, 0.8)]
    runs = [dict(evaluations=[rates[0], end]) for end in rates[1:]]
    axis = claims_page.draw_plane(defaultdict(lambda: runs)).axes[0]
    line = [[0.25, 0.625], pytest.approx([0.25, 0.6])]
    assert (axis.get_title(), axis.lines[0].get_xydata().tolist()) == (claims_page.BASES[0], line)
    assert axis.lines[-2].get_ydata() == pytest.approx([0.6])  # the dot of the last one's end
    band = axis.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == pytest.approx((0.5, 0.7))
    solved = [dict(problems=dict(samples=256, end=dict(correct=[n, n]))) for n in (0, 0, 256)]
    maps, cells = [], dict.fromkeys(regimes.METHODS, solved) | {"GRPO": solved[:1] * 3}
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: maps.append(figure))
    regimes.draw({"long": cells})
    assert {text.get_text() for text in maps[0].axes[1].texts} == {"+0.333\n±1.434"}
    assert [text.get_position() for text in maps[0].axes[1].texts] == [(j, 0) for j in range(6)]
    assert maps[0].axes[1].images[0].get_clim() == maps[0].axes[3].get_ylim() == (-0.1, 0.1)
    names = [text.get_text() for text in maps[0].axes[1].get_xticklabels()]
    assert [maps[0].axes[1].get_title(), *names] == ["pass@16 minus GRPO's", *regimes.METHODS[1:]]
    line = dict(rewards=[0.9] * 48, evaluations=[{"pass@1": 0.1}] * 4)
    noise.draw({(verifier, "GRPO", 0): line for verifier in ("hole", "a bound")})
    shown = {line.get_label(): [*line.get_xydata()[0]] for line in maps[1].axes[0].lines}
    assert shown == {"reward by this verifier": [1, 0.9], "pass@1 by the right one": [0, 0.1]}
    rates = {"pass@16": 0.8, "pass@4": 0.4, "pass@1": 0.2}
    logs = [[dict(step=1, reward=reward, entropy=0.6)] for reward in (0.3, 0.3, 0.9)]
    lines = [dict(eval=[dict(rates, step=0)], metrics=log) for log in logs]
    drawn = [line for axis in default_runs.draw_story(lines).axes for line in axis.lines]
    drawn = {line.get_label(): line.get_ydata()[0] for line in drawn}
    assert drawn == pytest.approx(rates | {"reward": 0.5, "entropy (nats)": 0.6})


def test_interval_p_value_and_holm():
    """By the tables of Student's t; Holm by hand: 0.01 x 4, 0.02 x 3, then 0.03 x 2, and 0.5."""
    assert rule.quantile(0.975, 3) == pytest.approx(3.182, abs=6e-4)
    assert rule.below(-4.144, 10) == pytest.approx(0.001, abs=1e-4)
    values = np.array([1.0, 2, 3, 4, 5])  # mean 3, standard error sqrt(1/2)
    half = 2.776 / math.sqrt(2)
    assert rule.interval(values) == pytest.approx((3, 3 - half, 3 + half), abs=1e-3)
    # 2.776 standard errors below the mean is where the one-sided p-value is 0.025
    assert rule.p_above(values, 3 - half) == pytest.approx(0.025, abs=1e-4)
    assert (rule.p_above(np.ones(4), 0.0), rule.p_above(np.ones(4), 1.0)) == (0, 1)
    assert rule.holm([0.03, 0.5, 0.01, 0.02]) == pytest.approx([0.06, 0.5, 0.04, 0.06])


def test_seeds_and_problems_both_vary():
    """By hand: seeds move the difference by -1 and 1, problems by -1, 0 and 1, and nothing else.

    The variance of the mean is 2/2 of the seeds and 1/3 of the problems; the mean squares are 6, 2
    and 0, so that the freedom is 8^2 / (6^2/1 + 2^2/2).
    """
    values = np.add.outer([-1.0, 1.0], [-1.0, 0.0, 1.0])
    error, freedom = rule.standard_error(values)
    assert error == pytest.approx(math.sqrt(4 / 3))
    assert freedom == pytest.approx(64 / 38, abs=0.05)
    # seeds that agree on each problem leave the problems' variance; the same problems, the seeds'
    assert rule.standard_error(values[:, :1] + np.zeros(3)) == (1.0, 1)


def test_the_steps_to_a_peak_by_hand():
    """Means of ten steps; each seed's rival is the one that is best on the other seed."""
    late, early = [0] * 10 + [1] * 5, [0.5] * 9 + [0] + [1] * 5  # at 0.5 after 5 means, and after 1
    found = {"FADE": [early, [1] * 15], "mean": [late, late], "Power 2": [[0.9] * 15, [0] * 15]}
    lines = {name: [{"rewards": rewards} for rewards in runs] for name, runs in found.items()}
    assert rule.reach_differences(lines).tolist() == [5 - 1, 6 - 0]  # Power 2 never gets to 0.9


def test_an_interval_is_its_verdict():
    """Of an effect of 0.02, by the two ends alone."""
    ends = {
        (0.01, 0.03): "holds",
        (0.01, 0.015): "smaller",
        (-0.01, 0.01): "none",
        (-0.03, -0.01): "reversed",
        (-0.01, 0.03): "unclear",
    }
    for (low, high), word in ends.items():
        assert rule.read_interval(Evidence(8, 0, low, high, 1, 1, 1), 0.02) == word
    assert rule.read_interval(None, 0.02) == "open"
    # a firm verdict survives the other rows of its paper: 0.016 x 3 <= 0.05, but 0.016 x 6 is not
    border = Evidence(8, 0.02, 0.01, 0.03, above=0.016, smaller=1.0, below=1.0)
    assert rule.corrected([border]) == ["holds"]
    assert rule.corrected([border, None]) == ["unclear", "unclear"]


def test_compare_has_a_table_with_standard_errors(tmp_path, capsys):
    """Two seeds by their spread, one run by its problems; labels are names of folders."""
    folders = [
        write_run(tmp_path / "mine-0", 3, seed=0),
        write_run(tmp_path / "mine-1", 2, seed=1, num_threads=4),
        write_run(tmp_path / "theirs", 2, script="fade.py"),
    ]
    eval_rows = (folders[1] / "eval.jsonl").read_text().replace('"pass@1": 0.5', '"pass@1": 0.4')
    (folders[1] / "eval.jsonl").write_text(eval_rows)
    groups = compare.group_runs(folders)
    assert groups == {"mine": folders[:2], "theirs": folders[2:]}
    # problem by problem, at the last evaluation: (3 + 1) / 2 and 0 of 4, less than 4 and 1
    for folder, rights in zip(folders, ([9, 3, 0], [9, 1, 0], [9, 4, 1, 1]), strict=True):
        for i, right in enumerate(rights):
            row = {"step": min(i, 1), "set": "a", "id": i, "samples": 4, "right": right}
            append_row(folder, "problems", row | {"prompt": f"problem {i}"})
    compare.main([*folders, tmp_path / "compare.png"], tmp_path / "compare.png")  # its own
    assert (tmp_path / "compare.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "compare.html").exists()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("| run | seeds | metric | before | after | step |")
    # (0.5 + 0.4) / 2, and 0.0707 / sqrt 2
    assert lines[2] == "| mine | 2 | pass@1 | 0.250 ± 0.000 | 0.450 ± 0.050 | 2 or 3 |"
    assert "| theirs | 1 | pass@1 | 0.250 ± 0.050 | 0.500 ± 0.100 | 2 |" in lines
    assert "The runs differ in script: grpo.py in mine, fade.py in theirs." in lines
    apart = "theirs less mine, problem by problem (2 of a): pass@1 +0.375 ± 0.125"
    assert [line for line in lines if line.startswith("theirs less")] == [apart]
    axes = compare.draw_runs(folders).axes
    assert axes[4].xaxis.get_transform().base == 2
    shown = {
        axis.get_title(): {line.get_label(): line.get_xydata().T.tolist() for line in axis.lines}
        for axis in axes
    }
    assert {*axes[2].collections[0].get_paths()[0].vertices[:, 1]} == {0.25, 0.4, 0.5}  # its band
    assert shown.keys() > {"entropy, mean of 10 steps", "pass@2"}
    at_k = shown["held-out pass@k"]  # k = 1 stands first
    firsts = {label: values[0] for label, (_, values) in at_k.items()}
    assert firsts == {"before": 0.25, "mine": 0.45, "theirs": 0.5}
    assert shown["pass@1"] == {"mine": [[0, 3], [0.25, 0.45]], "theirs": [[0, 2], [0.25, 0.5]]}


def test_throughput_by_hand():
    """Medians of the steps after the first, and their ratio."""
    seconds = {"ours": (9.0, 1.5, 1.0, 2.0), "theirs": (9.0, 3.0, 2.0, 8.0)}
    reports = {side: [{"step (s)": s} for s in steps] for side, steps in seconds.items()}
    assert throughput.rows_of(reports) == [["step (s)", "1.5", "3", "0.50"]]
    assert throughput.rows_of({"ours": reports["ours"]}) == [["step (s)", "1.5", ""]]


@pytest.mark.slow
def test_throughput_by_its_command(tmp_path):
    command = ["--alone", "--work", "tiny", "--rounds", "1"]
    done = run_study("speed/throughput", *command, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"\| tokens/s \| [1-9]", done.stdout)


# of two differences, an interval is 12.706 standard errors to both sides
END = "+0.200 [-1.1,+1.5]", "-0.500 [-1.8,+0.77]", "+0.000 [+0,+0]"  # 0.2 ± 0.1, -0.5 ± 0.1
# at pass@1 0.4, two thirds of the way to 0.5, and at 0.6, four sevenths of the way to 0.9
AT_EQUAL = "0", "-0.300 [-0.3,-0.3]", "+0.038 [-0.022,+0.099]"


def test_the_table_of_mine_by_hand():
    def runs(*ends):
        names = ("pass@1", "pass@16", "entropy")
        start, *ends = [dict(zip(names, row, strict=True)) for row in ((0.2, 0.8, 0.3), *ends)]
        return [dict(evaluations=[start, end], numbers=end) for end in ends]

    found, called = {}, {}
    for base in claims.PLAN.runs:
        found[base, "a"] = runs((0.5, 0.5, 0.2), (0.9, 0.1, 0.2))
        found[base, "b"] = runs((0.4, 0.9, 0.2), (0.6, 0.7, 0.2))
        called |= {(base, name): f"{name} at 1e-4" for name in "ab"}
    lines = claims.table(found, called, {"a": "mine", "b": "grpo.py"})
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:7]]
    assert cells == [
        ["middle", "before training", "", "0.200", "0.800", "0.300"],
        ["middle", "grpo.py", "1e-4", "0.500", "0.800", "0.200"],
        ["middle", "mine", "1e-4", "0.700", "0.300", "0.200"],
        ["middle", "less grpo.py", "", *END],
        ["middle", "less grpo.py, at equal pass@1", "", *AT_EQUAL],
    ]
    assert "more --seeds may decide" in lines[-1]
    same = {key: found[key[0], "b"] for key in found}
    assert "exactly the same" in claims.table(same, called, dict(a="", b=""))[-1]


def test_what_mine_cannot_change():
    for flags in ("--model strong", "--max_steps 3", "--seed 1", "--numbers 4"):
        with pytest.raises(UserError, match=f"takes no {flags.split()[0]}, which the study gives"):
            claims.read_script(f"my.py {flags}")


@pytest.mark.slow
def test_mine_by_its_command(tmp_path):
    """Two runs of a copy against grpo.py, whose runs are kept for the next time."""
    (tmp_path / "my.py").write_text((ROOT / "grpo.py").read_text())
    for _ in range(2):
        command = ["--mine", "my.py --beta 1", "--quick", "--processes", "1"]
        done = run_study("claims/claims", *command, folder=tmp_path)
        assert done.returncode == 0, done.stderr
        mine = done.stdout.split("| strong | my.py --beta 1 ")[1]
        assert mine.splitlines()[1].startswith("| strong | less grpo.py  ")
    assert done.stdout.startswith("| base ")  # all runs were kept


def test_counts_of_problems_are_those_of_the_evaluations(run):
    """What is kept of each problem has the means that the run has logged."""
    assert run("grpo").code == 0
    rows, kept = read_rows(Path("run"), "eval"), claims_runs.read_counts(Path("run"))
    for place, row in (("start", rows[0]), ("end", rows[-1])):
        for metric in ("pass@1", "pass@4", "answer_entropy"):
            values = rule.of_problems({"problems": kept}, metric, place)
            assert len(values) == 4 and np.mean(values) == pytest.approx(row[metric], abs=1e-3)
