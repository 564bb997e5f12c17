"""GRPO, group relative policy optimization, and its common variants, in one file.

For each prompt the policy writes G completions, a verifier gives each a reward r in {0, 1}, and a completion is
judged against its own group (000 Eq. 3):

    A_i = (r_i - mean r) / std r

Each completion token then takes a PPO-clip step with that advantage (000 Eq. 1), rho = pi / pi_old:

    loss = - mean_i 1/|o_i| sum_t min(rho_it A_i, clip(rho_it, 1 - epsilon, 1 + epsilon_high) A_i)

What the presets of --variant change:

    grpo      nothing
    dr-grpo   no division by the standard deviation, and one constant in place of 1/|o_i|
    dapo      epsilon_high 0.28, every token of the batch weighs the same, groups without contrast drawn again
    gspo      one ratio a response, the geometric mean of its tokens' ratios, and a narrower clip range
    grpo-n    only the negative advantages (001 B.5)
    gspo-n    both of the last two

    python grpo.py                                                 # a laptop: tiny policy, Countdown
    python grpo.py --variant gspo-n --seed 1
    torchrun --nproc_per_node 2 grpo.py                            # the same batch, shared by 2 processes
    python grpo.py --max_steps 0 --model runs/x/checkpoint-100     # evaluates only
    python grpo.py --resume_from_checkpoint runs/x
"""
import time
from dataclasses import dataclass

import tasks

VARIANTS = {
    "grpo": dict(),
    "dr-grpo": dict(scale_rewards=False, aggregation="constant"),
    "dapo": dict(epsilon_high=0.28, aggregation="token", dynamic_sampling=True),
    "gspo": dict(importance_sampling_level="sequence", epsilon=3e-4, epsilon_high=4e-4),
    "grpo-n": dict(negatives_only=True),
    "gspo-n": dict(negatives_only=True, importance_sampling_level="sequence", epsilon=3e-4, epsilon_high=4e-4),
}

@dataclass
class Config(tasks.Config):
    variant: str = "grpo"  # named preset of flags: grpo, dr-grpo, dapo, gspo, grpo-n, gspo-n; given flags win
    scale_rewards: bool = True  # divide the advantage by the group's standard deviation
    negatives_only: bool = False  # drop the positive advantages

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

def negative_only(advantages: torch.Tensor) -> torch.Tensor:
    """Keeps the advantages below 0 and sets the others to 0, any shape (001 B.5: GRPO-N, GSPO-N)."""
    return torch.where(advantages < 0, advantages, 0)

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
        if config.negatives_only:
            advantages = negative_only(advantages)
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
            "seconds_rollout": rolled_out - started, "seconds_update": time.perf_counter() - rolled_out}, samples)
        if step % config.eval_steps == 0 or step == config.max_steps:
            run.log("eval", step, common.evaluate(sampler, eval_sets, config))
        if run.end_step(step):
            break
    run.finish()

if __name__ == "__main__":
    common.launch(main, config)
