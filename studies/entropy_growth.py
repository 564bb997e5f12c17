"""AsymGRPO's Proposition 1, measured: to first order, does the entropy grow as kappa says?

    python studies/entropy_growth.py --max_steps 16    # the flags of asymgrpo.py

A step draws a batch and makes no update. For each batch, two things are logged: kappa, and by how
much faster the entropy on the batch's tokens grows when the strengths (0, 0) of REINFORCE become
(0.1, 0). That is the slope along the gradient of the added advantages, for a step of plain gradient
ascent.

The proposition's own update is another one: of each response's probability by itself, as in a
table. So the two share their sign but not their scale, and the question is whether they rise and
fall together.
"""

import project

import rlvr.flags.command_line
import rlvr.policy.models
import rlvr.rollout.rollouts
import rlvr.rollout.samplers
import rlvr.tasks.datasets
import rlvr.tasks.problems
import rlvr.training.run

import torch

import common
from asymgrpo import VARIANTS, Config, asymgrpo_advantage, reward_confidence_alignment


def entropy_growth(policy, samples, rewards: torch.Tensor, temperature: float) -> dict[str, float]:
    """What is logged of a batch, rewards [B, G].

    kappa, and growth: the slope of the tokens' mean entropy (nats) along the gradient that (0.1, 0)
    adds to that of (0, 0). Then what kappa is made of: how many prompts are hard (0 < p < 1/2) and
    easy (1/2 < p < 1), and the gap there, which is the mean log-prob a token of a group's successes
    less that of its failures.
    """
    rows = range(len(samples))
    logprobs, entropy = common.token_logprobs(policy, samples, rows, temperature)  # [N, T] each
    lengths = rlvr.rollout.rollouts.completion_mask(samples, policy.device).sum(1)  # [N]
    means = (logprobs.sum(1) / lengths).view_as(rewards)  # [B, G]

    p = rewards.mean(1)  # [B]
    mixed = ((p > 0) & (p < 1))[:, None]  # [B, 1], the groups that kappa is about
    with_strength = asymgrpo_advantage(rewards, 0.1, 0.0)  # [B, G]
    added = mixed * (with_strength - asymgrpo_advantage(rewards, 0.0, 0.0))  # [B, G]
    parameters = [*policy.parameters()]
    ascent = torch.autograd.grad((added * means).mean(), parameters, retain_graph=True)
    uphill = torch.autograd.grad(entropy.sum() / lengths.sum(), parameters)
    growth = sum((a * b).sum() for a, b in zip(ascent, uphill, strict=True))

    means = means.detach()
    found = {"kappa": reward_confidence_alignment(rewards, means).item(), "growth": growth.item()}
    for name, groups in (("hard", (p > 0) & (p < 0.5)), ("easy", (p > 0.5) & (p < 1))):
        gaps = surer_of_successes(rewards[groups], means[groups])  # [b]
        found[name] = len(gaps)
        found[f"{name}_gap"] = gaps.mean().item() if len(gaps) else 0.0
    return found


def surer_of_successes(rewards: torch.Tensor, means: torch.Tensor) -> torch.Tensor:
    """The mean of the successes' mean log-probs less that of the failures', [b, G] each -> [b]."""
    right, wrong = rewards, 1 - rewards
    return (right * means).sum(1) / right.sum(1) - (wrong * means).sum(1) / wrong.sum(1)


def main(config: Config) -> None:
    run = rlvr.training.run.Run(config)
    policy, tokenizer = rlvr.policy.models.load_policy(config, run.device)
    problems, _ = rlvr.tasks.datasets.load_problems(config, tokenizer)
    sampler = rlvr.rollout.samplers.make_sampler(policy, tokenizer, config, common.decode)
    stream = rlvr.tasks.problems.ProblemStream(problems, config.seed)
    for step in range(1, config.max_steps + 1):
        batch = common.roll_out(sampler, stream, config)
        found = entropy_growth(policy, batch.samples, batch.successes, config.temperature)
        run.log("metrics", step, found)


if __name__ == "__main__":
    rlvr.training.launch(main, rlvr.flags.parse_flags(Config, VARIANTS))
