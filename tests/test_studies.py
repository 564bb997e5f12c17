"""The other studies: what they compute, by hand or in a second way, and that each command runs."""

import project

import default_runs
import fade_section_15
import pytest
import torch
import two_stage_toy
from run_scripts import read_results
from runs import run_study

COMMANDS = "against claims compare default_runs entropy_growth fade_section_15 language_model"
COMMANDS += " make_bases policy_weights report throughput two_stage_toy"


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
    for run in range(2):
        pi = z[run].double().softmax(0).tolist()
        expected = [0.0, 0.0, 0.0]
        for action, advantage in zip(actions[run].tolist(), advantages[run].tolist(), strict=True):
            for other in range(3):
                moved = 1 - pi[other] if other == action else -pi[other]
                expected[other] += moved * advantage / 3
        assert found[run].tolist() == pytest.approx(expected, rel=0, abs=1e-6)


def random(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def test_error_products_are_a_gradient():
    """sum w v h^T is the gradient of sum w log pi(token) by the head, times the temperature."""
    hidden, head, w = random(11, 5), random(7, 5, seed=1), random(11, seed=2)
    tokens = torch.arange(11) % 7
    leaf = head.clone().requires_grad_()
    logprobs = (hidden @ leaf.T / 0.7).log_softmax(1)
    (expected,) = torch.autograd.grad((w * logprobs[range(11), tokens]).sum() * 0.7, leaf)
    found = fade_section_15.error_products(hidden, head, tokens, w, hidden, 0.7)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_fade_section_15_of_a_run(run, no_evaluation, capsys, monkeypatch):
    for name in ("a", "b"):
        assert run("fade", variant="asym", output_dir=name).code == 0
    capsys.readouterr()
    fade_section_15.print_weights([project.Path("a"), project.Path("b")])
    fade_section_15.print_head(project.Path("a"))
    found = capsys.readouterr().out
    assert found.count("\n| 2 | ") == 3 and "| a, b | 1 | 1 |" in found


def test_the_table_of_default_runs_is_the_pages():
    lines = default_runs.table(read_results(default_runs.RESULTS))
    assert "\n".join(lines) in default_runs.PAGE.read_text()
