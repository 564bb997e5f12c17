"""AsymGRPO (paper 002): the difficulty of a prompt modulates successes and failures, each by its own strength.

With p the success rate of the prompt's group (Eqs. 5, 8):

    success:   A =  ((1-p) / p) ^ beta_pos         failure:   A = -(p / (1-p)) ^ beta_neg

(0.5, 0.5) is GRPO and (0, 0) is REINFORCE with rewards +1 / -1. A rare success is worth more as beta_pos grows, which
keeps entropy on alternative solutions; a rare failure costs more as beta_neg grows, which removes noise. Paper 003 has
a baseline of the same name, with one parameter delta: that one is fade.py's "asym".

What differs from grpo.py: the advantages; tokens weigh the same across the batch (App. G); kappa, the alignment of
rewards and confidence that decides the sign of the entropy change (Proposition 1), is logged before each update.

    python asymgrpo.py                                   # a laptop, or one GPU
    python asymgrpo.py --variant pos-only                # also neg-only, symmetric, reinforce, grpo, clip-higher
    python asymgrpo.py --variant ent-decrease            # the flip of App. C in the positive channel
    torchrun --nproc_per_node 8 asymgrpo.py              # N processes share the batch
"""
import time
from dataclasses import dataclass
from typing import Literal

import tasks

VARIANTS = {
    "asymgrpo": dict(),
    "reinforce": dict(beta_pos=0.0, beta_neg=0.0),
    "reinforce-entropy": dict(beta_pos=0.0, beta_neg=0.0, entropy_coef=0.001),
    "pos-only": dict(beta_pos=0.5, beta_neg=0.0),
    "neg-only": dict(beta_pos=0.0, beta_neg=0.5),
    "symmetric": dict(beta_pos=0.7, beta_neg=0.7),
    "ent-decrease": dict(beta_pos=0.5, beta_neg=0.5, flip="positive"),
    "ent-increase": dict(beta_pos=0.5, beta_neg=0.5, flip="negative"),
    "grpo": dict(beta_pos=0.5, beta_neg=0.5),
    "clip-higher": dict(beta_pos=0.5, beta_neg=0.5, epsilon_high=0.28),
}

@dataclass
class Config(tasks.Config):
    variant: str = "asymgrpo"  # named preset of flags, by the keys of VARIANTS; a flag that is also given wins
    aggregation: Literal["sequence", "token", "constant"] = "token"  # what divides the sum over tokens
    beta_pos: float = 0.9  # strength for successes
    beta_neg: float = 0.4  # strength for failures
    flip: Literal["none", "positive", "negative"] = "none"  # channel in which p and 1-p change places
    log_gain: bool = False  # log how much likelier the update made the successes; costs a forward pass a step
    MAY_BE_ZERO = tasks.Config.MAY_BE_ZERO | {"beta_pos", "beta_neg"}

if __name__ == "__main__":
    config = tasks.parse_flags(Config, VARIANTS)  # before the imports that take seconds

import torch
import common

def asymgrpo_advantage(rewards, beta_pos=0.9, beta_neg=0.4, flip="none"):
    """AsymGRPO: successes and failures follow the difficulty, each with its own strength (002 Eqs. 5, 8).

    rewards [B, G] in {0, 1} -> [B, G]: ((1-p)/p)^beta_pos for a success, -(p/(1-p))^beta_neg for a failure,
    where p is the group's success rate and 0^0 = 1. REINFORCE is (0, 0), GRPO (0.5, 0.5), Pos-Only (0.5, 0),
    Neg-Only (0, 0.5). flip swaps p and 1-p in one channel (App. C): "positive" is EntDecrease, "negative"
    EntIncrease. Raises ValueError for any other flip and for a negative strength.
    """
    if flip not in ("none", "positive", "negative"):
        raise ValueError(f"flip must be none, positive or negative; got {flip!r}")
    if beta_pos < 0 or beta_neg < 0:
        raise ValueError(f"beta_pos and beta_neg must be at least 0; got {beta_pos} and {beta_neg}")
    G = rewards.shape[1]
    success = rewards == 1  # [B, G]
    n_pos = success.to(rewards.dtype).sum(dim=1, keepdim=True)  # [B, 1]
    n_neg = G - n_pos  # [B, 1]
    # Counts instead of p: exact at p = 0 and 1. A clamp acts only on a value that no rollout receives.
    hard = n_neg / n_pos.clamp(min=1)  # [B, 1], (1-p) / p
    easy = n_pos / n_neg.clamp(min=1)  # [B, 1], p / (1-p)
    pos = hard**beta_pos  # [B, 1]
    neg = easy**beta_neg  # [B, 1]
    # A flipped curve is undefined where its channel holds the whole group: the line through its last two
    # points, at odds G-1 and (G-2)/2, goes on instead. G = 1 has one point: max() makes the line flat.
    if flip == "positive":
        end = 2 * (G - 1) ** beta_pos - (max(G - 2, 0) / 2) ** beta_pos
        pos = torch.where(n_neg == 0, end, easy**beta_pos)
    if flip == "negative":
        end = 2 * (G - 1) ** beta_neg - (max(G - 2, 0) / 2) ** beta_neg
        neg = torch.where(n_pos == 0, end, hard**beta_neg)
    return torch.where(success, pos, -neg)

def reward_confidence_alignment(rewards, mean_logprobs):
    """kappa: is the policy surer of successes on easy prompts and of failures on hard ones? (002 Apps. B, E)

    rewards [B, G] in {0, 1}; mean_logprobs [B, G]: length-normalised log-probs under the policy that sampled.
    Returns a 0-dim tensor: the mean over the groups with 0 < p < 1, or 0 if there is none. Proposition 1: for
    small strengths a step adds lr (beta_pos - beta_neg) kappa to the entropy, compared with REINFORCE.
    """
    G = rewards.shape[1]
    success = rewards == 1  # [B, G]
    n_pos = success.to(mean_logprobs.dtype).sum(dim=1)  # [B]
    n_neg = G - n_pos  # [B]
    mixed = (n_pos > 0) & (n_neg > 0)  # [B]
    n_pos, n_neg = n_pos.clamp(min=1), n_neg.clamp(min=1)  # finite also in the groups that are dropped below
    surer = torch.where(success, mean_logprobs, 0.0).sum(dim=1) / n_pos  # [B]
    delta = surer - torch.where(success, 0.0, mean_logprobs).sum(dim=1) / n_neg  # [B]
    kappa = n_pos * n_neg / G**2 * delta * (n_pos / n_neg).log()  # [B], p (1-p) delta log(p / (1-p))
    return torch.where(mixed, kappa, 0.0).sum() / mixed.sum().clamp(min=1)

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
        advantages = asymgrpo_advantage(rewards, config.beta_pos, config.beta_neg, config.flip)  # [B, G]
        advantages = advantages.flatten()  # [N]

        # Update: PPO-clip against the policy that wrote the rollout, one optimizer step a minibatch.
        minibatches = torch.arange(len(samples)).split(config.minibatch_size // common.WORLD_SIZE)
        old_logprobs, _ = common.frozen_logprobs(policy, samples, config)  # [N, T]
        mean_logprobs = (mask * old_logprobs).sum(1) / mask.sum(1).clamp(min=1)  # [N]
        kappa = reward_confidence_alignment(rewards, mean_logprobs.view_as(rewards))
        mixed = ((rewards.mean(1) > 0) & (rewards.mean(1) < 1)).sum()  # kappa is a mean over so many groups
        kappa, mixed = common.global_sum(kappa * mixed, mixed)
        ref_logprobs = common.frozen_logprobs(reference, samples, config)[0] if config.beta else None  # [N, T]
        sums, grad_norms = torch.zeros(6, device=run.device), []  # sums: loss, tokens, entropy, KL, clipped low, high
        for minibatch in minibatches * config.num_iterations:
            weights = torch.zeros_like(mask)  # [N, T]
            weights[minibatch] = common.token_weights(mask[minibatch], config.aggregation, config.max_completion_length)
            for rows in common.microbatches(samples, minibatch, config.microbatch_tokens):
                logprobs, entropy = common.token_logprobs(policy, samples, rows, config.temperature)  # [n, T]
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

        diagnostics = {"kappa": kappa / max(mixed, 1)}
        if config.log_gain:
            new_logprobs, _ = common.frozen_logprobs(policy, samples, config)  # [N, T]
            success = mask * rewards.flatten()[:, None]  # [N, T], the tokens of the successes
            gain, count = common.global_sum((success * (new_logprobs - old_logprobs)).sum(), success.sum())
            diagnostics["success_gain"] = gain / max(count, 1)

        # Log, evaluate, save: all numbers are over all ranks and all updates of the step.
        loss, tokens, *totals = common.global_sum(*sums)
        entropy, kl, clip_low, clip_high = (total / max(tokens, 1) for total in totals)
        run.log("metrics", step, {
            **common.rollout_metrics(samples, config.num_generations),
            **common.sampler_mismatch(samples, old_logprobs, sampled), "loss": loss / len(grad_norms),
            "entropy": entropy, "kl": kl, "clip_low": clip_low, "clip_high": clip_high,
            "grad_norm": sum(grad_norms) / len(grad_norms), "skipped": run.skipped,
            **diagnostics,
            "seconds_rollout": rolled_out - started, "seconds_update": time.perf_counter() - rolled_out}, samples)
        if step % config.eval_steps == 0 or step == config.max_steps:
            run.log("eval", step, common.evaluate(sampler, eval_sets, config))
        if run.end_step(step):
            break
    run.finish()

if __name__ == "__main__":
    common.launch(main, config)
