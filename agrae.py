"""A-GRAE, asymmetric group relative advantage estimation (paper 000), on top of GRPO, DAPO or Dr.GRPO.

GRPO is symmetric twice: in a group, successes and failures weigh the same (Eq. 5), and prompts of middling
difficulty weigh most. A-GRAE breaks both with the mean success w of the whole batch (Eqs. 11-13), p = success rate
of the prompt's group:

    A' = w/2 A / sqrt(p) + (1-w)/2 A / sqrt(1-p)     sample level: easy prompts first, hard ones as w grows
    A' = A' min(1, w / alpha)  where A' > 0          group level: successes are held back while w is small

What differs from grpo.py: the advantages, and what is logged about them. The paper's code departs from its text:
1 - sqrt(p) stands for sqrt(1-p), the standard deviation is Bessel's with 1e-6 added, and the branch runs only where
a weight that is annealed from the first step on still equals its start, which is never. This file follows the text.

    python agrae.py                                      # a laptop, or one GPU
    python agrae.py --variant agrae-dr-grpo              # on Dr.GRPO; agrae-dapo on DAPO
    python agrae.py --variant negative-dominant          # control experiment I (II: hard-focused, easy-focused)
    torchrun --nproc_per_node 8 agrae.py                 # N processes share the batch
"""
import time
from dataclasses import dataclass
from typing import Literal

import tasks

METHODS = "agrae", "positive_dominant", "negative_dominant", "hard_focused", "easy_focused", "w_reinforce", "none"
VARIANTS = {
    "agrae": dict(),
    "agrae-dapo": dict(epsilon_high=0.28, aggregation="token", dynamic_sampling=True),
    "agrae-dr-grpo": dict(scale_rewards=False, aggregation="constant"),
    "sample-level": dict(group_level=False),
    "group-level": dict(sample_level=False),
    **{method.replace("_", "-"): dict(method=method) for method in METHODS[1:-1]},
}

@dataclass
class Config(tasks.Config):
    variant: str = "agrae"  # named preset of flags, by the keys of VARIANTS; a flag that is also given wins
    scale_rewards: bool = True  # divide the base advantage by the group's standard deviation
    method: Literal[METHODS] = "agrae"  # what becomes of the base advantage
    alpha: float = 1.0  # w from which on successes are not held back: 1 for text, 0.5 for images in the paper
    sample_level: bool = True  # Eq. 12
    group_level: bool = True  # Eq. 13

if __name__ == "__main__":
    config = tasks.parse_flags(Config, VARIANTS)  # before the imports that take seconds

import torch
import common

def grpo_advantage(rewards: torch.Tensor, scale_rewards: bool = True) -> torch.Tensor:
    """(r - mean) / std over each prompt's group, [B, G] -> [B, G] (000 Eq. 3); r - mean if not scale_rewards (Dr.GRPO).

    The standard deviation is the population's. A group whose rewards are all equal gets exactly 0.
    """
    mean = rewards.mean(1, keepdim=True)  # [B, 1]
    std = rewards.std(1, keepdim=True, correction=0) if scale_rewards else torch.ones_like(mean)  # [B, 1]
    # max == min, because the std of equal rewards can be a rounding error away from 0
    mixed = rewards.amax(1, keepdim=True) > rewards.amin(1, keepdim=True)  # [B, 1]
    return torch.where(mixed, (rewards - mean) / torch.where(mixed, std, 1), 0)

def agrae_advantage(advantages, success_rate, mean_success, alpha=1.0, sample_level=True, group_level=True):
    """A-GRAE on top of any base advantage (000 Eqs. 11-13).

    advantages [B, G]; success_rate [B]: p of each group; mean_success, a float or 0-dim tensor: w of Eq. 11,
    the success rate over the whole global batch. Successes are held back until w reaches alpha.
    Returns [B, G]; with both levels off, the input itself. Raises ValueError for alpha <= 0.
    """
    if alpha <= 0:
        raise ValueError(f"alpha must be positive, got {alpha}")
    w = mean_success
    if sample_level:  # Eq. 12: from easy prompts to hard ones as w grows
        p = success_rate.to(advantages.dtype).unsqueeze(1)  # [B, 1]
        mixed = (p > 0) & (p < 1)  # [B, 1]
        # The paper omits the rescaling at p = 0 and 1; 0.5 stands in there so that no infinity is ever made.
        p = torch.where(mixed, p, 0.5)  # [B, 1]
        scale = w / 2 / p.sqrt() + (1 - w) / 2 / (1 - p).sqrt()  # [B, 1]
        advantages = advantages * torch.where(mixed, scale, 1.0)
    if group_level:  # Eq. 13: weak policies explore, strong ones keep the plain advantage
        advantages = torch.where(advantages > 0, advantages * min(1.0, w / alpha), advantages)
    return advantages

def controlled_advantage(advantages, success_rate, variant, beta=10, gamma=0.5):
    """The controlled experiments, each of which breaks one symmetry of GRPO (000 section 4.1, Table 1).

    advantages [B, G], success_rate [B] -> [B, G]. By variant: positive_dominant, beta A where A > 0;
    negative_dominant, A / beta where A > 0; hard_focused, gamma A / sqrt(p); easy_focused,
    gamma A / sqrt(1 - p). Raises ValueError for any other variant.
    """
    if variant == "positive_dominant":
        return torch.where(advantages > 0, advantages * beta, advantages)
    if variant == "negative_dominant":
        return torch.where(advantages > 0, advantages / beta, advantages)
    p = success_rate.to(advantages.dtype).unsqueeze(1)  # [B, 1]
    mixed = (p > 0) & (p < 1)  # [B, 1]
    p = torch.where(mixed, p, 0.5)  # [B, 1], a stand-in: the paper omits the rescaling at p = 0 and 1
    if variant == "hard_focused":
        scale = gamma / p.sqrt()  # [B, 1]
    elif variant == "easy_focused":
        scale = gamma / (1 - p).sqrt()  # [B, 1]
    else:
        names = "positive_dominant, negative_dominant, hard_focused or easy_focused"
        raise ValueError(f"variant must be {names}; got {variant!r}")
    return advantages * torch.where(mixed, scale, 1.0)

def w_reinforce_advantage(rewards):
    """W-REINFORCE, a baseline of 000 Table 2: rewards [B, G] in {0, 1} -> +0.1 (success) or -1 (failure)."""
    return torch.full_like(rewards, -1.0).masked_fill(rewards == 1, 0.1)

def main(config: Config):
    run = common.Run(config)
    policy, tokenizer = common.load_policy(config, run.device)
    train_problems, eval_sets = common.load_problems(config, tokenizer)
    reference = common.load_reference(policy, config)
    sampler = common.make_sampler(policy, tokenizer, config)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=config.learning_rate, weight_decay=0.0, fused=True)
    stream = common.ProblemStream(train_problems, config.seed)
    last_step = run.begin(policy, tokenizer, optimizer, stream, state={})
    if last_step == 0:
        run.log("eval", 0, common.evaluate(sampler, eval_sets, config))

    for step in range(last_step + 1, config.max_steps + 1):
        # Roll out: G completions for each of B prompts, N = B * G rows (each rank holds its share of them).
        started = time.perf_counter()
        samples = common.roll_out_step(sampler, stream, config)
        rewards = torch.tensor([s.reward for s in samples], device=run.device)
        rewards = rewards.view(-1, config.num_generations)  # [B, G]
        mask = common.completion_mask(samples, run.device, config.mask_truncated_completions)  # [N, T]
        sampled = common.sampled_logprobs(samples, run.device)  # [N, T]
        rolled_out = time.perf_counter()

        # Advantages: one number a completion, which all its tokens share.
        advantages = grpo_advantage(rewards, config.scale_rewards)  # [B, G]
        success_rate = rewards.mean(1)  # [B]
        rates = common.gather(success_rate.tolist())  # of all ranks
        mean_success = sum(rates) / len(rates)  # w
        if config.method == "agrae":
            advantages = agrae_advantage(advantages, success_rate, mean_success, config.alpha, config.sample_level,
                                         config.group_level)
        elif config.method == "w_reinforce":
            advantages = w_reinforce_advantage(rewards)
        elif config.method != "none":
            advantages = controlled_advantage(advantages, success_rate, config.method)
        size = advantages.abs().sum(1)  # [B]
        easy, hard, total = common.global_sum(  # of the advantages' size, by the difficulty of the prompt
            size[success_rate > 0.5].sum(), size[success_rate < 0.5].sum(), size.sum())
        advantages = advantages.flatten()  # [N]

        # Update: PPO-clip against the policy that wrote the rollout, one optimizer step a minibatch.
        size = config.minibatch_size // common.WORLD_SIZE
        minibatches = torch.arange(len(samples)).split(size)
        old_logprobs, _ = common.frozen_logprobs(policy, samples, config, range(size, len(samples)))  # [N, T]
        ref_logprobs = common.frozen_logprobs(reference, samples, config)[0] if config.beta else None  # [N, T]
        sums, grad_norms = torch.zeros(6, device=run.device), []  # sums: loss, tokens, entropy, KL, clipped low, high
        for minibatch in minibatches * config.num_iterations:
            weights = torch.zeros_like(mask)  # [N, T]
            weights[minibatch] = common.token_weights(mask[minibatch], config.aggregation, config.max_completion_length)
            for rows in common.microbatches(samples, minibatch, config.microbatch_tokens):
                logprobs, entropy = common.token_logprobs(policy, samples, rows, config.temperature)  # [n, T]
                if not grad_norms:  # before the first update the old policy is the current one
                    old_logprobs[rows] = logprobs.detach()
                if sampler.cap:  # truncated importance sampling, where vLLM's probabilities are not the trainer's
                    ratio = (old_logprobs[rows] - sampled[rows]).exp()  # [n, T]
                    weights[rows] *= ratio.clamp(max=sampler.cap)  # without a bias but for what the cap cuts off
                loss, clipped_low, clipped_high = common.ppo_clip_loss(
                    logprobs, old_logprobs[rows], advantages[rows], mask[rows], config.epsilon, config.epsilon_high,
                    config.importance_sampling_level, weights=weights[rows])
                kl = common.kl_penalty(logprobs, ref_logprobs[rows]) if config.beta else torch.zeros_like(logprobs)
                loss = loss + (weights[rows] * (config.beta * kl - config.entropy_coef * entropy)).sum()
                loss.backward()
                sums += torch.stack([loss.detach(), mask[rows].sum(), (mask[rows] * entropy.detach()).sum(),
                                     (mask[rows] * kl.detach()).sum(), clipped_low, clipped_high])
            grad_norms.append(run.optimizer_step(policy, optimizer, sums[0]))

        # Log, evaluate, save: all numbers are over all ranks and all updates of the step.
        loss, tokens, *totals = common.global_sum(*sums)
        entropy, kl, clip_low, clip_high = (total / max(tokens, 1) for total in totals)
        run.log("metrics", step, {
            **common.rollout_metrics(samples, config.num_generations),
            **common.sampler_mismatch(samples, old_logprobs, sampled), "loss": loss / len(grad_norms),
            "entropy": entropy, "kl": kl, "clip_low": clip_low, "clip_high": clip_high,
            "grad_norm": sum(grad_norms) / len(grad_norms), "skipped": run.skipped,
            "mean_success": mean_success, "suppression": min(1.0, mean_success / config.alpha),
            "easy_share": easy / total if total else 0.0, "hard_share": hard / total if total else 0.0,
            "unsolved_groups": rates.count(0), "correct_samples": sum(rates) * config.num_generations,
            "seconds_rollout": rolled_out - started, "seconds_update": time.perf_counter() - rolled_out}, samples)
        if step % config.eval_steps == 0 or step == config.max_steps:
            run.log("eval", step, common.evaluate(sampler, eval_sets, config))
        if run.end_step(step):
            break
    run.finish()

if __name__ == "__main__":
    common.launch(main, config)
