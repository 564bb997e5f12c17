"""CW-GRPO, covariance-weighted GRPO: tokens with an extreme covariance count less.

The covariance of log-probs and advantages drives the entropy. According to the paper, a small part
of the tokens dominates it. A token's term is c = (log pi - mean log pi)(A - mean A). A Gaussian
kernel weighs the advantage of each token of a prompt's group (section 2.3):

    w = exp(-c^2 / (2 std(c)^2)),  scaled to a mean of 1        A_t = w_t A

What differs from grpo.py: there is one advantage per token, from the current policy's log-probs. A
microbatch holds whole groups, so the update's own forward pass also gives the weights. The paper
adds a reward for the format (App. C): --format_weight 1. Its baseline Clip-Cov is in
studies/baselines/baselines.py.

Paper: Taming Extreme Tokens (CW-GRPO; Wang, Liu, Zhou, Chen; arXiv 2605.11538), not the
Contribution-Weighted GRPO of arXiv 2604.14267. This file takes its "means over responses" over all
tokens of a prompt's responses; --means has the other readings.

    python cwgrpo.py                                                      # a laptop
    python cwgrpo.py --model Qwen/Qwen2.5-0.5B-Instruct --dataset math    # one GPU
    python cwgrpo.py --variant paper --model ... --dataset math           # rewards the format, too
    torchrun --nproc_per_node 8 cwgrpo.py --model ... --dataset math      # 8 GPUs share the batch
"""

import re
from dataclasses import dataclass
from typing import Literal

import rlvr.flags  # a copy of this file elsewhere needs: pip install -e path/to/the/clone
from rlvr import world
from rlvr.errors import UserError
from rlvr.flags import flag, make_config, parse_flags
from rlvr.machine import gather_groups, global_mean
from rlvr.policy import load_policies
from rlvr.rollout import make_sampler
from rlvr.tasks import open_problems
from rlvr.training import Run, launch, make_optimizer

import torch

import common

VARIANTS = {
    "cwgrpo": dict(),
    "paper": dict(  # Apps. B and C, Table 5
        format_weight=1.0,
        format_tags="think",
        system_prompt="think",
        temperature=0.7,
        warmup_ratio=0.1,
    ),
    "released": dict(
        means="own",
        padded_sum=True,
        detach_weights=False,
        beta=0.04,
        lr_scheduler_type="cosine",
        warmup_ratio=0.1,
    ),
}


@dataclass
class Config(rlvr.flags.Config):
    """The flags of all scripts, and those of this one."""

    variant: str = flag("cwgrpo", "named preset of flags", choices=VARIANTS)
    scale_rewards: bool = flag(True, "divide the advantage by the group's standard deviation")
    means: Literal["tokens", "responses", "own"] = flag("tokens", "what centres the covariance")
    padded_sum: bool = flag(False, "weights sum to the padded tokens, as in the released code")
    detach_weights: bool = flag(True, "no gradient through weights; the released code has one")
    format_weight: float = flag(0.0, "reward for the format, beside 1 for a right answer", ge=0)
    format_tags: Literal["think", "think_answer"] = flag(
        "think_answer", "think: as the paper words it"
    )

    def check(self) -> None:
        super().check()
        if self.minibatch_size % (self.num_generations * world.WORLD_SIZE):
            raise UserError(
                "--minibatch_size must hold whole groups of --num_generations, which share weights"
            )
        if self.importance_sampling_level == "sequence":
            raise UserError("--importance_sampling_level must be token: weights are per token")


def configure(**flags) -> Config:
    """Return checked flags, for a notebook: main(configure(max_steps=20)). UserError if wrong."""
    return make_config(Config, VARIANTS, flags)


def grpo_advantage(rewards: torch.Tensor, scale_rewards: bool = True) -> torch.Tensor:
    """Return (r - mean) / std over each prompt's group, [B, G] -> [B, G] (A-GRAE Eq. 3).

    Without scale_rewards, return r - mean (Dr.GRPO). The standard deviation is the population's. A
    group whose rewards are all equal gets exactly 0.
    """
    rewards = rewards + 0.0  # so that integers and booleans have a mean
    mean = rewards.mean(1, keepdim=True)  # [B, 1]
    std = rewards.std(1, keepdim=True, correction=0)  # [B, 1]
    if not scale_rewards:
        std = torch.ones_like(std)
    # Compare the rewards themselves: the std of equal ones can be a rounding error away from 0.
    equal = rewards.amax(1, keepdim=True) == rewards.amin(1, keepdim=True)  # [B, 1]
    return torch.where(equal, 0, (rewards - mean) / torch.where(equal, 1, std))


def format_reward(text: str, tags: str = "think_answer") -> float:
    """Return 1.0 for a completion in the format, else 0.0.

    "think": it has <think> tags, and each is matched (App. C). "think_answer": it is exactly
    <think>...</think><answer>...</answer>, with each tag once, as the prompt of App. B asks.
    """
    if tags == "think":
        found = "".join(re.findall("</?think>", text))
        return float(re.fullmatch("(<think></think>)+", found) is not None)
    found = "".join(re.findall("</?(?:think|answer)>", text))
    whole = re.fullmatch(r"<think>.*</think>\s*<answer>.*</answer>", text.strip(), re.S)
    return float(whole is not None and found == "<think></think><answer></answer>")


def covariance_weights(logprobs, advantages, mask, means="tokens", padded_sum=False, detach=True):
    """Return the Gaussian weight of every token by its covariance (2.3).

    logprobs [B, G, T], by the current policy; advantages [B, G]; mask [B, G, T], 1 on the tokens
    that count. Return [B, G, T], 0 off the mask. With detach it has no gradient; the paper leaves
    this open. The weights of a group sum to its number of tokens or, with padded_sum, to G times
    its longest response. ValueError if shapes disagree, or for another `means`, which says what
    centres log-probs and advantages:
    "tokens": the mean over all tokens of the prompt's G responses.
    "responses": each response's own mean first, then the mean of these.
    "own": log-probs by the mean of their own response, advantages as with "responses".
    The standard deviation is the population's, over tokens. The released code is "own" with
    padded_sum, without detach.
    """
    if logprobs.shape != mask.shape or logprobs.shape[:2] != advantages.shape:
        shapes = f"{[*logprobs.shape]}, {[*advantages.shape]}, {[*mask.shape]}"
        raise ValueError(f"not BGT, BG, BGT: {shapes}")
    tokens = mask.bool()
    logprobs = logprobs.detach() if detach else logprobs
    dtype = logprobs.dtype
    # in bf16, most covariances would be equal
    logprobs = logprobs.to(torch.promote_types(dtype, torch.float32))
    logp = torch.where(tokens, logprobs, 0)  # [B, G, T]; no product: inf * 0 is nan
    adv = torch.where(tokens, advantages[..., None], 0)  # [B, G, T]
    count = tokens.sum((1, 2), keepdim=True)  # [B, 1, 1]
    lengths = tokens.sum(2, keepdim=True)  # [B, G, 1]

    def mean(x):
        return torch.where(tokens, x, 0).sum((1, 2), keepdim=True) / count  # [B, 1, 1]

    def own_mean(x):
        return x.sum(2, keepdim=True) / lengths.clamp(min=1)  # [B, G, 1]

    def mean_of_responses(x):
        return own_mean(x).sum(1, keepdim=True) / (lengths > 0).sum(1, keepdim=True)  # [B, 1, 1]

    if means == "tokens":
        cov = (logp - mean(logp)) * (adv - mean(adv))  # [B, G, T]
    elif means == "responses":
        cov = (logp - mean_of_responses(logp)) * (adv - mean_of_responses(adv))
    elif means == "own":
        cov = (logp - own_mean(logp)) * (adv - mean_of_responses(adv))
    else:
        raise ValueError(f"means must be tokens, responses or own; got {means!r}")
    variance = mean((cov - mean(cov)) ** 2)  # [B, 1, 1]
    # Covariances that differ only by rounding get equal weights.
    largest = logp.abs().amax((1, 2), True) * adv.abs().amax((1, 2), True)  # [B, 1, 1]
    equal = variance.sqrt() <= 16 * torch.finfo(logp.dtype).eps * largest
    std = torch.where(equal, 1, variance).sqrt()
    # Dividing exp(-c^2 / 2 std^2) by its sum is a softmax, which cannot underflow to 0 / 0.
    exponent = torch.where(tokens, -((cov / std) ** 2) / 2, -torch.inf)
    total = count  # [B, 1, 1]
    if padded_sum:
        total = lengths.amax(1, keepdim=True) * mask.shape[1]  # [B, 1, 1], G times the longest
    weights = total * exponent.flatten(1).softmax(-1).view_as(cov)  # [B, G, T]
    weights = torch.where(equal, total / count.to(cov), weights)
    return torch.where(tokens, weights, 0).to(dtype)


@torch.no_grad()
def covariance_statistics(logprobs, advantages, mask, weights, means="tokens"):
    """Return the covariances' metrics (Table 1, Figure 3); arguments as in covariance_weights.

    covariance_{positive,negative}_top_X%: the least extreme value among the X% most extreme of that
    sign; covariance_top_1%_share: the part of sum |c| in the 1% largest |c|; effective_tokens:
    (sum w)^2 / sum w^2. X% of n tokens is rounded up. Floats; 0 if there is nothing to measure.
    """
    tokens = mask.bool()
    logp = torch.where(tokens, logprobs, 0)  # [B, G, T]
    adv = torch.where(tokens, advantages.to(logp)[..., None], 0)  # [B, G, T]
    lengths = tokens.sum(2, keepdim=True)  # [B, G, 1]
    share = tokens.to(logp) / lengths.sum(1, keepdim=True)  # [B, G, T], of a token in the means
    if means != "tokens":
        share = tokens.to(logp) / lengths.clamp(min=1) / (lengths > 0).sum(1, keepdim=True)
    centre = (share * logp).sum((1, 2), keepdim=True)  # [B, 1, 1]
    if means == "own":
        centre = logp.sum(2, keepdim=True) / lengths  # [B, G, 1], NaN without tokens
    adv = adv - (share * adv).sum((1, 2), keepdim=True)
    cov = ((logp - centre) * adv)[tokens]  # one per token
    statistics = {}
    for name, sign in (("positive", 1), ("negative", -1)):
        side = (sign * cov)[sign * cov > 0].sort(descending=True).values
        for per_10k in (1, 100, 2000, 4000, 10_000):
            last = -(-len(side) * per_10k // 10_000) - 1  # index of the ceil(n X%)-th largest
            value = sign * side[last].item() if len(side) else 0.0
            statistics[f"covariance_{name}_top_{per_10k / 100:g}%"] = value
    size, used = cov.abs().sort(descending=True).values, weights[tokens]  # one per token
    share = size[: -(-len(size) // 100)].sum() / size.sum()
    statistics["covariance_top_1%_share"] = share.item() if size.any() else 0.0
    effective = used.sum() ** 2 / (used**2).sum()
    statistics["effective_tokens"] = effective.item() if used.any() else 0.0
    return statistics


def weigh_tokens(logprobs, advantages, mask, config: Config):
    """Return w of each token of whole groups: [m, T], [m, 1], [m, T] -> [m, T]."""
    by_group = (-1, config.num_generations)  # to [b, G]
    weights = covariance_weights(
        logprobs.unflatten(0, by_group),
        advantages.view(by_group),
        mask.unflatten(0, by_group),
        config.means,
        config.padded_sum,
        config.detach_weights,
    )
    return weights.flatten(0, 1)


def compute_advantages(batch: common.Batch, config: Config):
    """Return the advantages of a batch [B, G], and the metrics to log. All ranks call it."""
    formats = [format_reward(text, config.format_tags) for text in batch.texts()]
    formats = batch.rewards.new_tensor(formats).view_as(batch.rewards)  # [B, G]
    rewards = batch.rewards + config.format_weight * formats  # [B, G]
    (well_formed,) = global_mean(formats)
    return grpo_advantage(rewards, config.scale_rewards), {"format": well_formed}


def main(config: Config, compute_advantages=compute_advantages):
    """Train and evaluate with these flags. Return the run folder and the rows of its logs.

    In a notebook, compute_advantages may be a function of your own with the same arguments.
    """
    run = Run(config)  # connects the ranks, sets the seed, makes the run folder
    policy, reference, tokenizer = load_policies(config)  # no reference unless --beta is above 0
    stream, eval_sets = open_problems(config, tokenizer)
    sampler = make_sampler(policy, tokenizer, config, common.decode)
    optimizer, scheduler = make_optimizer(policy, config)
    last_step = run.start(policy, tokenizer, optimizer, scheduler, stream)  # 0 for a new run
    if last_step == 0:
        run.log_evaluation(0, common.evaluate(sampler, eval_sets, config))

    for step in range(last_step + 1, config.max_steps + 1):
        # 1. Roll out: G graded completions for each of B prompts, N = B * G rows.
        batch = common.roll_out(sampler, stream, config)

        # 2. Advantages: how much better is a completion than the others of its prompt?
        advantages, diagnostics = compute_advantages(batch, config)  # [B, G]

        # 3. Update: PPO-clip against the policy that wrote the completions.
        advantages = common.prepare_update(batch, advantages, policy, reference, config)  # [N, 1]
        weights = torch.zeros_like(batch.loss_mask)  # [N, T], w of each token in its last update
        for update, minibatch in enumerate(batch.minibatches(config, whole_groups=True)):
            for rows in minibatch:  # the m rows of a microbatch, whole groups of G
                logprobs, entropy = common.token_logprobs(
                    policy, batch.samples, rows, config.temperature
                )  # [m, T] each
                if update == 0:  # before the first update, these are log pi_old: no pass for it
                    batch.old_logprobs[rows] = logprobs.detach()
                w = weigh_tokens(logprobs, advantages[rows], batch.loss_mask[rows], config)
                weights[rows] = w.detach()
                loss, stats = common.ppo_clip_loss(
                    logprobs=logprobs,
                    old_logprobs=batch.old_logprobs[rows],
                    advantages=w * advantages[rows],
                    loss_mask=batch.loss_mask[rows],
                    token_weights=batch.token_weights[rows],
                    importance=batch.importance[rows],  # 1 unless the sampler computes otherwise
                    epsilon=config.epsilon,
                    epsilon_high=config.epsilon_high,
                    importance_sampling_level=config.importance_sampling_level,
                    ref_logprobs=batch.ref_logprobs[rows],
                    beta=config.beta,
                    entropy=entropy,
                    entropy_coef=config.entropy_coef,
                )
                loss.backward()  # gradients accumulate over the microbatches
                run.add(loss, batch, rows, logprobs=logprobs, entropy=entropy, **stats)
            common.optimizer_step(policy, optimizer, run)  # also sets the gradients to zero
            scheduler.step()

        of_all_ranks = gather_groups(
            config.num_generations, batch.old_logprobs, advantages[:, 0], batch.loss_mask, weights
        )
        diagnostics |= covariance_statistics(*of_all_ranks, means=config.means)

        # 4. Log, evaluate, save.
        run.log_step(step, batch, advantages, diagnostics, weights)
        if step % config.eval_steps == 0 or step == config.max_steps:
            run.log_evaluation(step, common.evaluate(sampler, eval_sets, config))
        if run.end_step(step):  # True after Ctrl-C or SIGTERM
            break
    return run.finish()


if __name__ == "__main__":
    launch(main, parse_flags(Config, VARIANTS))
