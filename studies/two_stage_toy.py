"""Algorithm 1 of 001: a softmax policy over a few actions first exploits, and only then explores.

    python studies/two_stage_toy.py        # writes figures/two_stage_toy.png; --steps 1500 --runs 200 --out folder

Action a1 is good and likely, a2 is better but unlikely, a3 is bad. With advantages relative to the group, a1 takes the
place of a3 at first and a2 loses, too (the boundary shrinks); once a1 is nearly all there is, a2 is compared with a1
alone and takes over (it widens again). Rows of the figure: Figure 1 (above, other starts; below, other rewards),
Figure 5 (G), Figure 6 (temperature tau) and Figure 7 (four actions) of the paper, whose numbers are not printed in it:
those here are in each title. Thick: the mean probability over all runs; thin: the first three runs.
"""
import argparse
import sys
from pathlib import Path

import matplotlib
import torch

matplotlib.use("agg")
from matplotlib import pyplot

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from grpo import grpo_advantage

START, REWARDS = (0.80, 0.05, 0.15), (0.6, 1.0, 0.0)
ROWS = {  # what differs from START, REWARDS, G = 2 and tau = 1
    "Fig. 1 above": [dict(start=start) for start in (
        (0.60, 0.10, 0.30), START, (0.90, 0.02, 0.08), (0.35, 0.30, 0.35))],
    "Fig. 1 below": [dict(rewards=(reward, 1.0, 0.0)) for reward in (0.2, 0.4, 0.8, 0.95)],
    "Fig. 5": [dict(G=G) for G in (2, 3, 5, 10)],
    "Fig. 6": [dict(tau=tau) for tau in (1, 2, 5, 20)],
    "Fig. 7": [dict(start=start, rewards=rewards) for start, rewards in (
        ((0.50, 0.30, 0.05, 0.15), (0.4, 0.7, 1.0, 0.0)), ((0.30, 0.50, 0.05, 0.15), (0.4, 0.7, 1.0, 0.0)),
        ((0.70, 0.10, 0.02, 0.18), (0.4, 0.7, 1.0, 0.0)), ((0.50, 0.30, 0.05, 0.15), (0.6, 0.8, 1.0, 0.0)))]}
COLORS = ["#0072B2", "#D55E00", "#888888", "#000000"]


def policy_gradient(z, actions, advantages, tau=1.0):
    """The relative policy gradient of Algorithm 1, by G: every sample moves every logit (Lemma 1).

    z [R, V]: logits of R runs; actions, advantages [R, G] -> [R, V].
    """
    pi = (z / tau).softmax(1)  # [R, V]
    taken = torch.zeros_like(z).scatter_add(1, actions, advantages)  # [R, V], sum of A over the samples of an action
    return (taken - pi * advantages.sum(1, keepdim=True)) / actions.shape[1]


def run_algorithm_1(start, rewards, G=2, tau=1.0, eta=0.1, steps=1500, runs=200, seed=0):
    """Probabilities of the actions before each step and after the last: [steps + 1, R, V]; R independent runs.

    start: the initial probabilities, at temperature tau; rewards: one an action; eta: Adam's learning rate.
    """
    generator = torch.Generator().manual_seed(seed)
    # float64, because Adam makes a step of any gradient above 1e-8, as rounding leaves where no sample was
    rewards, start = torch.tensor([rewards, start], dtype=torch.float64)  # [V] each
    z = (tau * start.log()).repeat(runs, 1).requires_grad_()  # [R, V]
    optimizer = torch.optim.Adam([z], lr=eta, maximize=True)  # elementwise, so that the runs do not meet in it
    history = []
    for _ in range(steps):
        pi = (z.detach() / tau).softmax(1)  # [R, V]
        history.append(pi)
        actions = torch.multinomial(pi, G, replacement=True, generator=generator)  # [R, G]
        advantages = grpo_advantage(rewards[actions], scale_rewards=False)  # [R, G]
        z.grad = policy_gradient(z.detach(), actions, advantages, tau)
        optimizer.step()
    return torch.stack([*history, (z.detach() / tau).softmax(1)])


def main(steps: int, runs: int, out: Path):
    pyplot.rcParams["font.size"] = 17
    figure, axes = pyplot.subplots(len(ROWS), 4, figsize=(26, 27), sharey=True, layout="constrained")
    print(f"{'panel':36} {'a1 is highest':>14} {'best action: lowest, at the end':>32}")
    for row, (name, panels) in zip(axes, ROWS.items()):
        for axis, changed in zip(row, panels, strict=True):
            settings = dict(start=START, rewards=REWARDS) | changed
            history = run_algorithm_1(**settings, steps=steps, runs=runs)  # [steps + 1, R, V]
            mean, best = history.mean(1), settings["rewards"].index(1.0)
            for action, color in zip(range(mean.shape[1]), COLORS):
                axis.plot(history[:, :3, action], color=color, linewidth=0.6, alpha=0.5)
                axis.plot(mean[:, action], color=color, linewidth=4, linestyle=("-", "--", "-.", ":")[action],
                          label=f"a{action + 1}")
            title = "{} = {}".format(*next(iter(changed.items())))
            rewards = ", ".join(f"{reward:g}" for reward in settings["rewards"])
            axis.set(title=f"{name}, {title}\nrewards {rewards}", xlabel="step", xscale="symlog", xlim=(0, steps))
            print(f"{title:36} {'step ' + str(mean[:, 0].argmax().item()):>14} "
                  f"{mean[:, best].min():20.3f} {mean[-1, best]:11.3f}")
        row[0].set_ylabel("probability")
    figure.legend(*axes[-1, 0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    out.mkdir(parents=True, exist_ok=True)
    figure.savefig(out / "two_stage_toy.png", dpi=46)
    print(f"wrote {out / 'two_stage_toy.png'}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--steps", type=int, default=1500, help="updates of each run")
    parser.add_argument("--runs", type=int, default=200, help="independent runs a panel")
    parser.add_argument("--out", type=Path, default=HERE / "figures", help="folder of the figure")
    given = parser.parse_args()
    main(given.steps, given.runs, given.out)
