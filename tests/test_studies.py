"""The other studies: what they compute, by hand or in a second way, and that each command runs."""

import copy
import json
import math
import subprocess
import sys

import project

import rlvr.flags.config
import rlvr.rollout.samplers
import rlvr.tasks.datasets
import rlvr.tasks.problems

import against
import compare
import default_runs
import entropy_growth
import fade_section_15
import policy_weights
import pytest
import throughput
import torch
import two_stage_toy
from run_scripts import read_results
from runs import ENVIRONMENT, run_study

import common
from asymgrpo import asymgrpo_advantage

COMMANDS = "against claims compare default_runs entropy_growth fade_section_15 language_model"
COMMANDS += " make_bases policy_weights report throughput two_stage_toy"


@pytest.mark.slow
@pytest.mark.parametrize("study", COMMANDS.split())
def test_help_from_any_folder(study, tmp_path):
    done = run_study(study, "--help", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: ")


def test_growth_is_what_a_small_step_adds(tiny):
    """By a finite difference: the entropy on the same tokens after a small step.

    The step goes along the gradient that is added.
    """
    policy, tokenizer = copy.deepcopy(tiny)
    policy = policy.double()
    # padding drawn by an untrained policy would have no gradient
    policy.get_input_embeddings().padding_idx = None
    with torch.no_grad():
        for parameter in policy.parameters():
            if parameter.dim() == 2:
                parameter *= 2  # as they are, all distributions are nearly uniform
    config = rlvr.flags.config.Config(
        num_generations=4, prompts_per_step=4, minibatch_size=16, max_completion_length=6
    )
    problems, _ = rlvr.tasks.datasets.load_problems(config, tokenizer)
    sampler = rlvr.rollout.samplers.make_sampler(policy, tokenizer, config, common.decode)
    stream = rlvr.tasks.problems.ProblemStream(problems, 0)
    torch.manual_seed(0)
    samples = common.roll_out(sampler, stream, config).samples
    rewards = torch.tensor(
        [[1, 0, 0, 0], [1, 1, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1]], dtype=torch.float64
    )
    found = entropy_growth.entropy_growth(policy, samples, rewards, 1.0)

    def entropy_and_means():
        logprobs, entropy = common.token_logprobs(policy, samples, range(16))
        lengths = torch.tensor([len(sample.completion_ids) for sample in samples])
        return entropy.sum() / lengths.sum(), (logprobs.sum(1) / lengths).view(4, 4)

    def move(gradient, size):
        with torch.no_grad():
            for parameter, slope in zip(policy.parameters(), gradient, strict=True):
                parameter += size * slope

    def slope(beta, size=1e-4):  # not smaller: the norms of transformers stay in float32
        """Of the entropy along the gradient of (beta, 0), over the two groups that are mixed."""
        advantages = asymgrpo_advantage(rewards[:2], beta, 0.0)
        objective = (advantages * entropy_and_means()[1][:2]).sum() / 16
        gradient = torch.autograd.grad(objective, policy.parameters())
        move(gradient, size)
        above = entropy_and_means()[0].item()
        move(gradient, -2 * size)
        below = entropy_and_means()[0].item()
        move(gradient, size)
        return (above - below) / (2 * size)

    assert found["growth"] == pytest.approx(slope(0.1) - slope(0.0), rel=2e-3)
    _, means = entropy_and_means()
    hard, easy, *_ = means.tolist()
    hard_gap = hard[0] - sum(hard[1:]) / 3
    easy_gap = (easy[0] + easy[1] + easy[3]) / 3 - easy[2]
    kappa = 3 / 16 * (hard_gap * math.log(1 / 3) + easy_gap * math.log(3)) / 2
    rest = dict(hard=1, easy=1, hard_gap=hard_gap, easy_gap=easy_gap, kappa=kappa)
    assert found == pytest.approx(rest | {"growth": found["growth"]})


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


def test_the_toy_steps_as_printed_or_by_adam():
    """The plain step is eta g / G; Adam's first one is eta, whatever the size of the gradient."""
    start, rewards = torch.tensor([0.6, 0.1, 0.3], dtype=torch.float64), [0.6, 1.0, 0.0]
    first = dict(start=start.tolist(), rewards=rewards, steps=1, runs=50)
    z = start.log()[None]
    groups = torch.cartesian_prod(torch.arange(3), torch.arange(3))
    advantages = torch.tensor(rewards, dtype=torch.float64)[groups]
    advantages = advantages - advantages.mean(1, keepdim=True)
    gradients = two_stage_toy.policy_gradient(z.repeat(9, 1), groups, advantages)
    signs = gradients / (gradients.abs() + 1e-8)  # 0 where a gradient is but rounding
    for optimizer, steps in (("plain", 0.1 * gradients), ("adam", 0.1 * signs)):
        after = two_stage_toy.run_algorithm_1(**first, optimizer=optimizer)[-1]
        possible = (z + steps).softmax(1)  # [9, 3], of each group of two actions
        distances = (after[:, None] - possible).abs().amax(2).amin(1)  # [runs]
        assert distances.max() < 1e-6
        assert len({*after[:, 0].tolist()}) > 2


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


def test_leading_vectors_are_those_of_the_svd():
    matrix = random(9, 4)
    U, _, Vh = torch.linalg.svd(matrix)
    for found, expected in (
        (fade_section_15.leading_right_vector(matrix), Vh[0]),
        (fade_section_15.leading_left_vector(matrix), U[:, 0]),
    ):
        assert abs(fade_section_15.cosine(found, expected)) == pytest.approx(1, abs=1e-9)


def test_numbers_of_a_change_by_hand():
    """Squares: 16 + 4 of the head, whose u is (2, 0, 1) / sqrt(5); 4 and 1 of layers, 0 else."""
    change = {
        "head.weight": torch.tensor([[0.0, 4.0], [0.0, 0.0], [0.0, 2.0]]),
        "layers.0.w": torch.tensor([2.0]),
        "layers.1.w": torch.tensor([1.0]),
        "norm": torch.tensor([0.0]),
    }
    found = fade_section_15.describe(change, "head.weight")
    assert found["L2"] == pytest.approx(5)
    assert found["head"] == pytest.approx(20 / 25)
    assert found["a layer"] == pytest.approx(5 / 2 / 25)
    assert found["layer 0"] == pytest.approx(4 / 25)
    assert found["r1"] == pytest.approx(1)
    assert found["one sign"] == pytest.approx(2 / 3)
    assert found["half of u"] == pytest.approx(1 / 3)


def test_mean_pairwise_cosine():
    """(1, 0), (-1, 0) and (0, 1): one pair of three is opposite."""
    star = torch.tensor([[1.0, 0.0], [-2.0, 0.0], [0.0, 1.0]])
    assert fade_section_15.mean_pairwise_cosine(star) == pytest.approx(-1 / 3)


@pytest.mark.slow
def test_fade_section_15_of_a_run(run, no_evaluation, capsys, monkeypatch):
    for name in ("a", "b"):
        assert run("fade", variant="asym", output_dir=name).code == 0
    capsys.readouterr()
    fade_section_15.print_weights([project.Path("a"), project.Path("b")])
    fade_section_15.print_head(project.Path("a"))
    found = capsys.readouterr().out
    assert found.count("\n| 2 | ") == 3 and "| a, b | 1 | 1 |" in found


def test_own_loss_row_by_row():
    """GRPO's loss written out: a mean over completions of means over their tokens."""
    batch, flags = against.random_batch(0), against.flags_of("grpo", "grpo")
    advantages = against.advantages_of("grpo", batch)
    total = 0.0
    for row in range(len(batch.mask)):
        length = int(batch.mask[row].sum())
        for token in range(length):
            at = (row, token)
            ratio = (batch.logprobs[at] - batch.old_logprobs[at]).exp().item()
            a = advantages[at].item()
            step = min(ratio * a, min(max(ratio, 0.8), 1.2) * a)
            log_ratio = (batch.ref_logprobs[at] - batch.logprobs[at]).item()
            kl = torch.tensor(log_ratio).exp().item() - log_ratio - 1
            total -= (step - 0.3 * kl + 0.1 * batch.entropy[at].item()) / length
    loss = against.own_loss(batch, advantages, flags).item()
    assert loss == pytest.approx(total / len(batch.mask), rel=1e-6)


def test_table_has_medians_and_ratios():
    def steps(*seconds):
        return [{"step (s)": value, "memory (GB)": 0.0} for value in seconds]

    lines = throughput.table({"grpo.py": steps(2, 9, 4), "TRL": steps(8, 8, 5)})
    assert lines[2:] == ["| step (s) | 4 | 8 | 0.50 |", "| memory (GB) | 0 | 0 |  |"]


def test_ratio_of_gradient_masses_of_the_mean_weight():
    """FADE Table 7: the mean weight has m_S = m_F = p q, so rho = p / q."""
    mean = policy_weights.weights_to_draw()["mean"]
    assert policy_weights.positive_to_negative(mean, 0.3) == pytest.approx(3 / 7)


def test_smooth_and_groups_of_compare(tmp_path):
    assert compare.smooth(compare.np.array([1.0, 3.0, 5.0]), 2).tolist() == [1, 2, 4]
    for name, seed, beta in (("a", 0, 0), ("b", 1, 0), ("c", 0, 1)):
        (tmp_path / name).mkdir()
        config = dict(variant="grpo", seed=seed, beta=beta, output_dir=name)
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    groups = compare.group_runs([tmp_path / name for name in "abc"])
    assert {label: len(folders) for label, folders in groups.items()} == {
        "grpo beta=0": 2,
        "grpo beta=1": 1,
    }


def test_the_table_of_default_runs_is_the_pages():
    lines = default_runs.table(read_results(default_runs.RESULTS))
    assert "\n".join(lines) in default_runs.PAGE.read_text()


KILLED = """
import sys, time, pathlib
import processes

def work(file):
    pathlib.Path(file).write_text("")
    time.sleep(600)

if __name__ == "__main__":
    processes.alone(work, sys.argv[1])
"""


@pytest.mark.slow
def test_a_killed_study_ends_its_children(tmp_path):
    """Its standard output is closed only when it and all of its children have ended."""
    (tmp_path / "study.py").write_text(KILLED)
    process = subprocess.Popen(
        [sys.executable, tmp_path / "study.py", tmp_path / "started"],
        stdout=subprocess.PIPE,
        env={**ENVIRONMENT, "PYTHONPATH": f"{project.STUDIES}:{project.ROOT}"},
    )
    while not (tmp_path / "started").exists():
        assert process.poll() is None
    process.kill()
    process.communicate(timeout=30)
