"""GRPO, group relative policy optimization, and its common variants.

For each prompt, the policy writes G completions. A verifier gives each one a reward r of 0 or 1,
and each completion is compared with its own group (A-GRAE Eq. 3):

    A_i = (r_i - mean r) / std r

Each token of completion i then takes a PPO-clip step with that advantage (A-GRAE Eq. 1). Its ratio
rho = pi / pi_old compares its probability now with that at the rollout:

    loss = - mean_i 1/|o_i| sum_t min(rho_it A_i, clip(rho_it, 1 - epsilon, 1 + epsilon_high) A_i)

With one update per rollout, rho is 1, and GRPO is REINFORCE with the group's mean as the baseline.
The clip, epsilon and pi_old matter only from the second update on. --beta adds a KL penalty (Eq.
2), which most recipes of 2026 have dropped, and --entropy_coef adds an entropy bonus.

What the presets of --variant change:

    grpo      nothing
    dr-grpo   no division by the standard deviation, and one constant in place of 1/|o_i|
    dapo      epsilon_high 0.28; all tokens weigh the same; replaces all-right and all-wrong groups
    gspo      one ratio per response, the geometric mean over its tokens; a narrower clip range
    grpo-n    only the negative advantages
    gspo-n    gspo and grpo-n together

The four two-stage-... presets have the settings of two-stage dynamics (C.2): a KL penalty, an
entropy bonus, and a clip range of 0.2.

Papers: GRPO is from DeepSeekMath (Shao and others, arXiv 2402.03300). Its equations have the
numbers of Unveiling Implicit Advantage Symmetry (A-GRAE, arXiv 2602.05548). GRPO-N and GSPO-N are
from The Debate on RLVR Reasoning Capability Boundary (two-stage dynamics; Yao, Yu, Hu, Teng, Cui,
Zhou, Liu; arXiv 2510.04028, B.5).

    python grpo.py                                                       # a laptop
    python grpo.py --model Qwen/Qwen2.5-0.5B-Instruct --dataset gsm8k    # one GPU
    torchrun --nproc_per_node 8 grpo.py --model ... --dataset math       # 8 GPUs share the batch
"""

from dataclasses import dataclass

import rlvr.flags  # a copy of this file elsewhere needs: pip install -e path/to/the/clone
from rlvr.flags import flag, make_config, parse_flags
from rlvr.policy import load_policies
from rlvr.rollout import make_sampler
from rlvr.tasks import open_problems
from rlvr.training import Run, launch, make_optimizer

import torch

import common

GSPO = dict(importance_sampling_level="sequence", epsilon=3e-4, epsilon_high=4e-4)
TWO_STAGE = dict(beta=1e-3, entropy_coef=1e-4, epsilon=0.2)
TWO_STAGE_GSPO = dict(**TWO_STAGE, importance_sampling_level="sequence")
VARIANTS = {
    "grpo": dict(),
    "dr-grpo": dict(scale_rewards=False, aggregation="constant"),
    "dapo": dict(epsilon_high=0.28, aggregation="token", dynamic_sampling=True),
    "gspo": dict(**GSPO),
    "grpo-n": dict(negatives_only=True),
    "gspo-n": dict(**GSPO, negatives_only=True),
    "two-stage-grpo": dict(**TWO_STAGE),
    "two-stage-grpo-n": dict(**TWO_STAGE, negatives_only=True),
    "two-stage-gspo": dict(**TWO_STAGE_GSPO),
    "two-stage-gspo-n": dict(**TWO_STAGE_GSPO, negatives_only=True),
}


@dataclass
class Config(rlvr.flags.Config):
    """The flags of all scripts, and those of this one."""

    variant: str = flag("grpo", "named preset of flags", choices=VARIANTS)
    scale_rewards: bool = flag(True, "divide the advantage by the group's standard deviation")
    negatives_only: bool = flag(False, "drop the positive advantages")


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


def negative_only(advantages: torch.Tensor) -> torch.Tensor:
    """Keep the advantages below 0 and set the others to 0, any shape (two-stage dynamics B.5)."""
    return torch.where(advantages >= 0, 0, advantages)  # NaN stays NaN


def compute_advantages(batch: common.Batch, config: Config):
    """Return the advantages of a batch [B, G], and the metrics to log."""
    advantages = grpo_advantage(batch.rewards, config.scale_rewards)
    if config.negatives_only:
        advantages = negative_only(advantages)
    return advantages, {}


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
