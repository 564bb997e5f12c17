"""AsymGRPO: a prompt's difficulty modulates successes and failures, each by its own strength.

With p the success rate of the prompt's group (Eqs. 5, 8):

    success:   A =  ((1-p) / p) ^ beta_pos         failure:   A = -(p / (1-p)) ^ beta_neg

(0.5, 0.5) is GRPO, and (0, 0) is REINFORCE with rewards +1 and -1. The exponents are called
strengths, and the two formulas the positive and the negative channel. As beta_pos grows, a rare
success is worth more: by the paper, this keeps several solutions likely. As beta_neg grows, a rare
failure costs more and a common one less: by the paper, this removes the entropy of failures, and
spares right answers that begin like them.

What differs from grpo.py: the advantages; all tokens of a minibatch weigh the same (App. G); and
kappa is logged, the alignment of rewards and confidence. For small strengths its sign says whether
a channel raises or lowers the entropy, compared with REINFORCE (Proposition 1).

Paper: Asymmetric Advantage Modulation Calibrates Entropy Dynamics in RLVR, first called Rethinking
Exploration in RLVR (AsymGRPO; Gu, Han, Bian, Wang, Zhou; arXiv 2604.04894). Its App. F averages per
response and its App. G over tokens; the latter is taken, and --aggregation sequence is the former.
FADE has a baseline of the same name with one parameter, delta: that is "asym" in fade.py.

    python asymgrpo.py                                                      # a laptop
    python asymgrpo.py --variant pos-only                                   # one channel alone
    python asymgrpo.py --model Qwen/Qwen2.5-0.5B-Instruct --dataset math    # one GPU
    torchrun --nproc_per_node 8 asymgrpo.py --model ... --dataset math      # 8 GPUs share the batch
"""

from dataclasses import dataclass
from typing import Literal

import rlvr
from rlvr.flags import ZeroOrMore

import torch

import common

GRPO = dict(beta_pos=0.5, beta_neg=0.5)
VARIANTS = {
    "asymgrpo": dict(),
    "reinforce": dict(beta_pos=0.0, beta_neg=0.0),
    "reinforce-entropy": dict(beta_pos=0.0, beta_neg=0.0, entropy_coef=0.001),
    "pos-only": dict(beta_pos=0.5, beta_neg=0.0),
    "neg-only": dict(beta_pos=0.0, beta_neg=0.5),
    "symmetric": dict(beta_pos=0.7, beta_neg=0.7),
    "ent-decrease": dict(**GRPO, flip="positive"),
    "ent-increase": dict(**GRPO, flip="negative"),
    "grpo": dict(**GRPO),
    "clip-higher": dict(**GRPO, epsilon_high=0.28),
    "grpo-entropy": dict(**GRPO, entropy_coef=0.001),
}


@dataclass
class Config(rlvr.flags.Config):
    """The flags of all scripts, and those of this one."""

    variant: Literal[tuple(VARIANTS)] = "asymgrpo"  # named preset of flags; a given flag wins
    aggregation: Literal["sequence", "token", "constant"] = "token"  # what divides the sum
    beta_pos: ZeroOrMore[float] = 0.9  # strength for successes
    beta_neg: ZeroOrMore[float] = 0.4  # strength for failures
    flip: Literal["none", "positive", "negative"] = "none"  # the channel where p becomes 1 - p
    log_gain: bool = False  # log how much likelier successes become; costs a forward pass a step


def asymgrpo_advantage(rewards, beta_pos=0.9, beta_neg=0.4, flip="none"):
    """Successes and failures follow the difficulty, each with its own strength (Eqs. 5, 8).

    rewards [B, G] in {0, 1} -> [B, G]: ((1-p)/p)^beta_pos for a success, -(p/(1-p))^beta_neg for a
    failure, where p is the group's success rate and 0^0 = 1. REINFORCE is (0, 0), GRPO (0.5, 0.5),
    Pos-Only (0.5, 0), Neg-Only (0, 0.5). flip swaps p and 1-p in one channel (App. C): "positive"
    is EntDecrease, "negative" EntIncrease. ValueError for another flip, or a negative strength.
    """
    if flip not in ("none", "positive", "negative"):
        raise ValueError(f"flip must be none, positive or negative; got {flip!r}")
    if beta_pos < 0 or beta_neg < 0:
        raise ValueError(f"beta_pos and beta_neg must be at least 0; got {beta_pos}, {beta_neg}")
    G = rewards.shape[1]
    success = rewards == 1  # [B, G]
    n_pos = success.to(rewards.dtype).sum(dim=1, keepdim=True)  # [B, 1]
    n_neg = G - n_pos  # [B, 1]
    # Counts are exact at p = 0 and 1. Where n_pos is 0, the clamp keeps odds_against finite; only
    # successes would receive it, and there are none. It is the same with odds_for and failures.
    odds_against = n_neg / n_pos.clamp(min=1)  # [B, 1], (1-p) / p
    odds_for = n_pos / n_neg.clamp(min=1)  # [B, 1], p / (1-p)
    pos = odds_against**beta_pos  # [B, 1]
    neg = odds_for**beta_neg  # [B, 1]
    # A flipped curve is undefined where its channel holds the whole group. The line through its
    # last two points, at odds G-1 and (G-2)/2, goes on instead. For G = 1 max() avoids (-1/2)^beta.
    if flip == "positive":
        end = 2 * (G - 1) ** beta_pos - (max(G - 2, 0) / 2) ** beta_pos
        pos = torch.where(n_neg == 0, end, odds_for**beta_pos)
    if flip == "negative":
        end = 2 * (G - 1) ** beta_neg - (max(G - 2, 0) / 2) ** beta_neg
        neg = torch.where(n_pos == 0, end, odds_against**beta_neg)
    return torch.where(success, pos, -neg)


def reward_confidence_alignment(rewards, mean_logprobs):
    """kappa: is the policy surer of successes on easy prompts and of failures on hard ones?

    rewards [B, G] in {0, 1}; mean_logprobs [B, G]: length-normalised log-probs under the policy
    that sampled. Returns a 0-dim tensor: the mean over the groups with 0 < p < 1, or 0 if there is
    none (Apps. B, E). Proposition 1: for small strengths a step adds lr (beta_pos - beta_neg) kappa
    to the entropy, compared with REINFORCE.
    """
    G = rewards.shape[1]
    success = rewards == 1  # [B, G]
    n_pos = success.to(mean_logprobs.dtype).sum(dim=1)  # [B]
    n_neg = G - n_pos  # [B]
    mixed = (n_pos > 0) & (n_neg > 0)  # [B]
    n_pos = n_pos.clamp(min=1)  # so that groups that are dropped below are finite, too
    n_neg = n_neg.clamp(min=1)
    of_successes = torch.where(success, mean_logprobs, 0.0).sum(dim=1) / n_pos  # [B]
    of_failures = torch.where(success, 0.0, mean_logprobs).sum(dim=1) / n_neg  # [B]
    gap = of_successes - of_failures  # [B]
    kappa = n_pos * n_neg / G**2 * gap * (n_pos / n_neg).log()  # [B], p (1-p) gap log(p / (1-p))
    return torch.where(mixed, kappa, 0.0).sum() / mixed.sum().clamp(min=1)


def global_kappa(rewards, mean_logprobs):
    """kappa over the mixed groups of all ranks, which call it together; both [B, G]."""
    kappa = reward_confidence_alignment(rewards, mean_logprobs)
    success_rate = rewards.mean(1)  # [B]
    mixed = ((success_rate > 0) & (success_rate < 1)).sum()  # kappa is a mean over so many groups
    total, groups = rlvr.machine.global_sum(kappa * mixed, mixed)
    return total / max(groups, 1)


def success_gain(batch, policy, config: Config):
    """How much likelier the update made the successes, per token and per completion, in nats (3.1).

    log pi(y) of a completion is the sum over its tokens. Means over all ranks, which call it
    together.
    """
    new_logprobs, _ = rlvr.policy.frozen_logprobs(policy, batch.samples, config)  # [N, T]
    success = batch.written * batch.successes.view(-1, 1)  # [N, T], 1 on the tokens of successes
    gain = (success * (new_logprobs - batch.old_logprobs)).sum()
    gain, tokens, successes = rlvr.machine.global_sum(gain, success.sum(), batch.successes.sum())
    return {
        "success_gain": gain / max(tokens, 1),
        "success_gain_completion": gain / max(successes, 1),
    }


def compute_advantages(batch, config: Config):
    """The advantages of a batch [B, G], and what to log of them. All ranks call it together."""
    # The formula asks only whether a completion is right, not what its reward is.
    advantages = asymgrpo_advantage(batch.successes, config.beta_pos, config.beta_neg, config.flip)
    return advantages, {"kappa": global_kappa(batch.successes, batch.mean_logprobs())}


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
        minibatches = batch.minibatches(config.minibatch_size)
        for minibatch in minibatches * config.num_iterations:  # the whole list, repeated
            # What each token counts in the loss, such as 1 / (n |o_i|) in GRPO; 0 off the mask. n
            # counts the whole minibatch on all ranks, so that microbatches and ranks just add up.
            token_weights = common.minibatch_weights(batch.mask, minibatch, config)  # [N, T]
            for rows in batch.microbatches(minibatch, config.microbatch_tokens):
                mask = batch.mask[rows]  # [m, T], as are log-probs, entropy and correction
                logprobs, entropy = common.token_logprobs(
                    policy, batch.samples, rows, config.temperature
                )
                old_logprobs = batch.old_policy_logprobs(rows, logprobs)
                # All 1, unless the sampler computes in bf16 or is vLLM.
                correction = batch.sampler_correction(rows)
                loss, parts = common.ppo_clip_loss(
                    logprobs,
                    old_logprobs,
                    advantages[rows],
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
        if config.log_gain:
            diagnostics |= success_gain(batch, policy, config)
        metrics = batch.metrics() | update.metrics() | run.metrics() | diagnostics
        run.lap("update")

        # 4. Log, evaluate, save.
        run.log("metrics", step, metrics | run.seconds, batch.samples)
        rlvr.show.log_tokens(run, step, batch, advantages, training)
        if run.is_due(step, config.eval_steps):
            run.log("eval", step, common.evaluate(sampler, eval_sets, config))
        if run.end_step(step, training):  # True after Ctrl-C or SIGTERM
            break
    run.finish()


if __name__ == "__main__":
    config = rlvr.flags.parse_flags(Config, VARIANTS)
    rlvr.training.launch(main, config)
