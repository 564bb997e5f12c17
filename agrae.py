"""A-GRAE, asymmetric group relative advantage estimation, on top of GRPO, DAPO or Dr.GRPO.

GRPO has two symmetries. Within a group, successes and failures weigh the same (Eq. 5), and a prompt
with success rate p weighs as much as one with 1 - p. A-GRAE breaks both. Let p be the success rate
of the prompt's group, and w that of the whole batch (Eqs. 11-13):

    A'  = (w/2) A / sqrt(p) + ((1-w)/2) A / sqrt(1-p)    sample level: first easy prompts, then hard
    A'' = A' min(1, w / alpha)  where A' > 0             group level: weaken A > 0 at first

What differs from grpo.py: the advantages and their diagnostics. The paper's control experiments and
baselines are in studies/baselines/baselines.py.

Paper: Unveiling Implicit Advantage Symmetry (A-GRAE; Yu, Chen, Liu, Zhang, Qu; arXiv 2602.05548).
This file follows the text. Where Eq. 12 has sqrt(1 - p), the released code has 1 - sqrt(p), in a
branch that never runs; docs/papers.md lists what its scripts set. Here w counts right answers only.
Eq. 11 prints the mean reward, which differs if rewards are not only 0 and 1 (--format_share).

    python agrae.py                                                      # a laptop
    python agrae.py --variant agrae-dr-grpo                              # on Dr.GRPO
    python agrae.py --model Qwen/Qwen2.5-0.5B-Instruct --dataset math    # one GPU
    torchrun --nproc_per_node 8 agrae.py --model ... --dataset math      # 8 GPUs share the batch
"""

from dataclasses import dataclass

import rlvr.flags  # a copy of this file elsewhere needs: pip install -e path/to/the/clone
from rlvr.flags import flag, make_config, parse_flags
from rlvr.machine import global_mean, global_sum
from rlvr.policy import load_policies
from rlvr.rollout import make_sampler
from rlvr.tasks import open_problems
from rlvr.training import Run, launch, make_optimizer

import torch

import common

VARIANTS = {
    "agrae": dict(),
    "agrae-dapo": dict(epsilon_high=0.28, aggregation="token"),  # no dynamic sampling (C.2)
    # Eq. 12 prints std, but Dr.GRPO has none
    "agrae-dr-grpo": dict(scale_rewards=False, aggregation="constant"),
    "sample-level": dict(group_level=False),
    "group-level": dict(sample_level=False),
}


@dataclass
class Config(rlvr.flags.Config):
    """The flags of all scripts, and those of this one."""

    variant: str = flag("agrae", "named preset of flags", choices=VARIANTS)
    scale_rewards: bool = flag(True, "divide the base advantage by the group's standard deviation")
    alpha: float = flag(1.0, "success rate w from which A > 0 counts fully", le=1)
    sample_level: bool = flag(True, "Eq. 12")
    group_level: bool = flag(True, "Eq. 13")
    format_share: float = flag(0.0, "share of the reward for the format (C.2)", ge=0, le=1)


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


def agrae_advantage(
    advantages,
    success_rate,
    mean_success,
    alpha=1.0,
    sample_level=True,
    group_level=True,
):
    """Apply A-GRAE to any base advantage (Eqs. 11-13).

    advantages [B, G]; success_rate [B], p of each group; mean_success, w of Eq. 11 as a float or
    0-dim tensor. Return [B, G]; with both levels off, this is the input. ValueError if alpha <= 0.
    """
    if alpha <= 0:
        raise ValueError(f"alpha must be positive, got {alpha}")
    w = mean_success
    if sample_level:  # Eq. 12: from easy prompts to hard ones as w grows
        p = success_rate.to(advantages.dtype).unsqueeze(1)  # [B, 1]
        mixed = (p > 0) & (p < 1)  # [B, 1]
        # The paper does not rescale at p = 0 and 1; 0.5 stands in, so that nothing is infinite.
        p = torch.where(mixed, p, 0.5)  # [B, 1]
        scale = (w / 2) / p.sqrt() + ((1 - w) / 2) / (1 - p).sqrt()  # [B, 1]
        advantages = advantages * torch.where(mixed, scale, 1.0)
    if group_level:  # Eq. 13: weak policies explore, strong ones keep the plain advantage
        suppressed = advantages * min(1.0, w / alpha)
        advantages = torch.where(advantages > 0, suppressed, advantages)
    return advantages


def format_reward(text: str) -> float:
    """Return 1.0 for a thought in <think> tags and then an answer in \\boxed{}, else 0.0 (C.2)."""
    thought, _, answer = text.strip().partition("</think>")
    _, _, rest = answer.partition("\\boxed{")
    return float(thought.startswith("<think>") and "}" in rest)


def difficulty_metrics(advantages, successes, mean_success, alpha):
    """Return what to log: w, its factor on successes, and the shares of easy and hard prompts.

    advantages [B, G]; successes [B, G], 0 or 1; mean_success, w. All ranks call it together.
    """
    success_rate = successes.mean(1)  # [B]
    size = advantages.abs().sum(1)  # [B]
    easy, hard, total = global_sum(
        size[success_rate > 0.5].sum(), size[success_rate < 0.5].sum(), size.sum()
    )
    return {
        "mean_success": mean_success,
        "success_factor": min(1.0, mean_success / alpha),
        "easy_share": easy / total if total else 0.0,
        "hard_share": hard / total if total else 0.0,
    }


def compute_advantages(batch: common.Batch, config: Config):
    """Return the advantages of a batch [B, G], and the metrics to log. All ranks call it."""
    rewards, well_formed = batch.rewards, {}
    if config.format_share:
        formats = [format_reward(text) for text in batch.texts()]
        formats = rewards.new_tensor(formats).view_as(rewards)  # [B, G]
        rewards = (1 - config.format_share) * rewards + config.format_share * formats
        well_formed["format"] = global_mean(formats)[0]
    advantages = grpo_advantage(rewards, config.scale_rewards)  # [B, G]
    (w,) = global_mean(batch.first_successes)  # before dynamic sampling replaced any group
    advantages = agrae_advantage(
        advantages,
        batch.successes.mean(1),
        w,
        config.alpha,
        config.sample_level,
        config.group_level,
    )
    difficulty = difficulty_metrics(advantages, batch.successes, w, config.alpha)
    return advantages, difficulty | well_formed


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

        # 4. Log, evaluate, save.
        run.log_step(step, batch, advantages, diagnostics)
        if step % config.eval_steps == 0 or step == config.max_steps:
            run.log_evaluation(step, common.evaluate(sampler, eval_sets, config))
        if run.end_step(step):  # True after Ctrl-C or SIGTERM
            break
    return run.finish()


if __name__ == "__main__":
    launch(main, parse_flags(Config, VARIANTS))
