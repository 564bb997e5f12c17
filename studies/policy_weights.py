"""What each method gives a group with success rate p: its gradient masses, and the advantages behind them.

    python studies/policy_weights.py    # writes policy_weights.png and advantages.png; --group_size 64, --out folder

policy_weights.png (003 Figure 2): m_S, the share of the gradient that reinforces successes, and m_F, the share that
suppresses failures, of every policy weight of section 8. advantages.png: what one success and one failure are worth
under the five scripts' methods.
"""
import argparse
import sys
from functools import partial
from pathlib import Path

import matplotlib
import torch

matplotlib.use("agg")
from matplotlib import pyplot

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from agrae import agrae_advantage, controlled_advantage
from asymgrpo import asymgrpo_advantage
from cwgrpo import covariance_weights
from fade import POLICY_WEIGHTS, fade_advantage, gradient_mass
from grpo import grpo_advantage, negative_only

ARGUMENTS = {  # of the policy weights that have no defaults
    "analytic_pass_k": dict(k=4), "mix_pass_k": dict(k=4), "asym_power": dict(alpha_s=2, alpha_f=1.5),
    "shifted": dict(delta=0.1), "quantile": dict(tau=0.75), "power_norm": dict(gamma=0.25), "softmax": dict(beta=2.0),
    "logmeanexp": dict(beta=2.0)}
COLORS = ["#000000", "#D55E00", "#0072B2", "#009E73"]  # Okabe and Ito's, which the colour-blind can tell apart


def all_groups(group_size: int) -> torch.Tensor:
    """One group for each success rate strictly between 0 and 1, successes first: [G - 1, G]."""
    return torch.ones(group_size - 1, group_size).tril()


def draw_masses(group_size: int, file: Path):
    """m_S and m_F against p, one panel a policy weight; FADE's two ends and the methods of 000 and 002 follow."""
    rewards = all_groups(group_size)
    p = rewards.mean(1)  # [G - 1]
    weights = {name: partial(weight, **ARGUMENTS.get(name, {})) for name, weight in POLICY_WEIGHTS.items()} | {
        "FADE, few solved": partial(fade_advantage, alpha=3.0, delta=1.0),
        "FADE, low entropy": partial(fade_advantage, alpha=1.0, delta=0.3),
        "A-GRAE, w = 0.2": lambda r: agrae_advantage(grpo_advantage(r), r.mean(1), 0.2),
        "A-GRAE, w = 0.8": lambda r: agrae_advantage(grpo_advantage(r), r.mean(1), 0.8),
        "AsymGRPO (0.9, 0.4)": asymgrpo_advantage}
    figure, axes = pyplot.subplots(4, 6, figsize=(27, 17), sharex=True, layout="constrained")
    for axis, (name, weight) in zip(axes.flat, weights.items(), strict=True):
        m_S, m_F = gradient_mass(weight(rewards), rewards)  # [G - 1] each
        axis.plot(p, m_S, color=COLORS[2], linewidth=3.5, label="m_S, successes")
        axis.plot(p, m_F, color=COLORS[1], linewidth=3.5, linestyle="--", label="m_F, failures")
        arguments = ", ".join(f"{key} = {value}" for key, value in ARGUMENTS.get(name, {}).items())
        axis.set(title=f"{name}\n{arguments}" if arguments else name)
        axis.set_ylim(min(0, axis.get_ylim()[0]))
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    for axis in axes[-1]:
        axis.set_xlabel("success rate p of the group")
    figure.savefig(file, dpi=60)


def cwgrpo_advantage(rewards: torch.Tensor, confidence: float) -> torch.Tensor:
    """Mean weighted advantage of a group whose successes are `confidence` nats likelier than its failures."""
    generator, base = torch.Generator().manual_seed(0), grpo_advantage(rewards)
    logprobs = -torch.empty(*rewards.shape, 200).exponential_(2.0, generator=generator)  # [B, G, T]
    logprobs = logprobs + confidence * (rewards - 1)[..., None]
    weights = covariance_weights(logprobs, base, torch.ones_like(logprobs))
    return (weights * base[..., None]).mean(2)


def draw_advantages(group_size: int, file: Path):
    """The advantage of one success (above) and of one failure (below) against p, one column a script."""
    rewards = all_groups(group_size)
    p, base = rewards.mean(1), grpo_advantage(rewards)  # [G - 1], [G - 1, G]
    panels = {
        "GRPO and its variants (000, 001)": {
            "GRPO": base, "Dr.GRPO": grpo_advantage(rewards, scale_rewards=False), "GRPO-N": negative_only(base)},
        "A-GRAE (000)": {
            "GRPO": base, "w = 0.2": agrae_advantage(base, p, 0.2), "w = 0.8": agrae_advantage(base, p, 0.8),
            "hard focused": controlled_advantage(base, p, "hard_focused")},
        "AsymGRPO (002)": {
            "GRPO (0.5, 0.5)": base, "(0.9, 0.4)": asymgrpo_advantage(rewards),
            "REINFORCE (0, 0)": asymgrpo_advantage(rewards, 0.0, 0.0)},
        "FADE (003)": {
            "alpha 1, delta 1": fade_advantage(rewards, 1.0, 1.0),
            "alpha 3, delta 1": fade_advantage(rewards, 3.0, 1.0),
            "alpha 1, delta 0.3": fade_advantage(rewards, 1.0, 0.3)},
        "CW-GRPO (004), token mean": {
            "GRPO": base, "successes as likely": cwgrpo_advantage(rewards, 0.0),
            "1 nat a token likelier": cwgrpo_advantage(rewards, 1.0)}}
    figure, axes = pyplot.subplots(2, 5, figsize=(27, 10), sharex=True, layout="constrained")
    for column, (title, curves) in enumerate(panels.items()):
        for color, line, (label, advantages) in zip(COLORS, ("-", "--", "-.", ":"), curves.items()):
            for row, index in enumerate((0, -1)):  # the first of a group is a success, the last a failure
                axes[row, column].plot(p, advantages[:, index], color=color, linestyle=line, linewidth=2.5, label=label)
        axes[0, column].set(title=title, ylim=(-0.2, 5))
        axes[1, column].set(xlabel="success rate p", ylim=(-5, 0.2))
        axes[0, column].legend()
    axes[0, 0].set_ylabel("advantage of a success")
    axes[1, 0].set_ylabel("advantage of a failure")
    figure.savefig(file, dpi=70)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--group_size", type=int, default=64, help="G: p takes the values 1/G ... (G-1)/G")
    parser.add_argument("--out", type=Path, default=HERE / "figures", help="folder of the figures")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    pyplot.rcParams["font.size"] = 17
    draw_masses(given.group_size, given.out / "policy_weights.png")
    draw_advantages(given.group_size, given.out / "advantages.png")
    print(f"wrote policy_weights.png and advantages.png to {given.out}")
