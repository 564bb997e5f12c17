"""Algorithm 1 of two-stage dynamics: a softmax policy first exploits, and only then explores.

    python studies/papers/two_stage_toy.py    # figures/two_stage_toy.png, in a minute

Action a1 is good and likely, a2 is better but unlikely, and a3 is bad. Advantages are relative to
the group. So at first a1 takes the place of a3, and a2 loses, too: the boundary shrinks. Once a1 is
nearly all there is, a2 is compared with a1 alone and takes over: the boundary widens again.

Algorithm 1 names Adam, and prints a plain step: z <- z + eta g / G. The plain step is taken, since
its first stage lasts some 400 steps. Adam's steps are just as long if a gradient is small, so its
first stage is over after 30. Thick lines are mean probabilities over all runs, and thin lines the
first three runs.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the project's root

from studies.project import FIGURES, RIGHT, WRONG

from rlvr.show import SETTINGS

import matplotlib
import torch
from matplotlib.figure import Figure

from grpo import grpo_advantage

START = 0.80, 0.05, 0.15
REWARDS = 0.6, 1.0, 0.0
PANELS = {  # what differs from REWARDS and G = 2
    "First a1 takes over, then a2": dict(),
    "a1 nearly as good as a2: it takes longer": dict(rewards=(0.8, 1.0, 0.0)),
    "Groups of 10, not 2: it takes less": dict(G=10),
}
ACTIONS = {  # colour and line
    "a1: good, likely": ("#000000", "-"),
    "a2: best, unlikely": (RIGHT, "--"),
    "a3: bad": (WRONG, "-."),
}


def policy_gradient(z, actions, advantages):
    """Return the policy gradient of Algorithm 1, over G: a sample moves every logit (Lemma 1).

    z [R, V]: logits of R runs; actions, advantages [R, G] -> [R, V].
    """
    # the sum of A over the samples of an action
    taken = torch.zeros_like(z).scatter_add(1, actions, advantages)  # [R, V]
    return (taken - z.softmax(1) * advantages.sum(1, keepdim=True)) / actions.shape[1]


def run_algorithm_1(rewards=REWARDS, G=2, eta=0.1, steps=20_000, runs=100):
    """Return the probabilities of V actions before each step and after the last one.

    They are those of R independent runs from START -> [steps + 1, R, V].
    """
    generator = torch.Generator().manual_seed(0)
    rewards, start = torch.tensor([rewards, START], dtype=torch.float64)  # [V] each
    z = start.log().repeat(runs, 1)  # [R, V]
    history = [z.softmax(1)]
    for _ in range(steps):
        actions = torch.multinomial(history[-1], G, replacement=True, generator=generator)  # [R, G]
        advantages = grpo_advantage(rewards[actions], scale_rewards=False)  # [R, G]
        z = z + eta * policy_gradient(z, actions, advantages)
        history.append(z.softmax(1))
    return torch.stack(history)


def draw() -> Figure:
    """The three panels: probability against step."""
    figure = Figure(figsize=(18, 5.5), layout="constrained")
    axes = figure.subplots(1, len(PANELS), sharey=True)
    for axis, (title, changed) in zip(axes, PANELS.items(), strict=True):
        history = run_algorithm_1(**changed)
        for action, (name, (color, line)) in enumerate(ACTIONS.items()):
            of_action = history[:, :, action]  # [steps + 1, R]
            axis.plot(of_action[:, :3], color=color, linewidth=0.6, alpha=0.5)
            axis.plot(of_action.mean(1), color=color, linewidth=4, linestyle=line, label=name)
        axis.set(title=title, xlabel="step", xscale="symlog", xlim=(0, len(history) - 1))
    axes[0].set_ylabel("probability")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


if __name__ == "__main__":
    with matplotlib.rc_context(SETTINGS):
        draw().savefig(FIGURES / "two_stage_toy.png", dpi=70)
