"""AsymGRPO's Proposition 1, measured: to first order, does the entropy grow as kappa says?

    python studies/papers/entropy_growth.py --max_steps 16    # the flags of asymgrpo.py

A step draws a batch and makes no update. For each batch it prints kappa, and by how much faster
the entropy on the batch's tokens grows when the strengths (0, 0) of REINFORCE become (0.1, 0). That
is the slope along the gradient of the added advantages, for a step of plain gradient ascent.

The proposition's own update is another one: of each response's probability by itself, as in a
table. So the two share their sign but not their scale, and the question is whether they rise and
fall together.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the project's root

from rlvr.flags import parse_flags
from rlvr.policy import load_policies
from rlvr.rollout import make_sampler
from rlvr.show import append_row
from rlvr.tasks import open_problems, own_tokens
from rlvr.training import Run, launch

import torch

import common
from asymgrpo import VARIANTS, Config, asymgrpo_advantage, reward_confidence_alignment


def entropy_growth(policy, samples, rewards: torch.Tensor, temperature: float) -> dict[str, float]:
    """What is logged of a batch, rewards [B, G].

    growth is the slope of the tokens' mean entropy (nats) along the gradient that (0.1, 0) adds to
    that of (0, 0).
    """
    rows = range(len(samples))
    logprobs, entropy = common.token_logprobs(policy, samples, rows, temperature)  # [N, T] each
    lengths = own_tokens(samples).sum(1).to(policy.device)  # [N]
    means = (logprobs.sum(1) / lengths).view_as(rewards)  # [B, G]

    p = rewards.mean(1)  # [B]
    mixed = ((p > 0) & (p < 1))[:, None]  # [B, 1], the groups that kappa is about
    with_strength = asymgrpo_advantage(rewards, 0.1, 0.0)  # [B, G]
    added = mixed * (with_strength - asymgrpo_advantage(rewards, 0.0, 0.0))  # [B, G]
    parameters = [*policy.parameters()]
    ascent = torch.autograd.grad((added * means).mean(), parameters, retain_graph=True)
    uphill = torch.autograd.grad(entropy.sum() / lengths.sum(), parameters)
    growth = sum((a * b).sum() for a, b in zip(ascent, uphill, strict=True))
    kappa = reward_confidence_alignment(rewards, means.detach())
    return {"reward": p.mean().item(), "kappa": kappa.item(), "growth": growth.item()}


def main(config: Config) -> None:
    run = Run(config)
    policy, _, tokenizer = load_policies(config)
    stream, _ = open_problems(config, tokenizer)
    sampler = make_sampler(policy, tokenizer, config, common.decode)
    for step in range(1, config.max_steps + 1):
        batch = common.roll_out(sampler, stream, config)
        found = entropy_growth(policy, batch.samples, batch.successes, config.temperature)
        append_row(run.folder, "metrics", {"step": step, **found})
        print(f"step {step}: kappa {found['kappa']:.4f}, growth {found['growth']:.4f}")


if __name__ == "__main__":
    launch(main, parse_flags(Config, VARIANTS))
