"""AsymGRPO: a prompt's difficulty modulates successes and failures, each with its own strength.

Let p be the success rate of the prompt's group (Eqs. 5, 8):

    success:   A =  ((1-p) / p) ^ beta_pos         failure:   A = -(p / (1-p)) ^ beta_neg

(0.5, 0.5) is GRPO, and (0, 0) is REINFORCE with rewards +1 and -1. The exponents are called
strengths. The first formula is the positive channel, and the second one the negative channel. As
beta_pos grows, a rare success is worth more. According to the paper, this keeps several solutions
likely. As beta_neg grows, a rare failure costs more, and a common one less. According to the
paper, this removes entropy from failures and protects right answers that begin like them.

What differs from grpo.py: the advantages; all tokens of a minibatch weigh the same (App. G); and
the logs have kappa, the alignment of rewards and confidence. For small strengths, its sign says
whether a channel raises or lowers the entropy, compared with REINFORCE (Proposition 1).

Paper: Asymmetric Advantage Modulation Calibrates Entropy Dynamics in RLVR, first called Rethinking
Exploration in RLVR (AsymGRPO; Gu, Han, Bian, Wang, Zhou; arXiv 2604.04894). App. F averages per
response (--aggregation sequence), and App. G over all tokens, as this file does by default.
FADE compares itself with another method of the same name: `asym` in studies/baselines/baselines.py.

    python asymgrpo.py                                                      # a laptop
    python asymgrpo.py --variant pos-only                                   # one channel alone
    python asymgrpo.py --model Qwen/Qwen2.5-0.5B-Instruct --dataset math    # one GPU
    torchrun --nproc_per_node 8 asymgrpo.py --model ... --dataset math      # 8 GPUs share the batch
"""

from dataclasses import dataclass
from typing import Literal

import rlvr.flags  # a copy of this file elsewhere needs: pip install -e path/to/the/clone
from rlvr.flags import flag, make_config, parse_flags
from rlvr.machine import global_sum
from rlvr.policy import frozen_logprobs, load_policies
from rlvr.rollout import make_sampler
from rlvr.tasks import open_problems
from rlvr.training import Run, launch, make_optimizer

import torch

import common

GRPO = dict(beta_pos=0.5, beta_neg=0.5)
VARIANTS = {
    "asymgrpo": dict(),
    "reinforce": dict(beta_pos=0.0, beta_neg=0.0),
    "pos-only": dict(beta_pos=0.5, beta_neg=0.0),
    "neg-only": dict(beta_pos=0.0, beta_neg=0.5),
    "symmetric": dict(beta_pos=0.7, beta_neg=0.7),
    "ent-decrease": dict(**GRPO, flip="positive"),
    "ent-increase": dict(**GRPO, flip="negative"),
    "grpo": dict(**GRPO),
}


@dataclass
class Config(rlvr.flags.Config):
    """The flags of all scripts, and those of this one."""

    variant: str = flag("asymgrpo", "named preset of flags", choices=VARIANTS)
    aggregation: Literal["sequence", "token", "constant"] = flag("token", "what divides the sum")
    beta_pos: float = flag(0.9, "strength for successes", ge=0)
    beta_neg: float = flag(0.4, "strength for failures", ge=0)
    flip: Literal["none", "positive", "negative"] = flag(
        "none", "the channel where p becomes 1 - p"
    )
    log_gain: bool = flag(
        False, "log how much likelier successes become; costs a forward pass per step"
    )


def configure(**flags) -> Config:
    """Return checked flags, for a notebook: main(configure(max_steps=20)). UserError if wrong."""
    return make_config(Config, VARIANTS, flags)


def asymgrpo_advantage(rewards, beta_pos=0.9, beta_neg=0.4, flip="none"):
    """Weigh successes and failures by difficulty, each with its own strength (Eqs. 5, 8).

    rewards [B, G], 0 or 1 -> [B, G]: ((1-p)/p)^beta_pos for a success, -(p/(1-p))^beta_neg for a
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
    # successes would receive it, and there are none. odds_for and failures mirror this.
    odds_against = n_neg / n_pos.clamp(min=1)  # [B, 1], (1-p) / p
    odds_for = n_pos / n_neg.clamp(min=1)  # [B, 1], p / (1-p)
    pos = odds_against**beta_pos  # [B, 1]
    neg = odds_for**beta_neg  # [B, 1]
    # A flipped curve is undefined where its channel holds the whole group. There, extend the
    # line through its last two points, at odds G-1 and (G-2)/2. For G = 1 max() avoids (-1/2)^beta.
    if flip == "positive":
        end = 2 * (G - 1) ** beta_pos - (max(G - 2, 0) / 2) ** beta_pos
        pos = torch.where(n_neg == 0, end, odds_for**beta_pos)
    if flip == "negative":
        end = 2 * (G - 1) ** beta_neg - (max(G - 2, 0) / 2) ** beta_neg
        neg = torch.where(n_pos == 0, end, odds_against**beta_neg)
    found = torch.where(success, pos, -neg)
    return torch.where(rewards.isnan(), torch.nan, found)


def reward_confidence_alignment(rewards, mean_logprobs):
    """Return kappa: is the policy surer of successes on easy prompts, and of failures on hard ones?

    rewards [B, G], 0 or 1; mean_logprobs [B, G], length-normalised, by the policy that sampled.
    Return a 0-dim tensor: the mean over the groups with 0 < p < 1, or 0 if there are none (Apps. B,
    E). Proposition 1: for small strengths, a step adds lr (beta_pos - beta_neg) kappa to the
    entropy, compared with REINFORCE.
    """
    G = rewards.shape[1]
    success = rewards == 1  # [B, G]
    n_pos = success.to(mean_logprobs.dtype).sum(dim=1)  # [B]
    n_neg = G - n_pos  # [B]
    mixed = (n_pos > 0) & (n_neg > 0)  # [B]
    n_pos = n_pos.clamp(min=1)  # avoids dividing by 0 in groups that are dropped below
    n_neg = n_neg.clamp(min=1)
    of_successes = torch.where(success, mean_logprobs, 0.0).sum(dim=1) / n_pos  # [B]
    of_failures = torch.where(success, 0.0, mean_logprobs).sum(dim=1) / n_neg  # [B]
    gap = of_successes - of_failures  # [B]
    kappa = n_pos * n_neg / G**2 * gap * (n_pos / n_neg).log()  # [B], p (1-p) gap log(p / (1-p))
    return torch.where(mixed, kappa, 0.0).sum() / mixed.sum().clamp(min=1)


def global_kappa(rewards, mean_logprobs):
    """Return kappa over the mixed groups of all ranks, which call it together; both [B, G]."""
    kappa = reward_confidence_alignment(rewards, mean_logprobs)
    success_rate = rewards.mean(1)  # [B]
    mixed = ((success_rate > 0) & (success_rate < 1)).sum()  # the number of groups in kappa's mean
    total, groups = global_sum(kappa * mixed, mixed)
    return total / max(groups, 1)


def success_gain(batch: common.Batch, policy, config: Config):
    """Return how much the update raised log pi of successes, in nats (3.1).

    The means are per token and per completion, over all ranks, which call it together.
    """
    new_logprobs, _ = frozen_logprobs(policy, batch.samples, config)  # [N, T]
    success = batch.completion_mask * batch.successes.view(-1, 1)  # [N, T]
    gain = (success * (new_logprobs - batch.old_logprobs)).sum()
    gain, tokens, successes = global_sum(gain, success.sum(), batch.successes.sum())
    return {
        "success_gain": gain / max(tokens, 1),
        "success_gain_completion": gain / max(successes, 1),
    }


def compute_advantages(batch: common.Batch, config: Config):
    """Return the advantages of a batch [B, G], and the metrics to log. All ranks call it."""
    # The formula needs only whether a completion is right. Appendix E computes kappa from the old
    # policy's log-probs. The sampler's, which this uses, differ from them in bf16 and with vLLM.
    advantages = asymgrpo_advantage(batch.successes, config.beta_pos, config.beta_neg, config.flip)
    return advantages, {"kappa": global_kappa(batch.successes, batch.mean_logprobs())}


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
        for update, minibatch in enumerate(batch.minibatches(config)):
            for rows in minibatch:  # the m rows of a microbatch, which fit into one forward pass
                logprobs, entropy = common.token_logprobs(
                    policy, batch.samples, rows, config.temperature
                )  # [m, T] each
                if update == 0:  # before the first update, these are log pi_old: no pass for it
                    batch.old_logprobs[rows] = logprobs.detach()
                loss, stats = common.ppo_clip_loss(
                    logprobs=logprobs,
                    old_logprobs=batch.old_logprobs[rows],
                    advantages=advantages[rows],
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

        if config.log_gain:
            diagnostics |= success_gain(batch, policy, config)

        # 4. Log, evaluate, save.
        run.log_step(step, batch, advantages, diagnostics)
        if step % config.eval_steps == 0 or step == config.max_steps:
            run.log_evaluation(step, common.evaluate(sampler, eval_sets, config))
        if run.end_step(step):  # True after Ctrl-C or SIGTERM
            break
    return run.finish()


if __name__ == "__main__":
    launch(main, parse_flags(Config, VARIANTS))
