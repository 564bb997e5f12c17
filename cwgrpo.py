"""CW-GRPO, covariance-weighted GRPO: tokens of extreme covariance are weighed down.

The covariance of log-probs and advantages drives the entropy. A token's term in it is
c = (log pi - mean log pi)(A - mean A), which the paper calls its covariance. It says that a small
part of the tokens dominates the sum. A Gaussian kernel weighs the advantage of each token of a
prompt's group (section 2.3):

    w = exp(-c^2 / (2 std(c)^2)),  scaled to a mean of 1        A_t = w_t A

What differs from grpo.py: there is one advantage per token, from the current policy's log-probs,
which costs one more forward pass for each minibatch. The paper's reward is accuracy plus format
(App. C): --format_weight 1. It is 0 by default here: the tiny policy knows the format, and where
all answers of a group are wrong, the format alone would decide.

Paper: Taming Extreme Tokens (CW-GRPO; Wang, Liu, Zhou, Chen; arXiv 2605.11538), not the
Contribution-Weighted GRPO of arXiv 2604.14267. Its "means over responses" are taken over all tokens
of a prompt's responses; --means has the other readings. --variant released has the weights of the
code that its first author has published.

    python cwgrpo.py                                                      # a laptop
    python cwgrpo.py --variant clip-cov                                   # the baseline of Table 2
    python cwgrpo.py --model Qwen/Qwen2.5-0.5B-Instruct --dataset math    # one GPU
    torchrun --nproc_per_node 8 cwgrpo.py --model ... --dataset math      # 8 GPUs share the batch
"""

import re
from dataclasses import dataclass
from typing import Literal

import rlvr.checkpoints
import rlvr.config
import rlvr.flags
import rlvr.logprobs
import rlvr.models
import rlvr.ranks
import rlvr.run
import rlvr.samplers
import rlvr.schedules
import rlvr.tasks.datasets
import rlvr.tasks.prompts
import rlvr.tasks.stream
import rlvr.tokens
from rlvr import world
from rlvr.config import ZeroOrMore
from rlvr.errors import UserError

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
    "clip-cov": dict(method="clip_cov"),
    "grpo": dict(method="none"),
}
READ_BY = {  # flag -> the methods that read it; all of them read a flag that is not listed
    "means": ("cwgrpo",),
    "padded_sum": ("cwgrpo",),
    "detach_weights": ("cwgrpo",),
    "clip_cov_fraction": ("clip_cov",),
}


@dataclass
class Config(rlvr.config.Config):
    """The flags of all scripts, and those of this one."""

    variant: Literal[tuple(VARIANTS)] = "cwgrpo"  # named preset of flags; a given flag wins
    scale_rewards: bool = True  # divide the advantage by the group's standard deviation
    method: Literal["cwgrpo", "clip_cov", "none"] = "cwgrpo"  # what weakens extreme tokens
    means: Literal["tokens", "responses", "own"] = "tokens"  # what centres the covariance
    padded_sum: bool = False  # let the weights sum to the padded tokens, as the released code does
    detach_weights: bool = True  # no gradient through the weights; the released code lets it pass
    clip_cov_fraction: float = 2e-4  # share of a minibatch's tokens that Clip-Cov detaches
    format_weight: ZeroOrMore[float] = 0.0  # reward for the format, beside 1 for a right answer
    format_tags: Literal["think", "think_answer"] = "think_answer"  # think: as the paper words it

    def check(self) -> None:
        super().check()
        self.refuse_unread("method", READ_BY)
        if self.minibatch_size % (self.num_generations * world.WORLD_SIZE):
            raise UserError(
                "--minibatch_size must hold whole groups of --num_generations, which share weights"
            )
        if self.clip_cov_fraction > 1:
            raise UserError("--clip_cov_fraction must be at most 1")
        if self.importance_sampling_level == "sequence" and self.method != "none":
            raise UserError(
                "--importance_sampling_level sequence is for --method none: the others weigh "
                "single tokens, which have no ratio of their own then"
            )


def grpo_advantage(rewards: torch.Tensor, scale_rewards: bool = True) -> torch.Tensor:
    """(r - mean) / std over each prompt's group, [B, G] -> [B, G] (A-GRAE Eq. 3).

    Without scale_rewards, r - mean (Dr.GRPO). The standard deviation is the population's. A group
    whose rewards are all equal gets exactly 0.
    """
    mean = rewards.mean(1, keepdim=True)  # [B, 1]
    std = rewards.std(1, keepdim=True, correction=0)  # [B, 1]
    if not scale_rewards:
        std = torch.ones_like(std)
    # Compare the rewards themselves: the std of equal ones can be a rounding error away from 0.
    mixed = rewards.amax(1, keepdim=True) > rewards.amin(1, keepdim=True)  # [B, 1]
    return torch.where(mixed, (rewards - mean) / torch.where(mixed, std, 1), 0)


def format_reward(text: str, tags: str = "think_answer") -> float:
    """1.0 for a completion in the format, else 0.0.

    "think": it has <think> tags, and each is matched (App. C). "think_answer": it is
    <think>...</think><answer>...</answer>, each tag once and nothing around, as the prompt of
    App. B asks.
    """
    if tags == "think":
        found = "".join(re.findall("</?think>", text))
        return float(re.fullmatch("(<think></think>)+", found) is not None)
    found = "".join(re.findall("</?(?:think|answer)>", text))
    whole = re.fullmatch(r"<think>.*</think>\s*<answer>.*</answer>", text.strip(), re.S)
    return float(whole is not None and found == "<think></think><answer></answer>")


def covariance_weights(logprobs, advantages, mask, means="tokens", padded_sum=False, detach=True):
    """Gaussian weight of every token by its covariance; the loss uses weight x advantage (2.3).

    logprobs [B, G, T]: the current policy's; advantages [B, G]; mask [B, G, T]: 1 on completion
    tokens. Returns [B, G, T], 0 off the mask, without gradient if detach. The weights of a group
    sum to its number of tokens; if padded_sum, to G times its longest response. ValueError if
    shapes disagree, or for other means.

    means says what centres the log-probs and the advantages:
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
    logp = torch.where(tokens, logprobs, 0)  # [B, G, T]; no product: inf * 0 is nan
    adv = torch.where(tokens, advantages.detach().to(logp)[..., None], 0)  # [B, G, T]
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
    # Covariances that are equal but for rounding get equal weights.
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
    return torch.where(tokens, weights, 0)


def gradient_through_weights(logprobs, advantages, mask, scale, config):
    """The extra advantage [B, G, T] that brings the gradient of the weights into the loss.

    In the released code the weights w are not detached: the gradient of the loss has one more term,
    of scale A dw/dlogp. A prompt's w needs its whole group, which microbatches may split. So the
    term is computed here for the minibatch and divided by scale. Added to w A, it gives the loss
    the same gradient, where no token is clipped. scale [B, G, T] is the token's loss weight times
    its ratio and its sampler correction; the other shapes are those of covariance_weights.
    """
    logprobs = logprobs.detach().requires_grad_()
    weights = covariance_weights(
        logprobs, advantages, mask, config.means, config.padded_sum, detach=False
    )
    objective = (scale * weights * advantages[..., None]).sum()
    (gradient,) = torch.autograd.grad(objective, logprobs)
    return torch.where(scale > 0, gradient / scale, 0)


@torch.no_grad()
def clip_cov_mask(logprobs, advantages, mask, fraction=2e-4, low=1.0, high=5.0, generator=None):
    """Clip-Cov, the baseline in Table 2: a 0 / 1 weight per token, used where CW-GRPO has its own.

    The paper only cites the rule (arXiv 2505.22617). As in that paper's code, the fraction is of
    all tokens of a minibatch: floor(fraction x tokens) of them (that code: at least 1) get 0, drawn
    uniformly among those with low < covariance < high; all if fewer. That code also leaves out
    tokens that PPO-clip has clipped. Shapes and errors are those of covariance_weights; 0 off the
    mask.
    """
    if logprobs.shape != mask.shape or logprobs.shape[:2] != advantages.shape:
        shapes = f"{[*logprobs.shape]}, {[*advantages.shape]}, {[*mask.shape]}"
        raise ValueError(f"not BGT, BG, BGT: {shapes}")
    tokens = mask.bool()
    adv = advantages.to(logprobs)[..., None].expand_as(logprobs)  # [B, G, T]
    # over the whole batch, [B, G, T]
    cov = (logprobs - logprobs[tokens].mean()) * (adv - adv[tokens].mean())
    eligible = (tokens & (cov > low) & (cov < high)).flatten().nonzero().squeeze(-1)  # [n]
    device = generator.device if generator else None
    order = torch.randperm(len(eligible), generator=generator, device=device)
    drawn = eligible[order.to(eligible.device)][: int(fraction * tokens.sum().item())]
    keep = tokens.to(logprobs.dtype).flatten()  # [B * G * T]
    keep[drawn] = 0
    return keep.view_as(logprobs)


@torch.no_grad()
def covariance_statistics(logprobs, advantages, mask, weights):
    """What to log of the covariances (Table 1, Figure 3); shapes as in covariance_weights.

    covariance_{positive,negative}_top_X%: the least extreme value among the X% most extreme of that
    sign; covariance_top_1%_share: the part of sum |c| in the 1% largest |c|; effective_tokens:
    (sum w)^2 / sum w^2. X% of n tokens is rounded up. Floats; 0 where there is nothing to measure.
    """
    tokens = mask.bool()
    logp = torch.where(tokens, logprobs, 0)  # [B, G, T]
    adv = torch.where(tokens, advantages.to(logp)[..., None], 0)  # [B, G, T]
    count = tokens.sum((1, 2), keepdim=True)  # [B, 1, 1]
    logp = logp - logp.sum((1, 2), keepdim=True) / count
    adv = adv - adv.sum((1, 2), keepdim=True) / count
    cov = (logp * adv)[tokens]  # [tokens], centred by the means over each group's tokens
    statistics = {}
    for name, sign in (("positive", 1), ("negative", -1)):
        side = (sign * cov)[sign * cov > 0].sort(descending=True).values  # [n]
        for per_10k in (1, 100, 2000, 4000, 10_000):
            last = -(-len(side) * per_10k // 10_000) - 1  # index of the ceil(n X%)-th largest
            value = sign * side[last].item() if len(side) else 0.0
            statistics[f"covariance_{name}_top_{per_10k / 100:g}%"] = value
    size, used = cov.abs().sort(descending=True).values, weights[tokens]  # [tokens]
    share = size[: -(-len(size) // 100)].sum() / size.sum()
    statistics["covariance_top_1%_share"] = share.item() if size.any() else 0.0
    effective = used.sum() ** 2 / (used**2).sum()
    statistics["effective_tokens"] = effective.item() if used.any() else 0.0
    return statistics


def global_clip_cov_mask(logprobs, advantages, mask, config, draw):
    """clip_cov_mask over the tokens of all ranks, which call it together -> this rank's part.

    Shapes as in covariance_weights; all ranks draw the same tokens, as `draw` numbers the draws.
    """
    all_ranks = rlvr.ranks.gather_groups(logprobs, advantages, mask)
    generator = torch.Generator().manual_seed(draw)
    keep = clip_cov_mask(*all_ranks, config.clip_cov_fraction, generator=generator)  # [W * b, G, T]
    return keep[world.RANK :: world.WORLD_SIZE, :, : mask.shape[2]]


def main(config: Config) -> None:
    """Train and evaluate by these flags. All output goes into the run folder."""
    run = rlvr.run.Run(config)
    policy, tokenizer = rlvr.models.load_policy(config, run.device)
    train_problems, eval_sets = rlvr.ranks.from_rank_0(  # the same on all ranks
        rlvr.tasks.datasets.load_problems, config, tokenizer
    )
    reference = rlvr.models.load_reference(policy, config)  # None where --beta is 0
    sampler = rlvr.samplers.make_sampler(policy, tokenizer, config)
    optimizer = torch.optim.AdamW(
        policy.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
    )
    stream = rlvr.tasks.stream.ProblemStream(train_problems, config.seed)
    config.max_steps = rlvr.schedules.count_steps(config, train_problems)
    scheduler = rlvr.schedules.make_scheduler(optimizer, config)
    training = rlvr.checkpoints.TrainingState(policy, tokenizer, optimizer, scheduler, stream)

    last_step = run.resume(training)  # 0 unless --resume_from_checkpoint is given
    if last_step == 0:
        run.log("eval", 0, common.evaluate(sampler, eval_sets, config))

    for step in range(last_step + 1, config.max_steps + 1):
        timer = common.Timer()

        # 1. Roll out: G graded completions for each of B prompts, N = B * G rows.
        batch = common.roll_out(sampler, stream, config)
        timer.lap("rollout")

        # 2. Advantages: how much better is a completion than the others of its prompt?
        texts = rlvr.tasks.prompts.texts_with_opened_thoughts(batch.samples, tokenizer)
        formats = [format_reward(text, config.format_tags) for text in texts]
        formats = torch.tensor(formats, device=run.device)  # [N]
        rewards = batch.rewards + config.format_weight * formats.view_as(batch.rewards)
        advantages = grpo_advantage(rewards, config.scale_rewards)  # [B, G]
        mask_by_group = batch.mask.view(*rewards.shape, -1)  # [B, G, T]
        advantage_weights = torch.ones_like(mask_by_group)  # [B, G, T], w_t; set by minibatch
        token_advantages = torch.zeros_like(batch.mask)  # [N, T]
        # Also of the first minibatch: its weights come before its own forward pass.
        common.compute_old_logprobs(batch, policy, config)

        # 3. Update: PPO-clip against the policy that wrote the rollout.
        common.compute_old_and_ref_logprobs(batch, policy, reference, config)
        update = common.UpdateMetrics()
        minibatches = batch.minibatches(config.minibatch_size)
        for minibatch in minibatches * config.num_iterations:  # the whole list, repeated
            # What each token counts in the loss, such as 1 / (n |o_i|) in GRPO; 0 off the mask. n
            # counts the whole minibatch on all ranks, so that microbatches and ranks just add up.
            loss_weights = common.minibatch_weights(batch.mask, minibatch, config)  # [N, T]
            updates_done = len(update.grad_norms)
            # The weights are the current policy's. Before the first update that is the old policy.
            current_logprobs = batch.old_logprobs  # [N, T]
            if updates_done > 0 and config.method != "none":
                current_logprobs, _ = rlvr.logprobs.frozen_logprobs(
                    policy, batch.samples, config, minibatch
                )
            groups = minibatch[:: config.num_generations] // config.num_generations  # [b]
            by_group = current_logprobs.view_as(mask_by_group)[groups]  # [b, G, T]
            if config.method == "cwgrpo":
                # Detached in any case: gradient_through_weights below adds their gradient's part.
                advantage_weights[groups] = covariance_weights(
                    by_group,
                    advantages[groups],
                    mask_by_group[groups],
                    config.means,
                    config.padded_sum,
                )
            elif config.method == "clip_cov":
                draw = config.seed + 1000 * step + updates_done
                advantage_weights[groups] = global_clip_cov_mask(
                    by_group, advantages[groups], mask_by_group[groups], config, draw
                )
            weighted = advantage_weights[groups] * advantages[groups][..., None]  # [b, G, T]
            if config.method == "cwgrpo" and not config.detach_weights:
                ratio = common.importance_ratio(
                    current_logprobs,
                    batch.old_logprobs,
                    batch.mask,
                    config.importance_sampling_level,
                )
                correction = batch.sampler_correction(slice(None), sampler.cap)
                scale = loss_weights * correction * ratio  # [N, T]
                weighted += gradient_through_weights(
                    by_group,
                    advantages[groups],
                    mask_by_group[groups],
                    scale.view_as(mask_by_group)[groups],
                    config,
                )
            token_advantages[minibatch] = weighted.flatten(0, 1)
            for rows in batch.microbatches(minibatch, config.microbatch_tokens):
                mask = batch.mask[rows]  # [m, T], as are all below
                logprobs, entropy = common.token_logprobs(
                    policy, batch.samples, rows, config.temperature
                )
                old_logprobs = batch.old_policy_logprobs(rows, logprobs)
                ratio = common.importance_ratio(
                    logprobs, old_logprobs, mask, config.importance_sampling_level
                )
                clipped = common.ppo_clip(
                    ratio, token_advantages[rows], config.epsilon, config.epsilon_high
                )
                kl = torch.zeros_like(logprobs)
                if reference is not None:
                    kl = common.kl_penalty(logprobs, batch.ref_logprobs[rows])
                objective = clipped.objective - config.beta * kl + config.entropy_coef * entropy
                # All 1, unless the sampler computes in bf16 or is vLLM.
                correction = batch.sampler_correction(rows, sampler.cap)

                loss = -(loss_weights[rows] * correction * objective).sum()
                loss.backward()
                update.add(
                    loss, mask, entropy=entropy, kl=kl, clip_low=clipped.low, clip_high=clipped.high
                )
            # Adds up the gradients of all ranks, clips their norm, and makes the update.
            grad_norm = run.optimizer_step(policy, optimizer, update.loss)
            update.end(grad_norm)
            scheduler.step()
        well_formed, completions = rlvr.ranks.global_sum(formats.sum(), len(formats))
        old_logprobs = batch.old_logprobs.view_as(mask_by_group)
        diagnostics = {"format": well_formed / completions} | covariance_statistics(
            *rlvr.ranks.gather_groups(old_logprobs, advantages, mask_by_group, advantage_weights)
        )
        metrics = batch.metrics() | update.metrics() | run.metrics() | diagnostics
        timer.lap("update")

        # 4. Log, evaluate, save.
        run.log("metrics", step, metrics | timer.seconds, batch.samples)
        rlvr.tokens.log_tokens(run, step, batch, token_advantages, training, advantage_weights)
        if run.is_due(step, config.eval_steps):
            run.log("eval", step, common.evaluate(sampler, eval_sets, config))
        if run.end_step(step, training):  # True after Ctrl-C or SIGTERM
            break
    run.finish()


if __name__ == "__main__":
    rlvr.run.launch(main, rlvr.flags.parse_flags(Config, VARIANTS))
