"""CW-GRPO, covariance-weighted GRPO (paper 004): tokens of extreme covariance are weighed down.

The covariance of a token's log-prob with its advantage, c = (log pi - mean log pi)(A - mean A), drives the entropy,
and a few tokens hold most of it. A Gaussian kernel of each prompt's group weighs the advantage of its N tokens (2.3):

    w = exp(-c^2 / (2 std(c)^2)),  scaled to sum to N        A_t = w_t A

What differs from grpo.py: the advantage becomes one a token, from the current policy's log-probs, which costs a
forward pass a minibatch after the first. The paper's reward is accuracy plus format (App. C): --format_weight 1. The
tiny policy knows the format, and where all its answers are wrong, format alone would decide; it is 0 by default here.

    python cwgrpo.py                                     # a laptop, or one GPU
    python cwgrpo.py --variant clip-cov                  # the baseline of Table 2
    python cwgrpo.py --variant paper --model ...         # the paper's prompt and reward, for a language model
    torchrun --nproc_per_node 8 cwgrpo.py                # N processes share the batch
"""
import re
import time
from dataclasses import dataclass
from typing import Literal

import tasks

VARIANTS = {
    "cwgrpo": dict(),
    "paper": dict(format_weight=1.0, system_prompt="think", temperature=0.7),  # Apps. B and C, Table 5
    "clip-cov": dict(method="clip_cov"),
    "grpo": dict(method="none"),
}

@dataclass
class Config(tasks.Config):
    variant: str = "cwgrpo"  # named preset of flags, by the keys of VARIANTS; a flag that is also given wins
    scale_rewards: bool = True  # divide the advantage by the group's standard deviation
    method: Literal["cwgrpo", "clip_cov", "none"] = "cwgrpo"  # what becomes of tokens of extreme covariance
    clip_cov_fraction: float = 2e-4  # share of a minibatch's tokens that Clip-Cov detaches; of under 5,000 that is none
    format_weight: float = 0.0  # reward for <think>...</think><answer>...</answer>, beside 1 for a right answer

    def __post_init__(self):
        super().__post_init__()
        if self.minibatch_size % (self.num_generations * tasks.WORLD_SIZE):
            raise ValueError("--minibatch_size must hold whole groups of --num_generations: weights are per group")
        if self.clip_cov_fraction > 1:
            raise ValueError("--clip_cov_fraction must be at most 1")

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

def format_reward(text: str) -> float:
    """1.0 for <think>...</think>, then <answer>...</answer>, each tag once and nothing around them (004 App. C)."""
    tags = "".join(re.findall("</?(?:think|answer)>", text))
    whole = re.fullmatch(r"<think>.*</think>\s*<answer>.*</answer>", text.strip(), re.S)
    return float(whole is not None and tags == "<think></think><answer></answer>")

@torch.no_grad()
def covariance_weights(logprobs, advantages, mask):
    """Gaussian weight of every token by its covariance; the loss uses weight x advantage (004 section 2.3).

    logprobs [B, G, T]: the current policy's; advantages [B, G]; mask [B, G, T]: 1 on completion tokens.
    Means and the (population) std are over the tokens of a prompt's G responses. Returns [B, G, T] without
    gradient, summing to the number of tokens in each group, 0 off the mask. ValueError if shapes disagree.
    """
    if logprobs.shape != mask.shape or logprobs.shape[:2] != advantages.shape:
        raise ValueError(f"not BGT, BG, BGT: {[*logprobs.shape]}, {[*advantages.shape]}, {[*mask.shape]}")
    tokens = mask.bool()
    logp = torch.where(tokens, logprobs, 0)  # [B, G, T]; where, so that not even inf leaks out of the padding
    adv = torch.where(tokens, advantages.to(logp)[..., None], 0)  # [B, G, T]
    count = tokens.sum((1, 2), keepdim=True)  # [B, 1, 1]

    def mean(x):
        return torch.where(tokens, x, 0).sum((1, 2), keepdim=True) / count  # [B, 1, 1]

    cov = (logp - mean(logp)) * (adv - mean(adv))  # [B, G, T]
    std = mean((cov - mean(cov)) ** 2).sqrt()  # [B, 1, 1]
    # Equal covariances still differ in their last bits; a spread within that rounding has no bandwidth in it.
    rounding = 16 * torch.finfo(logp.dtype).eps * logp.abs().amax((1, 2), True) * adv.abs().amax((1, 2), True)
    # Dividing exp(-c^2 / 2 std^2) by its sum is a softmax, which cannot underflow to 0 / 0.
    exponent = torch.where(tokens, -((cov / std) ** 2) / 2, -torch.inf)
    weights = count * exponent.flatten(1).softmax(-1).view_as(cov)
    return torch.where(tokens, torch.where(std <= rounding, 1, weights), 0)

@torch.no_grad()
def clip_cov_mask(logprobs, advantages, mask, fraction=2e-4, low=1.0, high=5.0, generator=None):
    """Clip-Cov, the baseline in Table 2 of 004: a 0 / 1 weight per token, used where CW-GRPO has its weight.

    004 only cites the rule (arXiv 2505.22617). As in that paper's code, the fraction is of all N batch
    tokens: floor(fraction x N) of them (that code: at least 1) get 0, drawn uniformly among those with
    low < covariance < high; all if fewer. Shapes, errors as in covariance_weights; 0 off the mask.
    """
    if logprobs.shape != mask.shape or logprobs.shape[:2] != advantages.shape:
        raise ValueError(f"not BGT, BG, BGT: {[*logprobs.shape]}, {[*advantages.shape]}, {[*mask.shape]}")
    tokens = mask.bool()
    adv = advantages.to(logprobs)[..., None].expand_as(logprobs)  # [B, G, T]
    cov = (logprobs - logprobs[tokens].mean()) * (adv - adv[tokens].mean())  # [B, G, T], over the whole batch
    eligible = (tokens & (cov > low) & (cov < high)).flatten().nonzero().squeeze(-1)  # [n]
    order = torch.randperm(len(eligible), generator=generator, device=generator.device if generator else None)
    drawn = eligible[order.to(eligible.device)][: int(fraction * tokens.sum().item())]
    keep = tokens.to(logprobs.dtype).flatten()  # [B * G * T]
    keep[drawn] = 0
    return keep.view_as(logprobs)

@torch.no_grad()
def covariance_statistics(logprobs, advantages, mask, weights):
    """What to log of the covariances (004 Table 1, Figure 3); shapes as in covariance_weights.

    covariance_{positive,negative}_top_X%: the least extreme value among the X% most extreme of that sign;
    covariance_top_1%_share: the part of sum |c| in the 1% largest |c|; effective_tokens: (sum w)^2 / sum w^2.
    X% of n tokens is rounded up. Floats; 0 where there is nothing to measure.
    """
    tokens = mask.bool()
    logp = torch.where(tokens, logprobs, 0)  # [B, G, T]
    adv = torch.where(tokens, advantages.to(logp)[..., None], 0)  # [B, G, T]
    count = tokens.sum((1, 2), keepdim=True)  # [B, 1, 1]
    logp, adv = (x - x.sum((1, 2), keepdim=True) / count for x in (logp, adv))
    cov = (logp * adv)[tokens]  # [N], centred within each group, as the weights are
    statistics = {}
    for name, sign in (("positive", 1), ("negative", -1)):
        side = (sign * cov)[sign * cov > 0].sort(descending=True).values  # [n]
        for per_10k in (1, 100, 2000, 4000, 10_000):
            last = -(-len(side) * per_10k // 10_000) - 1  # index of the ceil(n X%)-th largest
            value = sign * side[last].item() if len(side) else 0.0
            statistics[f"covariance_{name}_top_{per_10k / 100:g}%"] = value
    size, used = cov.abs().sort(descending=True).values, weights[tokens]  # [N], [N]
    share = size[: -(-len(size) // 100)].sum() / size.sum()
    statistics["covariance_top_1%_share"] = share.item() if size.any() else 0.0
    statistics["effective_tokens"] = (used.sum() ** 2 / (used**2).sum()).item() if used.any() else 0.0
    return statistics

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

        # Advantages: one number a completion, and at each minibatch below a weight for every token.
        formats = torch.tensor([format_reward(s.text) for s in samples], device=run.device).view_as(rewards)
        advantages = grpo_advantage(rewards + config.format_weight * formats, config.scale_rewards)  # [B, G]

        # Update: PPO-clip against the policy that wrote the rollout, one optimizer step a minibatch.
        minibatches = torch.arange(len(samples)).split(config.minibatch_size // common.WORLD_SIZE)
        old_logprobs, _ = common.frozen_logprobs(policy, samples, config)  # [N, T]
        by_group = mask.view(*rewards.shape, -1)  # [B, G, T]
        kernel, token_advantages = torch.ones_like(by_group), torch.zeros_like(mask)  # [B, G, T], [N, T]
        ref_logprobs = common.frozen_logprobs(reference, samples, config)[0] if config.beta else None  # [N, T]
        sums, grad_norms = torch.zeros(6, device=run.device), []  # sums: loss, tokens, entropy, KL, clipped low, high
        for minibatch in minibatches * config.num_iterations:
            weights = torch.zeros_like(mask)  # [N, T]
            weights[minibatch] = common.token_weights(mask[minibatch], config.aggregation, config.max_completion_length)
            groups = minibatch[::config.num_generations] // config.num_generations
            # before the first update the current policy is the old one
            current = common.frozen_logprobs(policy, samples, config, minibatch)[0] if grad_norms else old_logprobs
            current = current.view_as(by_group)[groups]  # [b, G, T]
            if config.method == "cwgrpo":
                kernel[groups] = covariance_weights(current, advantages[groups], by_group[groups])
            elif config.method == "clip_cov":
                batch = common.gather_groups(current, advantages[groups], by_group[groups])  # of all ranks
                same_draw = torch.Generator().manual_seed(config.seed + 1000 * step + len(grad_norms))
                of_all = clip_cov_mask(*batch, config.clip_cov_fraction, generator=same_draw)  # [W * b, G, T]
                kernel[groups] = of_all[common.RANK::common.WORLD_SIZE, :, :mask.shape[1]]
            token_advantages[minibatch] = (kernel * advantages[..., None]).view_as(mask)[minibatch]
            for rows in common.microbatches(samples, minibatch, config.microbatch_tokens):
                logprobs, entropy = common.token_logprobs(policy, samples, rows, config.temperature)  # [n, T]
                if sampler.cap:  # truncated importance sampling, where vLLM's probabilities are not the trainer's
                    ratio = (old_logprobs[rows] - sampled[rows]).exp()  # [n, T]
                    weights[rows] *= ratio.clamp(max=sampler.cap)  # without a bias but for what the cap cuts off
                loss, clipped_low, clipped_high = common.ppo_clip_loss(
                    logprobs, old_logprobs[rows], token_advantages[rows], mask[rows], config.epsilon,
                    config.epsilon_high, config.importance_sampling_level, weights=weights[rows])
                kl = common.kl_penalty(logprobs, ref_logprobs[rows]) if config.beta else torch.zeros_like(logprobs)
                loss = loss + (weights[rows] * (config.beta * kl - config.entropy_coef * entropy)).sum()
                loss.backward()
                sums += torch.stack([loss.detach(), mask[rows].sum(), (mask[rows] * entropy.detach()).sum(),
                                     (mask[rows] * kl.detach()).sum(), clipped_low, clipped_high])
            grad_norms.append(run.optimizer_step(policy, optimizer, sums[0]))

        # Log, evaluate, save: all numbers are over all ranks and all updates of the step.
        batch = common.gather_groups(old_logprobs.view_as(by_group), advantages, by_group, kernel)
        loss, tokens, *totals = common.global_sum(*sums)
        entropy, kl, clip_low, clip_high = (total / max(tokens, 1) for total in totals)
        run.log("metrics", step, {
            **common.rollout_metrics(samples, config.num_generations),
            **common.sampler_mismatch(samples, old_logprobs, sampled), "loss": loss / len(grad_norms),
            "entropy": entropy, "kl": kl, "clip_low": clip_low, "clip_high": clip_high,
            "grad_norm": sum(grad_norms) / len(grad_norms), "skipped": run.skipped,
            "format": common.global_sum(formats.sum())[0] / common.global_sum(len(samples))[0],
            **covariance_statistics(*batch),
            "seconds_rollout": rolled_out - started, "seconds_update": time.perf_counter() - rolled_out}, samples)
        if step % config.eval_steps == 0 or step == config.max_steps:
            run.log("eval", step, common.evaluate(sampler, eval_sets, config))
        if run.end_step(step):
            break
    run.finish()

if __name__ == "__main__":
    common.launch(main, config)
