"""Algorithm 1 of two-stage dynamics: a softmax policy first exploits, and only then explores.

    python studies/papers/two_stage_toy.py          # figures/two_stage_toy.png
    python studies/papers/two_stage_toy.py --all    # two_stage_toy_all.png, the paper's figures

Action a1 is good and likely, a2 is better but unlikely, and a3
is bad. Advantages are relative to the group. So at first a1 takes the place of a3, and a2 loses,
too: the boundary shrinks. Once a1 is nearly all there is, a2 is compared with a1 alone and takes
over: the boundary widens again.

Algorithm 1 names Adam, and prints a plain step: z <- z + eta g / G. The plain step is taken, since
its first stage lasts some 400 steps. Adam's steps are just as long if a gradient is small, so its
first stage is over after 30. The gradient of softmax(z / tau) has a factor 1 / tau, which Algorithm
1 leaves out. So does this, and all temperatures start from the same probabilities.

With --all, the rows are the paper's Figure 1 (above, other starts; below, other rewards), Figure 5
(G), Figure 6 (temperature tau) and Figure 7 (four actions). The paper does not print the numbers
behind its figures; ours are in each title. Thick lines are mean probabilities over all runs, and
thin lines the first three runs.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the project's root

from studies.project import FIGURES, GREY, RIGHT, WRONG

from rlvr.show import SETTINGS

import matplotlib
import torch
from matplotlib.figure import Figure

from grpo import grpo_advantage

START = 0.80, 0.05, 0.15
REWARDS = 0.6, 1.0, 0.0
FOUR_REWARDS = 0.4, 0.7, 1.0, 0.0
ROWS = {  # what differs from START, REWARDS, G = 2 and tau = 1
    "Fig. 1 above": [
        dict(start=(0.60, 0.10, 0.30)),
        dict(start=START),
        dict(start=(0.90, 0.02, 0.08)),
        dict(start=(0.35, 0.30, 0.35)),
    ],
    "Fig. 1 below": [dict(rewards=(reward, 1.0, 0.0)) for reward in (0.2, 0.4, 0.8, 0.95)],
    "Fig. 5": [dict(G=G) for G in (2, 3, 5, 10)],
    "Fig. 6": [dict(tau=tau) for tau in (1, 2, 5, 20)],
    "Fig. 7": [
        dict(start=(0.50, 0.30, 0.05, 0.15), rewards=FOUR_REWARDS),
        dict(start=(0.30, 0.50, 0.05, 0.15), rewards=FOUR_REWARDS),
        dict(start=(0.70, 0.10, 0.02, 0.18), rewards=FOUR_REWARDS),
        dict(start=(0.50, 0.30, 0.05, 0.15), rewards=(0.6, 0.8, 1.0, 0.0)),
    ],
}
OPTIMIZERS = {"plain": torch.optim.SGD, "adam": torch.optim.Adam}
TAUGHT = {  # the panels of the figure: what differs from START and REWARDS
    "First a1 takes over, then a2": dict(),
    "a1 nearly as good as a2: it takes longer": dict(rewards=(0.8, 1.0, 0.0)),
    "Groups of 10, not 2: it takes less": dict(G=10),
}
STYLES = [("#000000", "-"), (RIGHT, "--"), (WRONG, "-."), (GREY, ":")]  # of an action


def policy_gradient(z, actions, advantages, tau=1.0):
    """The relative policy gradient of Algorithm 1, by G: a sample moves every logit (Lemma 1).

    z [R, V]: logits of R runs; actions, advantages [R, G] -> [R, V].
    """
    pi = (z / tau).softmax(1)  # [R, V]
    # the sum of A over the samples of an action
    taken = torch.zeros_like(z).scatter_add(1, actions, advantages)  # [R, V]
    return (taken - pi * advantages.sum(1, keepdim=True)) / actions.shape[1]


def run_algorithm_1(
    start, rewards, G=2, tau=1.0, eta=0.1, steps=20_000, runs=100, optimizer="plain", seed=0
):
    """Probabilities of the actions before each step and after the last one, of R independent runs.

    start: the initial probabilities, at temperature tau; rewards: one an action; eta: the learning
    rate of the optimizer, one of OPTIMIZERS. Returns [steps + 1, R, V].
    """
    generator = torch.Generator().manual_seed(seed)
    # float64, because Adam makes a step of any gradient above 1e-8, even of a rounding error
    rewards, start = torch.tensor([rewards, start], dtype=torch.float64)  # [V] each
    z = (tau * start.log()).repeat(runs, 1).requires_grad_()  # [R, V]
    # Both optimizers work number by number, so the runs do not meet in them.
    optimizer = OPTIMIZERS[optimizer]([z], lr=eta, maximize=True)
    history = []
    for _ in range(steps):
        pi = (z.detach() / tau).softmax(1)  # [R, V]
        history.append(pi)
        actions = torch.multinomial(pi, G, replacement=True, generator=generator)  # [R, G]
        advantages = grpo_advantage(rewards[actions], scale_rewards=False)  # [R, G]
        z.grad = policy_gradient(z.detach(), actions, advantages, tau)
        optimizer.step()
    return torch.stack([*history, (z.detach() / tau).softmax(1)])


def draw_panel(axis, history: torch.Tensor) -> None:
    """Probabilities [steps + 1, R, V] against the step."""
    mean = history.mean(1)  # [steps + 1, V]
    for action in range(mean.shape[1]):
        color, line = STYLES[action]
        name = f"a{action + 1}"
        axis.plot(history[:, :3, action], color=color, linewidth=0.6, alpha=0.5)
        axis.plot(mean[:, action], color=color, linewidth=4, linestyle=line, label=name)
    axis.set(xlabel="step", xscale="symlog", xlim=(0, len(history) - 1))


def draw_taught(steps: int, optimizer: str) -> Figure:
    """The three panels that tell the story."""
    figure = Figure(figsize=(18, 5.5), layout="constrained")
    axes = figure.subplots(1, len(TAUGHT), sharey=True)
    for axis, (title, changed) in zip(axes, TAUGHT.items(), strict=True):
        settings = dict(start=START, rewards=REWARDS) | changed
        draw_panel(axis, run_algorithm_1(**settings, steps=steps, optimizer=optimizer))
        axis.set(title=title)
    axes[0].set_ylabel("probability")
    labels = ["a1: good, likely", "a2: best, unlikely", "a3: bad"]
    figure.legend(axes[0].lines[3::4], labels, loc="outside lower center", ncols=3)
    return figure


def draw_all(steps: int, optimizer: str) -> Figure:
    """All panels of the paper's figures."""
    figure = Figure(figsize=(26, 27), layout="constrained")
    axes = figure.subplots(len(ROWS), 4, sharey=True)
    for row, (name, panels) in zip(axes, ROWS.items(), strict=True):
        for axis, changed in zip(row, panels, strict=True):
            settings = dict(start=START, rewards=REWARDS) | changed
            history = run_algorithm_1(**settings, steps=steps, optimizer=optimizer)
            draw_panel(axis, history)  # of [steps + 1, R, V]
            what, value = next(iter(changed.items()))
            rewards = ", ".join(f"{reward:g}" for reward in settings["rewards"])
            axis.set(title=f"{name}, {what} = {value}\nrewards {rewards}")
        row[0].set_ylabel("probability")
    figure.legend(*axes[-1, 0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--steps", type=int, default=20_000, help="updates of each run")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="plain", help="what steps")
    parser.add_argument("--all", action="store_true", help="all panels of the paper's figures")
    given = parser.parse_args()
    with matplotlib.rc_context(SETTINGS):
        if given.all:
            draw_all(given.steps, given.optimizer).savefig(Path("two_stage_toy_all.png"), dpi=46)
        else:
            figure = draw_taught(given.steps, given.optimizer)
            figure.savefig(FIGURES / "two_stage_toy.png", dpi=70)
