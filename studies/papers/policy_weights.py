"""What each method gives a group with success rate p: its gradient masses, and its advantages.

    python studies/papers/policy_weights.py

It writes two figures. policy_weights.png (FADE Figure 2) has m_S, the share of the gradient that
reinforces successes, and m_F, the share that suppresses failures, of policy weights of FADE's
section 8, and of FADE, A-GRAE and AsymGRPO. advantages.png has what one success and one failure are
worth under the methods of the five scripts. And it prints rho(p) = m_S p / (m_F q) of the weights
(FADE Table 7), to which the paper finds the entropy proportional.
"""

import argparse
import math
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the project's root

from studies.project import FIGURES, METHODS, RIGHT, WRONG, markdown_table

from rlvr.show import SETTINGS

import matplotlib
import torch
from matplotlib.figure import Figure

from agrae import agrae_advantage
from asymgrpo import asymgrpo_advantage
from cwgrpo import covariance_weights
from fade import fade_advantage, gradient_mass
from grpo import grpo_advantage, negative_only
from studies.baselines.advantages import OF_SUCCESSES, controlled_advantage

OTHER_LINES = "-", "--", ":"  # of the curves of a panel beside GRPO's
GROUPS = torch.ones(63, 64).tril()  # [G - 1, G], one for each success rate; successes first
RHO_AT = 0.3, 0.5  # the solve rates of FADE's Table 7
# What is in the same table, but no curve of its own in FADE's Table 1.
NOT_DRAWN = ("w_reinforce", "grpo_lead")
ARGUMENTS = {  # of the policy weights that have no defaults
    "analytic_pass_k": dict(k=4),
    "mix_pass_k": dict(k=4),
    "t2t": dict(shares=0.5, alpha=0.5),
    "asym_power": dict(alpha_s=2, alpha_f=1.5),
    "shifted": dict(delta=0.1),
    "quantile": dict(tau=0.75),
    "power_norm": dict(gamma=0.25),
    "softmax": dict(beta=2.0),
    "logmeanexp": dict(beta=2.0),
}


def agrae(rewards: torch.Tensor, w: float) -> torch.Tensor:
    """A-GRAE's advantages, [B, G] -> [B, G], where w is the success rate of the whole batch."""
    return agrae_advantage(grpo_advantage(rewards), rewards.mean(1), w)


def weights_to_draw() -> dict:
    """Title -> rewards [B, G] to advantages [B, G].

    FADE's two ends and the methods of A-GRAE and AsymGRPO follow the weights of its section 8.
    """
    weights = {}
    for name, weight in {**OF_SUCCESSES, "grpo": grpo_advantage}.items():
        if name in NOT_DRAWN:
            continue
        arguments = ARGUMENTS.get(name, {})
        title = ", ".join(f"{key} = {value}" for key, value in arguments.items())
        weights[f"{name}\n{title}" if title else name] = partial(weight, **arguments)
    return weights | {
        "FADE, few solved": partial(fade_advantage, alpha=3.0, delta=1.0),
        "FADE, low entropy": partial(fade_advantage, alpha=1.0, delta=0.3),
        "A-GRAE, w = 0.2": partial(agrae, w=0.2),
        "A-GRAE, w = 0.8": partial(agrae, w=0.8),
        "AsymGRPO (0.9, 0.4)": asymgrpo_advantage,
    }


def draw_masses() -> Figure:
    """m_S and m_F against p, one panel a policy weight."""
    p = GROUPS.mean(1)  # [G - 1]
    figure = Figure(figsize=(22.5, 21), layout="constrained")
    axes = figure.subplots(5, 5, sharex=True)
    for axis, (title, weight) in zip(axes.flat, weights_to_draw().items(), strict=True):
        m_S, m_F = gradient_mass(weight(GROUPS), GROUPS)  # [G - 1] each
        axis.plot(p, m_S, color=RIGHT, linewidth=3.5, label="m_S, successes")
        axis.plot(p, m_F, color=WRONG, linewidth=3.5, linestyle="--", label="m_F, failures")
        axis.set(title=title)
        axis.set_ylim(min(0, axis.get_ylim()[0]))
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    for axis in axes[-1]:
        axis.set_xlabel("success rate p of the group")
    return figure


def positive_to_negative(weight, p: float) -> float:
    """rho(p) = m_S p / (m_F q) of a policy weight, in a group of 20; infinite where m_F is 0."""
    rewards = (torch.arange(20) < 20 * p).double()[None]  # [1, 20]
    m_S, m_F = (mass.item() for mass in gradient_mass(weight(rewards), rewards))
    return m_S * p / (m_F * (1 - p)) if m_F else math.inf


def print_ratios() -> None:
    """Table 7: rho(p) of each policy weight."""
    rows = []
    for title, weight in weights_to_draw().items():
        ratios = [f"{positive_to_negative(weight, p):.3g}" for p in RHO_AT]
        rows.append([title.replace("\n", ", "), *ratios])
    print(*markdown_table(["weight", *(f"rho({p})" for p in RHO_AT)], rows), sep="\n")


def cwgrpo_advantage(rewards: torch.Tensor, confidence: float) -> torch.Tensor:
    """Mean weighted advantage of a group, [B, G] -> [B, G].

    Its successes are `confidence` nats a token likelier than its failures.
    """
    base = grpo_advantage(rewards)
    uniform = (torch.arange(200) + 0.5) / 200  # [T], the same for all completions
    logprobs = (uniform.log() / 2).expand(*rewards.shape, 200)  # [B, G, T]
    logprobs = logprobs + confidence * (rewards - 1)[..., None]
    weights = covariance_weights(logprobs, base, torch.ones_like(logprobs))
    return (weights * base[..., None]).mean(2)


def advantages_to_draw(rewards: torch.Tensor) -> dict[str, dict[str, torch.Tensor]]:
    """Title of a panel -> label of a curve beside GRPO's -> advantages [G - 1, G]."""
    base = grpo_advantage(rewards)
    return {
        "GRPO and its variants": {
            "Dr.GRPO": grpo_advantage(rewards, scale_rewards=False),
            "GRPO-N": negative_only(base),
        },
        "A-GRAE": {
            "w = 0.2": agrae(rewards, 0.2),
            "w = 0.8": agrae(rewards, 0.8),
            "hard focused": controlled_advantage(base, rewards.mean(1), "hard_focused"),
        },
        "AsymGRPO": {
            "(0.9, 0.4)": asymgrpo_advantage(rewards),
            "REINFORCE (0, 0)": asymgrpo_advantage(rewards, 0.0, 0.0),
        },
        "FADE": {
            "alpha 1, delta 1": fade_advantage(rewards, 1.0, 1.0),
            "alpha 3, delta 1": fade_advantage(rewards, 3.0, 1.0),
            "alpha 1, delta 0.3": fade_advantage(rewards, 1.0, 0.3),
        },
        "CW-GRPO, token mean": {
            "successes as likely\nas failures": cwgrpo_advantage(rewards, 0.0),
            "successes 1 nat\na token likelier": cwgrpo_advantage(rewards, 1.0),
        },
    }


def draw_advantages() -> Figure:
    """The advantage of one success (above) and of one failure (below) against p."""
    p = GROUPS.mean(1)  # [G - 1]
    panels = advantages_to_draw(GROUPS)
    figure = Figure(figsize=(27, 10), layout="constrained")
    axes = figure.subplots(2, len(panels), sharex=True)
    grpo = dict(color=METHODS["GRPO"], linewidth=2.5, label="GRPO")
    for (upper, lower), (title, curves) in zip(axes.T, panels.items(), strict=True):
        color = METHODS.get(title.partition(",")[0], WRONG)
        drawn = [(grpo_advantage(GROUPS), grpo)]
        for line, (label, advantages) in zip(OTHER_LINES, curves.items(), strict=False):
            drawn.append((advantages, dict(color=color, linestyle=line, linewidth=3, label=label)))
        for advantages, style in drawn:
            upper.plot(p, advantages[:, 0], **style)  # the first of a group is a success
            lower.plot(p, advantages[:, -1], **style)  # the last is a failure
        upper.set(title=title, ylim=(-0.2, 5))
        lower.set(xlabel="success rate p", ylim=(-5, 0.2))
        upper.legend()
    axes[0, 0].set_ylabel("advantage of a success")
    axes[1, 0].set_ylabel("advantage of a failure")
    return figure


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    with matplotlib.rc_context(SETTINGS | {"font.size": 17}):
        draw_masses().savefig(FIGURES / "policy_weights.png", dpi=60)
        draw_advantages().savefig(FIGURES / "advantages.png", dpi=70)
    print_ratios()
