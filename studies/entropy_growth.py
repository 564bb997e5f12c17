"""Proposition 1 of 002 measured: does the entropy grow, to first order, by as much as kappa says?

    python studies/entropy_growth.py --max_steps 16        # the flags of asymgrpo.py; a batch a step, and no update

Logs, for each batch, kappa, and by how much faster the entropy on the batch's tokens grows when the strengths (0, 0) of
REINFORCE become (0.1, 0): the slope along the gradient of the added advantages, for a step of plain gradient ascent.
The proposition's own update is another (of each response's probability by itself, as in a table), so that the two
share their sign, and whether they rise and fall together is the question, but not their scale.
"""
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent))
import common
import tasks
from asymgrpo import VARIANTS, Config, asymgrpo_advantage, reward_confidence_alignment


def entropy_growth(policy, samples, rewards: torch.Tensor, temperature: float) -> dict[str, float]:
    """kappa of a batch; growth, the slope of its tokens' mean entropy (nats) along the gradient that (0.1, 0) adds to
    that of (0, 0); and what kappa is made of: how many prompts are hard (0 < p < 1/2) and easy (1/2 < p < 1), and the
    gap there, the mean log-prob a token of a group's successes less that of its failures. rewards: [B, G].
    """
    lengths = common.completion_mask(samples, policy.device).sum(1)  # [N]
    logprobs, entropy = common.token_logprobs(policy, samples, range(len(samples)), temperature)  # [N, T] each
    means, p = (logprobs.sum(1) / lengths).view_as(rewards), rewards.mean(1)  # [B, G], [B]
    mixed = ((p > 0) & (p < 1))[:, None]  # [B, 1], the groups that kappa is about
    added = mixed * (asymgrpo_advantage(rewards, 0.1, 0.0) - asymgrpo_advantage(rewards, 0.0, 0.0))  # [B, G]
    parameters = [*policy.parameters()]
    ascent = torch.autograd.grad((added * means).mean(), parameters, retain_graph=True)
    uphill = torch.autograd.grad(entropy.sum() / lengths.sum(), parameters)
    means = means.detach()
    found = {"kappa": reward_confidence_alignment(rewards, means).item(),
             "growth": sum((a * b).sum() for a, b in zip(ascent, uphill)).item()}
    for name, groups in (("hard", (p > 0) & (p < 0.5)), ("easy", (p > 0.5) & (p < 1))):
        right, wrong = rewards[groups], 1 - rewards[groups]  # [b, G] each
        gap = (right * means[groups]).sum(1) / right.sum(1) - (wrong * means[groups]).sum(1) / wrong.sum(1)  # [b]
        found |= {name: groups.sum().item(), f"{name}_gap": gap.mean().item() if len(gap) else 0.0}
    return found


def main(config: Config):
    run = common.Run(config)
    policy, tokenizer = common.load_policy(config, run.device)
    problems, _ = common.load_problems(config, tokenizer)
    sampler, stream = common.make_sampler(policy, tokenizer, config), common.ProblemStream(problems, config.seed)
    for step in range(1, config.max_steps + 1):
        samples = common.roll_out_step(sampler, stream, config)
        rewards = torch.tensor([s.reward for s in samples], device=run.device)
        run.log("metrics", step, entropy_growth(policy, samples, rewards.view(-1, config.num_generations),
                                                config.temperature))


if __name__ == "__main__":
    common.launch(main, tasks.parse_flags(Config, VARIANTS))
