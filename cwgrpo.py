"""CW-GRPO, covariance-weighted GRPO: tokens of extreme covariance are weighed down.

The covariance of log-probs and advantages drives the entropy, and by the paper a small part of the
tokens dominates it. A token's term is c = (log pi - mean log pi)(A - mean A). A Gaussian kernel
weighs the advantage of each token of a prompt's group (section 2.3):

    w = exp(-c^2 / (2 std(c)^2)),  scaled to a mean of 1        A_t = w_t A

What differs from grpo.py: there is one advantage per token, from the current policy's log-probs. A
microbatch holds whole groups, so that the forward pass of the update gives the weights, too. The
paper adds a reward for the format (App. C): --format_weight 1.

Paper: Taming Extreme Tokens (CW-GRPO; Wang, Liu, Zhou, Chen; arXiv 2605.11538), not the
Contribution-Weighted GRPO of arXiv 2604.14267. Its "means over responses" are taken over all tokens
of a prompt's responses; --means has the other readings.

    python cwgrpo.py                                                      # a laptop
    python cwgrpo.py --variant clip-cov                                   # the baseline of Table 2
    python cwgrpo.py --model Qwen/Qwen2.5-0.5B-Instruct --dataset math    # one GPU
    torchrun --nproc_per_node 8 cwgrpo.py --model ... --dataset math      # 8 GPUs share the batch
"""

import re
from dataclasses import dataclass
from typing import Annotated, Literal

import rlvr
from rlvr import world
from rlvr.baselines import clip_cov_mask, covariance_statistics
from rlvr.errors import UserError
from rlvr.flags import Only, Share, ZeroOrMore

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
# In a flag's type: the values of --method that read it.
OfCwgrpo = Only(method="cwgrpo")
OfClipCov = Only(method="clip_cov")


@dataclass
class Config(rlvr.flags.Config):
    """The flags of all scripts, and those of this one."""

    variant: Literal[tuple(VARIANTS)] = "cwgrpo"  # named preset of flags; a given flag wins
    scale_rewards: bool = True  # divide the advantage by the group's standard deviation
    method: Literal["cwgrpo", "clip_cov", "none"] = "cwgrpo"  # what weakens extreme tokens
    # what centres the covariance
    means: Annotated[Literal["tokens", "responses", "own"], OfCwgrpo] = "tokens"
    # let the weights sum to the padded tokens, as the released code does
    padded_sum: Annotated[bool, OfCwgrpo] = False
    # no gradient through the weights; the released code lets it pass
    detach_weights: Annotated[bool, OfCwgrpo] = True
    # share of a minibatch's tokens that Clip-Cov detaches
    clip_cov_fraction: Annotated[Share[float], OfClipCov] = 2e-4
    format_weight: ZeroOrMore[float] = 0.0  # reward for the format, beside 1 for a right answer
    format_tags: Literal["think", "think_answer"] = "think_answer"  # think: as the paper words it

    def check(self) -> None:
        super().check()
        if self.minibatch_size % (self.num_generations * world.WORLD_SIZE):
            raise UserError(
                "--minibatch_size must hold whole groups of --num_generations, which share weights"
            )
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
    shapes disagree, or for other means, which say what centres log-probs and advantages:
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


def weigh_tokens(logprobs, advantages, mask, config: Config):
    """w of each token in a microbatch of whole groups: [m, T], [m, 1], [m, T] -> [m, T]."""
    if config.method != "cwgrpo":
        return torch.ones_like(mask)
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


def tokens_kept(batch, policy, minibatch, advantages, config: Config, draw: int):
    """0 on the tokens that Clip-Cov detaches (--method clip_cov), else 1: [N, T].

    It draws among the tokens of the whole minibatch on all ranks, which call it together. `draw`
    numbers the draws. The covariances are the current policy's, which costs a forward pass.
    """
    keep = torch.ones_like(batch.mask)
    if config.method == "clip_cov":
        logprobs, _ = rlvr.policy.frozen_logprobs(policy, batch.samples, config, minibatch)
        of_all_ranks = rlvr.machine.gather_groups(
            config.num_generations,
            logprobs[minibatch],
            advantages[minibatch, 0],
            batch.mask[minibatch],
        )
        generator = torch.Generator().manual_seed(draw)  # the same on all ranks
        found = clip_cov_mask(*of_all_ranks, config.clip_cov_fraction, generator=generator)
        own = found[world.RANK :: world.WORLD_SIZE, :, : batch.mask.shape[1]]  # [b, G, T]
        keep[minibatch] = own.flatten(0, 1)
    return keep


def covariance_metrics(batch, advantages, weights, config: Config):
    """covariance_statistics over the batches of all ranks, which call it together.

    advantages [N, 1]; weights [N, T].
    """
    of_all_ranks = rlvr.machine.gather_groups(
        config.num_generations, batch.old_logprobs, advantages[:, 0], batch.mask, weights
    )
    return covariance_statistics(*of_all_ranks, config.means)


def compute_advantages(batch, config: Config):
    """The advantages of a batch [B, G], and what to log of them. All ranks call it together."""
    formats = [format_reward(text, config.format_tags) for text in batch.texts()]
    formats = torch.tensor(formats, device=batch.rewards.device).view_as(batch.rewards)  # [B, G]
    rewards = batch.rewards + config.format_weight * formats  # [B, G]
    (well_formed,) = rlvr.machine.global_mean(formats)
    return grpo_advantage(rewards, config.scale_rewards), {"format": well_formed}


def main(config: Config) -> None:
    """Train and evaluate by these flags. All output goes into the run folder."""
    run = rlvr.training.Run(config)  # the ranks, the seed, the run folder
    policy, tokenizer = rlvr.policy.load_policy(config, run.device)
    stream, eval_sets = rlvr.tasks.open_problems(config, tokenizer)
    reference = rlvr.policy.load_reference(policy, config)  # None where --beta is 0
    sampler = rlvr.rollout.make_sampler(policy, tokenizer, config, common.decode)
    optimizer, scheduler = rlvr.training.make_optimizer(policy, config)
    training = rlvr.training.TrainingState(policy, tokenizer, optimizer, scheduler, stream)
    last_step = run.resume(training)  # 0 unless --resume_from_checkpoint is given
    if last_step == 0:
        run.log("eval", 0, common.evaluate(sampler, eval_sets, config))

    for step in range(last_step + 1, config.max_steps + 1):
        # 1. Roll out: G graded completions for each of B prompts, N = B * G rows.
        run.start_clock()
        batch = common.roll_out(sampler, stream, config)
        run.lap("rollout")

        # 2. Advantages: how much better is a completion than the others of its prompt?
        advantages, diagnostics = compute_advantages(batch, config)  # [B, G]
        advantages = advantages.view(len(batch.mask), 1)  # [N, 1]: shared by a completion's tokens

        # 3. Update: PPO-clip against the policy that wrote the rollout.
        common.compute_old_and_ref_logprobs(batch, policy, reference, config)
        update = rlvr.training.UpdateMetrics()
        advantage_weights = torch.ones_like(batch.mask)  # [N, T], w; those of the last iteration
        minibatches = batch.minibatches(config.minibatch_size)
        for minibatch in minibatches * config.num_iterations:  # the whole list, repeated
            # What each token counts in the loss, such as 1 / (n |o_i|) in GRPO; 0 off the mask. n
            # counts the whole minibatch on all ranks, so that microbatches and ranks just add up.
            token_weights = common.minibatch_weights(batch.mask, minibatch, config)  # [N, T]
            draw = config.seed + 1000 * step + len(update.grad_norms)
            keep = tokens_kept(batch, policy, minibatch, advantages, config, draw)  # [N, T]
            # Tokens of a prompt share a weight's mean and std, so its group stays together.
            for rows in batch.microbatches(
                minibatch, config.microbatch_tokens, config.num_generations
            ):
                mask = batch.mask[rows]  # [m, T], as are log-probs, entropy and correction
                logprobs, entropy = common.token_logprobs(
                    policy, batch.samples, rows, config.temperature
                )
                old_logprobs = batch.old_policy_logprobs(rows, logprobs)
                weights = keep[rows] * weigh_tokens(logprobs, advantages[rows], mask, config)
                advantage_weights[rows] = weights.detach()
                # All 1, unless the sampler computes in bf16 or is vLLM.
                correction = batch.sampler_correction(rows)
                loss, parts = common.ppo_clip_loss(
                    logprobs,
                    old_logprobs,
                    weights * advantages[rows],
                    mask,
                    token_weights[rows] * correction,
                    config.epsilon,
                    config.epsilon_high,
                    config.importance_sampling_level,
                    batch.reference_logprobs(rows),
                    config.beta,
                    entropy,
                    config.entropy_coef,
                )
                loss.backward()  # adds to the gradients of the microbatches before
                update.add(loss, mask, entropy=entropy, **parts)
            # Adds up the gradients of all ranks, clips their norm, makes the update, and sets the
            # gradients to zero.
            update.end(run.optimizer_step(policy, optimizer))
            scheduler.step()
        diagnostics |= covariance_metrics(batch, advantages, advantage_weights, config)
        metrics = batch.metrics() | update.metrics() | run.metrics() | diagnostics
        run.lap("update")

        # 4. Log, evaluate, save.
        run.log("metrics", step, metrics | run.seconds, batch.samples)
        token_advantages = advantage_weights * advantages  # [N, T]
        rlvr.show.log_tokens(run, step, batch, token_advantages, training, advantage_weights)
        if run.is_due(step, config.eval_steps):
            run.log("eval", step, common.evaluate(sampler, eval_sets, config))
        if run.end_step(step, training):  # True after Ctrl-C or SIGTERM
            break
    run.finish()


if __name__ == "__main__":
    config = rlvr.flags.parse_flags(Config, VARIANTS)
    rlvr.training.launch(main, config)
