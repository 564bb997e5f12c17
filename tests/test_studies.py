"""studies/: the rule of the claims by hand, what pages say, and that each command runs."""

import itertools
import math

import project
from project import read_results

import claims_page
import claims_rule
import claims_runs
import default_runs
import fade_section_15
import numpy as np
import pytest
import torch
import two_stage_toy
from claims_rule import LOOKS, Evidence
from runs import ROOT, run_study

# those that no other test imports
COMMANDS = "compare entropy_growth language_model make_bases policy_weights throughput"


@pytest.mark.slow
@pytest.mark.parametrize("study", COMMANDS.split())
def test_help_from_any_folder(study, tmp_path):
    done = run_study(study, "--help", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: ")


def test_toy_gradient_is_algorithm_1():
    """In its own loops: every sample moves all logits, by 1 - pi for its action and -pi else."""
    z = torch.tensor([[0.3, -0.2, 1.1], [2.0, -1.5, 1.5]])
    actions = torch.tensor([[0, 2, 2], [1, 0, 1]])
    advantages = torch.tensor([[0.4, -0.2, -0.2], [1.0, 0.5, -0.7]])  # the last: no sum of 0
    found = two_stage_toy.policy_gradient(z, actions, advantages)
    expected = torch.zeros(2, 3)
    for run, sample, other in itertools.product(range(2), range(3), range(3)):
        moved = (actions[run, sample] == other).float() - z[run].softmax(0)[other]
        expected[run, other] += moved * advantages[run, sample] / 3
    torch.testing.assert_close(found, expected)


def test_the_toy_steps_as_printed_or_by_adam():
    """The plain step is eta g / G; Adam's first one is eta, whatever the size of the gradient."""
    start, rewards = torch.tensor([0.6, 0.1, 0.3], dtype=torch.float64), [0.6, 1.0, 0.0]
    z = start.log()[None]
    groups = torch.cartesian_prod(torch.arange(3), torch.arange(3))
    advantages = torch.tensor(rewards, dtype=torch.float64)[groups]
    advantages = advantages - advantages.mean(1, keepdim=True)
    gradients = two_stage_toy.policy_gradient(z.repeat(9, 1), groups, advantages)
    signs = gradients / (gradients.abs() + 1e-8)  # 0 where a gradient is but rounding
    for optimizer, steps in (("plain", 0.1 * gradients), ("adam", 0.1 * signs)):
        after = two_stage_toy.run_algorithm_1(
            start.tolist(), rewards, steps=1, runs=50, optimizer=optimizer
        )[-1]
        possible = (z + steps).softmax(1)  # [9, 3], of each group of two actions
        distances = (after[:, None] - possible).abs().amax(2).amin(1)  # [runs]
        assert distances.max() < 1e-6
        assert len({*after[:, 0].tolist()}) > 2


@pytest.mark.slow
def test_fade_section_15_of_a_run(run, no_evaluation, capsys, monkeypatch):
    for name in ("a", "b"):
        assert run("fade", variant="asym", output_dir=name).code == 0
    capsys.readouterr()
    fade_section_15.print_weights([project.Path("a"), project.Path("b")])
    fade_section_15.print_head(project.Path("a"))
    found = capsys.readouterr().out
    assert found.count("\n| 2 | ") == 3 and "| a, b | 1 | 1 |" in found


def test_the_tables_of_the_pages_are_what_the_results_give(tmp_path):
    """Writing CLAIMS.md anew changes no byte."""
    table = default_runs.table(read_results(default_runs.RESULTS))
    assert "\n".join(table) in default_runs.PAGE.read_text()
    page = (project.STUDIES / "CLAIMS.md").read_text()
    (tmp_path / "CLAIMS.md").write_text(page)
    claims_page.write_report(tmp_path)
    assert (tmp_path / "CLAIMS.md").read_text() == page


# ---------------------------------------------------------------------------------- the claims


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


def test_looks_are_paid_for():
    """The best look so far counts, times the number of looks."""
    values = np.array([1.0, 1.1, 0.9, 1.05, -3.0, 4.0, -2.0, 3.0])
    evidence = claims_rule.weigh(values, 0.5)
    assert evidence.seeds == 8
    assert evidence.above == pytest.approx(len(LOOKS) * claims_rule.p_above(values[:4], 0))
    assert claims_rule.weigh(values[:3], 0.5) is None


def test_the_verdicts():
    """Of an effect of 0.02, by means that are sure but for the last one."""
    noise = np.array([1, -1] * (LOOKS[-1] // 2))
    means = {0.03: "holds", 0.01: "smaller", 0.0: "none", -0.03: "reversed"}
    family = [claims_rule.weigh(mean + 0.001 * noise, 0.02) for mean in means]
    family += [claims_rule.weigh(0.01 + 0.2 * noise, 0.02), None]
    assert claims_rule.decide(family) == [*means.values(), "unclear", "open"]
    border = Evidence(8, 0.02, 0.01, 0.03, above=0.016, smaller=1.0, below=1.0)
    assert claims_rule.decide([border]) == ["holds"]  # 0.016 x 3 <= 0.05
    assert claims_rule.decide([border, None]) == ["unclear", "open"]  # another row of the paper


def test_equal_pass_at_1():
    """Each run is read on the line that first gets to the lower of both ends, 0.4 here."""

    def curve_of(*points):
        return [{"pass@1": x, "pass@16": y} for x, y in points]

    fast = curve_of((0.2, 0.9), (0.6, 0.7), (0.8, 0.4))
    slow = curve_of((0.2, 0.9), (0.5, 0.88), (0.4, 0.86))
    found = [claims_rule.value_at(curve, 0.4, "pass@16") for curve in (fast, slow)]
    assert found == pytest.approx([0.8, 0.86])
    assert claims_rule.value_at(fast, 0.1, "pass@16") == 0.9  # the other has fallen


def test_a_best_rate_has_a_neighbour_on_both_sides():
    """The grid grows from 1e-4 until it has; the choice goes by the last eight steps alone."""
    at_end, lines = {"3e-5": 0.2, "1e-4": 0.3, "3e-4": 0.4, "1e-3": 0.1}, {}
    tried = []
    while missing := claims_runs.rates_to_try(lines, claims_runs.PLAN, "GRPO")[0]:
        tried.append(missing)
        for rate in missing:
            rewards = [0.9] * 40 + [at_end[rate]] * 8
            for seed in claims_runs.TUNING:
                lines["middle", f"GRPO at {rate}", seed] = {"rewards": rewards}
    assert tried == [["3e-5", "1e-4", "3e-4"], ["1e-3"]]
    for base in ("middle", "strong"):
        assert claims_runs.rate_of(lines, claims_runs.PLAN, base, "GRPO") == "3e-4"


@pytest.mark.slow
def test_mine_by_its_command(tmp_path):
    """Two runs of a copy against grpo.py, whose runs are kept for the next time."""
    source = (ROOT / "grpo.py").read_text()
    (tmp_path / "my.py").write_text(source.replace("(rewards - mean)", "2 * (rewards - mean)"))
    for _ in range(2):
        command = ["--mine", "my.py --beta 1", "--quick", "--processes", "1"]
        done = run_study("claims", *command, folder=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "| strong | my.py --beta 1 less grpo.py | " in done.stdout
    assert done.stdout.startswith("| base ")  # all runs were kept
