"""GRPO, group relative policy optimization, and its common variants.

For each prompt the policy writes G completions. A verifier gives each one a reward r of 0 or 1, and
a completion is judged against its own group (A-GRAE Eq. 3):

    A_i = (r_i - mean r) / std r

Each token of completion i then takes a PPO-clip step with that advantage (A-GRAE Eq. 1), where
rho = pi / pi_old is the ratio of its probabilities now and at the rollout:

    loss = - mean_i 1/|o_i| sum_t min(rho_it A_i, clip(rho_it, 1 - epsilon, 1 + epsilon_high) A_i)

--beta adds a KL penalty to it (Eq. 2), and --entropy_coef an entropy bonus.

What the presets of --variant change:

    grpo      nothing
    dr-grpo   no division by the standard deviation, and one constant in place of 1/|o_i|
    dapo      epsilon_high 0.28; all tokens weigh the same; all-right and all-wrong groups replaced
    gspo      one ratio per response, the geometric mean of its tokens'; a narrower clip range
    grpo-n    only the negative advantages
    gspo-n    both of the last two

two-stage-grpo, two-stage-grpo-n, two-stage-gspo and two-stage-gspo-n are the runs of two-stage
dynamics as its C.2 prints them: a KL penalty, an entropy bonus, and a clip range of 0.2 for all.

Papers: GRPO is from DeepSeekMath (Shao and others, arXiv 2402.03300); its equations are numbered
here as in Unveiling Implicit Advantage Symmetry (A-GRAE, arXiv 2602.05548). GRPO-N and GSPO-N are
from The Debate on RLVR Reasoning Capability Boundary (two-stage dynamics; Yao, Yu, Hu, Teng, Cui,
Zhou, Liu; arXiv 2510.04028, B.5).

    python grpo.py                                                       # a laptop
    python grpo.py --model Qwen/Qwen2.5-0.5B-Instruct --dataset gsm8k    # one GPU
    torchrun --nproc_per_node 8 grpo.py --model ... --dataset math       # 8 GPUs share the batch
"""

from dataclasses import dataclass
from typing import Literal

import rlvr

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

    variant: Literal[tuple(VARIANTS)] = "grpo"  # named preset of flags; a given flag wins
    scale_rewards: bool = True  # divide the advantage by the group's standard deviation
    negatives_only: bool = False  # drop the positive advantages


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


def negative_only(advantages: torch.Tensor) -> torch.Tensor:
    """Keep the advantages below 0 and set the others to 0, any shape (two-stage dynamics B.5)."""
    return torch.where(advantages < 0, advantages, 0)


def compute_advantages(batch, config: Config):
    """The advantages of a batch [B, G], and what to log of them."""
    advantages = grpo_advantage(batch.rewards, config.scale_rewards)
    if config.negatives_only:
        advantages = negative_only(advantages)
    return advantages, {}


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
