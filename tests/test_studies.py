"""The other studies: their numbers by hand or in a second way, and the quick mode of each."""

import copy
import math
import subprocess
import sys
from types import SimpleNamespace

import project

import rlvr.config
import rlvr.logprobs
import rlvr.samplers
import rlvr.tasks.datasets
import rlvr.tasks.stream
from rlvr.tasks.verifiers import VERIFIERS

import costs
import entropy_growth
import measure
import policy_weights
import pytest
import throughput
import torch
import two_stage_toy
from runs import ENVIRONMENT

import common
from asymgrpo import asymgrpo_advantage

SCRIPTS = [  # what is started by its name; the rest is imported by these
    "startup",
    "data_load",
    "default_runs",
    "verify_agreement",
]
IMPORTS_TORCH = [
    "claims",
    "compare",
    "bf16_cost",
    "costs",
    "entropy_growth",
    "gpu",
    "head_geometry",
    "make_bases",
    "policy_weights",
    "reset_layers",
    "soak",
    "sweep",
    "throughput",
    "two_stage_toy",
    "verify_load",
    "weight_space",
]
FOR_HELP = """
import os, runpy, sys
import matplotlib.figure, rlvr.models, rlvr.run, rlvr.samplers
for study in sys.argv[1:]:
    if os.fork() == 0:
        sys.path[0] = os.path.dirname(study)
        sys.argv = [study, "--help"]
        sys.exit(runpy.run_path(study, run_name="__main__"))
    status = os.wait()[1]
    if status:
        sys.exit(f"{study}: {status}")
"""


@pytest.mark.parametrize("study", SCRIPTS)
def test_help_from_any_folder(study, tmp_path):
    command = [sys.executable, project.STUDIES / f"{study}.py", "--help"]
    done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "usage" in done.stdout.lower()


@pytest.mark.slow
def test_help_of_what_imports_torch(tmp_path):
    """Each in a child of a process that has imported it, which takes most of the time."""
    studies = [str(project.STUDIES / f"{study}.py") for study in IMPORTS_TORCH]
    command = [sys.executable, "-c", FOR_HELP, *studies]
    found = {**ENVIRONMENT, "PYTHONPATH": str(project.STUDIES.parent)}
    done = subprocess.run(command, cwd=tmp_path, env=found, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("usage: ") == len(studies)


# ------------------------------------------------------------------- entropy_growth.py


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
    config = rlvr.config.Config(
        num_generations=4, prompts_per_step=4, minibatch_size=16, max_completion_length=6
    )
    problems, _ = rlvr.tasks.datasets.load_problems(config, tokenizer)
    sampler = rlvr.samplers.make_sampler(policy, tokenizer, config)
    stream = rlvr.tasks.stream.ProblemStream(problems, 0)
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

    def total_entropy_after(beta, size):
        """After a step along the gradient of (beta, 0), over the two groups that are mixed."""
        _, means = entropy_and_means()
        advantages = asymgrpo_advantage(rewards[:2], beta, 0.0)
        objective = (advantages * means[:2]).sum() / 16
        gradient = torch.autograd.grad(objective, policy.parameters())
        move(gradient, size)
        after, _ = entropy_and_means()
        move(gradient, -size)
        return after.item()

    def slope(beta):
        size = 1e-4  # the norms of transformers stay in float32
        return (total_entropy_after(beta, size) - total_entropy_after(beta, -size)) / (2 * size)

    assert found["growth"] == pytest.approx(slope(0.1) - slope(0.0), rel=2e-3)
    _, means = entropy_and_means()
    hard, easy, *_ = means.tolist()
    hard_gap = hard[0] - sum(hard[1:]) / 3
    easy_gap = (easy[0] + easy[1] + easy[3]) / 3 - easy[2]
    kappa = 3 / 16 * (hard_gap * math.log(1 / 3) + easy_gap * math.log(3)) / 2
    assert found == pytest.approx(
        dict(
            hard=1,
            easy=1,
            hard_gap=hard_gap,
            easy_gap=easy_gap,
            growth=found["growth"],
            kappa=kappa,
        )
    )


# -------------------------------------------------------------------- two_stage_toy.py


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


def test_toy_first_step_of_adam_moves_each_logit_by_eta():
    start, rewards = (0.5, 0.2, 0.3), (0.6, 1.0, 0.0)
    before, after = two_stage_toy.run_algorithm_1(start, rewards, G=3, steps=1, runs=50).log()
    moved = (after - after[:, :1]) - (before - before[:, :1])  # [R, V], of z less that of a1
    # Each logit goes up or down by 0.1, or stays, as that of an action that was not drawn does.
    for size in moved.flatten().abs().tolist():
        assert min(abs(size - possible) for possible in (0, 0.1, 0.2)) < 1e-6
    assert {round(value, 3) for value in moved.flatten().tolist()} >= {-0.2, 0.0, 0.2}


def test_toy_exploits_and_then_explores():
    start, rewards = (0.8, 0.05, 0.15), (0.6, 1.0, 0.0)
    history = two_stage_toy.run_algorithm_1(start, rewards, steps=400, runs=100).mean(1)
    first = history[:, 0].argmax().item()
    assert 5 < first < 100
    assert history[first, 0] > 0.85  # a1 rises first, while a2 waits
    assert history[:first, 1].min() < 0.05
    assert history[-1, 1] > 0.9


@pytest.mark.slow
def test_toy_quick_mode(tmp_path, capsys):
    two_stage_toy.main(steps=10, runs=4, out=tmp_path)
    assert (tmp_path / "two_stage_toy.png").exists()
    assert capsys.readouterr().out.count("step ") == 20  # a line a panel


# ------------------------------------------------------------------- policy_weights.py


def test_groups_of_every_success_rate():
    assert policy_weights.all_groups(4).tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]]


def test_masses_that_are_drawn():
    figure = policy_weights.draw_masses(8)
    masses = {
        axis.get_title(): [line.get_ydata().tolist() for line in axis.lines] for axis in figure.axes
    }
    p = [k / 8 for k in range(1, 8)]
    assert masses["mean"] == [pytest.approx([x * (1 - x) for x in p])] * 2  # p q
    # p q^alpha
    assert masses["FADE, few solved"][0] == pytest.approx([x * (1 - x) ** 3 for x in p])
    assert masses["AsymGRPO (0.9, 0.4)"] == [  # AsymGRPO Eqs. 9 and 10
        pytest.approx([x**0.1 * (1 - x) ** 0.9 for x in p]),
        pytest.approx([x**0.4 * (1 - x) ** 0.6 for x in p]),
    ]


def test_ratios_of_table_7():
    """rho(p) is p/q where the masses are equal, and what the masses of section 8 say elsewhere."""
    rho = {
        title.partition("\n")[0]: [
            policy_weights.positive_to_negative(weight, p) for p in (0.3, 0.5)
        ]
        for title, weight in policy_weights.weights_to_draw().items()
    }
    balanced = pytest.approx([3 / 7, 1.0])
    for name in ("mean", "grpo", "skew_r", "maxrl", "power", "easy_power", "mix_pass_k", "softmax"):
        assert rho[name] == balanced, name
    assert rho["asym"] == pytest.approx([0.5 * 3 / 7, 0.5])  # delta is 1/2
    assert rho["reinforce"] == pytest.approx([(3 / 7) ** 2, 1.0])  # masses p and q
    assert rho["shifted"] == pytest.approx([0.09 * 0.6 / (0.49 * 0.4), 0.4 / 0.6])  # delta is 0.1
    assert rho["relu"] == [math.inf, math.inf]  # no negative mass
    assert rho["ha_dw"] == pytest.approx([math.exp(0.4) * 3 / 7, 1.0])  # e^(C-p) / e^(p-C)
    assert rho["FADE, low entropy"] == pytest.approx([0.3 * 3 / 7, 0.3])


def test_advantages_that_are_drawn():
    figure = policy_weights.draw_advantages(8)
    upper, lower = figure.axes[:5], figure.axes[5:]
    titles = ["GRPO and its variants", "A-GRAE", "AsymGRPO", "FADE", "CW-GRPO, token mean"]
    assert [axis.get_title() for axis in upper] == titles
    p = [k / 8 for k in range(1, 8)]
    grpo_of_a_success = upper[0].lines[0].get_ydata().tolist()
    assert grpo_of_a_success == pytest.approx([((1 - x) / x) ** 0.5 for x in p])
    grpo_of_a_failure = lower[0].lines[0].get_ydata().tolist()
    assert grpo_of_a_failure == pytest.approx([-((x / (1 - x)) ** 0.5) for x in p])


@pytest.mark.slow
def test_policy_weights_quick_mode(tmp_path):
    policy_weights.main(8, tmp_path)
    assert (tmp_path / "policy_weights.png").exists()
    assert (tmp_path / "advantages.png").exists()


# ----------------------------------------------------------------------- throughput.py


def test_table_has_medians_and_ratios():
    def rows(*steps):
        return [
            dict(generate=1.0, step=step, update=step - 1, tokens=100, GB=0.5) for step in steps
        ]

    lines = throughput.table({"grpo.py": rows(2, 9, 4), "TRL": rows(8, 8, 5)}).splitlines()
    assert lines[0] == "| | grpo.py | TRL | ratio |"
    cells = {}
    for line in lines[2:]:
        name, *rest = line.strip("| ").split(" | ")
        cells[name] = rest
    assert cells["step (s)"] == ["4", "8", "0.50"]
    assert cells["update (s)"] == ["3", "7", "0.43"]
    assert cells["tokens/s"] == ["25", "12.5", "2.00"]
    assert cells["GB"] == ["0.5", "0.5", "1.00"]
    assert cells["verify (s)"][:2] == ["0", "0"]  # no time at all, and no ratio to it


def test_turns_share_a_step_out(monkeypatch):
    clock = iter([0.0, 1.0, 4.0, 5.0, 6.0, 10.0, 10.0])
    monkeypatch.setattr(throughput, "now", lambda: next(clock))
    monkeypatch.setattr(throughput, "memory_now", lambda: 0)
    monkeypatch.setattr(throughput, "peak_memory", lambda: 2e9)
    sent = []
    pipe = SimpleNamespace(recv=lambda: "go", send=sent.append)
    side = SimpleNamespace(generate=lambda: ([[1, 2], [3]], "logprobs"), score=lambda: None)
    counted = iter([True])
    turns = throughput.Turns(pipe)
    turns.time(side, "generate", "generate")
    turns.time(side, "score", "old log-probs", lambda: next(counted))
    turns.begin()  # at 0
    side.generate()  # from 1 to 4
    side.score()  # from 5 to 6
    turns.over()  # at 10
    parts = {"generate": 3, "old log-probs": 1, "update": 6, "step": 10}
    assert sent == [{**parts, "tokens": 3, "GB": 2}]


def test_half_of_a_random_policys_rewards_are_1(monkeypatch):
    monkeypatch.setitem(VERIFIERS, "countdown", VERIFIERS["countdown"])  # put back afterwards
    throughput.toss_a_coin()
    verify = VERIFIERS["countdown"].verify
    tosses = [verify("wrong", "1 2 : 3 ") for _ in range(1000)]
    assert {*tosses} == {0.0, 1.0}
    assert 400 < sum(tosses) < 600
    assert verify("<answer>1+2</answer>", "1 2 : 3 ") == 1.0


# -------------------------------------------------------- measure.py, costs.py, gpu.py


@pytest.mark.skipif(sys.platform != "linux", reason="a process's peak is read from Linux's /proc")
def test_measured_memory_is_what_is_allocated():
    _, gigabytes = measure.measured(lambda: torch.ones(2**26), 2)  # 2**28 bytes
    assert 0.26 < gigabytes < 0.30


def test_log_probs_that_are_compared_are_the_same():
    torch.manual_seed(0)
    hidden = torch.randn(600, 8, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(50, 8, dtype=torch.float64, requires_grad=True)
    targets = torch.arange(600) % 50
    assert len(hidden) > 2 * costs.CHECKPOINTED_ROWS
    results = []
    for way in ("ours", "naive", "checkpoint"):
        logprobs, entropy = costs.WAYS[way](hidden, weight, targets, 0.7)
        loss = (logprobs * torch.arange(600)).sum() + (entropy**2).sum()
        results.append((logprobs, entropy, *torch.autograd.grad(loss, (hidden, weight))))
    for other in results[1:]:
        torch.testing.assert_close(results[0], other, rtol=1e-9, atol=1e-9)


def test_wasted_shares():
    shares = dict(costs.waste())
    assert shares["`generate` after every row has ended"] == 0
    assert shares["prompts of 100 tokens that 1 completions repeat"] == 0
    small, middle, large = (
        share for name, share in shares.items() if "padding in microbatches" in name
    )
    assert 0 < small < middle < large < 1


@pytest.mark.slow
def test_costs_quick_mode(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["costs.py", "--quick", "--out", str(tmp_path)])
    costs.main()
    lines = capsys.readouterr().out
    assert (tmp_path / "costs.png").stat().st_size > 10_000
    for row in (
        "64 tokens a completion",
        "1 completions a prompt",
        "64 words in the vocabulary",
        "ours",
        "checkpoint",
    ):
        assert f"| {row} | " in lines


@pytest.mark.longest
@pytest.mark.parametrize(
    "study, rows",
    [
        (
            "throughput",
            [
                "generate (s)",
                "verify (s)",
                "old log-probs (s)",
                "update (s)",
                "step (s)",
                "tokens/s",
                "GB",
            ],
        ),
        (
            "gpu",
            [
                "small training, model FLOPs utilisation",
                "small generate, share of the bandwidth's limit",
                "small generate, mean difference to the trainer's log-probs, nats",
            ],
        ),
        ("bf16_cost", ["rollout", "update"]),
        (
            "startup",
            [
                "`grpo.py`, --help",
                "import torch",
                "first update",
                "the first step is done after",
            ],
        ),
    ],
)
def test_quick_mode_of_the_benchmarks(study, rows, tmp_path):
    command = [sys.executable, project.STUDIES / f"{study}.py", "--quick"]
    done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    numbers = {}
    for line in done.stdout.splitlines():
        if line.startswith("| ") and " | " in line:
            name, number, *_ = line.strip("| ").split(" | ")
            numbers[name] = number
    for row in rows:
        assert float(numbers[row].replace(",", "").rstrip("%")) >= 0
