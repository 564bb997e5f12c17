"""The five papers' ways of shaping the same advantage, as a function of the success rate p of a prompt.

    python studies/advantages.py        # writes studies/figures/advantages.png
"""
import sys
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
from fade import fade_advantage
from grpo import grpo_advantage, negative_only

G = 64
rewards = torch.ones(G - 1, G).tril()  # [G - 1, G]: one success, two, ... all but one
p = rewards.mean(1)  # [G - 1]
base = grpo_advantage(rewards)


def cwgrpo_advantage(confidence: float) -> torch.Tensor:
    """Mean weighted advantage of a group whose successes are `confidence` nats likelier than its failures."""
    generator = torch.Generator().manual_seed(0)
    logprobs = -torch.empty(G - 1, G, 200).exponential_(2.0, generator=generator)  # [B, G, T]
    logprobs = logprobs + confidence * (rewards - 1)[..., None]
    weights = covariance_weights(logprobs, base, torch.ones_like(logprobs))
    return (weights * base[..., None]).mean(2)


PANELS = {
    "GRPO and its variants (000, 001)": {
        "GRPO": base, "Dr.GRPO": grpo_advantage(rewards, scale_rewards=False), "GRPO-N": negative_only(base)},
    "A-GRAE (000)": {
        "GRPO": base, "w = 0.2": agrae_advantage(base, p, 0.2), "w = 0.8": agrae_advantage(base, p, 0.8),
        "hard focused": controlled_advantage(base, p, "hard_focused")},
    "AsymGRPO (002)": {
        "GRPO (0.5, 0.5)": base, "(0.9, 0.4)": asymgrpo_advantage(rewards),
        "REINFORCE (0, 0)": asymgrpo_advantage(rewards, 0.0, 0.0)},
    "FADE (003)": {
        "alpha 1, delta 1": fade_advantage(rewards, 1.0, 1.0), "alpha 3, delta 1": fade_advantage(rewards, 3.0, 1.0),
        "alpha 1, delta 0.3": fade_advantage(rewards, 1.0, 0.3)},
    "CW-GRPO (004), mean over tokens": {
        "GRPO": base, "successes as likely": cwgrpo_advantage(0.0), "1 nat a token likelier": cwgrpo_advantage(1.0)},
}


def main():
    pyplot.rcParams.update({"font.size": 13, "axes.prop_cycle": pyplot.cycler(
        color=["#000000", "#D55E00", "#0072B2", "#009E73"], linestyle=["-", "--", "-.", ":"])})  # colour-blind safe
    figure, axes = pyplot.subplots(2, 5, figsize=(24, 9), sharex=True, layout="constrained")
    for column, (title, curves) in enumerate(PANELS.items()):
        for label, advantages in curves.items():
            axes[0, column].plot(p, advantages[:, 0], label=label, linewidth=2.5)  # the first is a success
            axes[1, column].plot(p, advantages[:, -1], linewidth=2.5)  # the last is a failure
        axes[0, column].set(title=title, ylim=(-0.2, 5))
        axes[1, column].set(xlabel="success rate p", ylim=(-5, 0.2))
        axes[0, column].legend()
    axes[0, 0].set_ylabel("advantage of a success")
    axes[1, 0].set_ylabel("advantage of a failure")
    figure.savefig(HERE / "figures" / "advantages.png", dpi=70)


if __name__ == "__main__":
    main()
