"""A-GRAE, asymmetric group relative advantage estimation, on top of GRPO, DAPO or Dr.GRPO.

GRPO is symmetric twice: in a group, successes and failures weigh the same (Eq. 5), and a prompt
with success rate p weighs as much as one with 1 - p. A-GRAE breaks both symmetries. With p the
success rate of the prompt's group, and w that of the whole batch (Eqs. 11-13):

    A'  = (w/2) A / sqrt(p) + ((1-w)/2) A / sqrt(1-p)    sample level: first easy prompts, then hard
    A'' = A' min(1, w / alpha)  where A' > 0             group level: A > 0 is held back at first

What differs from grpo.py: the advantages, and what is logged about them.

Paper: Unveiling Implicit Advantage Symmetry (A-GRAE; Yu, Chen, Liu, Zhang, Qu; arXiv 2602.05548).
This file follows its text, where the released code has 1 - sqrt(p) in place of sqrt(1-p) (--variant
released). But w counts right answers only, even with a reward for the format (--format_share):
Eq. 11 prints the mean reward, which --mean_reward takes.

    python agrae.py                                                      # a laptop
    python agrae.py --variant agrae-dr-grpo                              # on Dr.GRPO
    python agrae.py --model Qwen/Qwen2.5-0.5B-Instruct --dataset math    # one GPU
    python agrae.py --variant images --model Qwen/Qwen2.5-VL-3B-Instruct --dataset geo3k
    torchrun --nproc_per_node 8 agrae.py --model ... --dataset math      # 8 GPUs share the batch
"""

from dataclasses import dataclass
from typing import Annotated, Literal

import rlvr
from rlvr.baselines import controlled_advantage, grpo_lead_advantage, w_reinforce_advantage
from rlvr.errors import UserError
from rlvr.flags import Only, Share, ZeroOrMore

import torch

import common

# The control experiments of Table 1 and the baselines of Table 2: GRPO's advantages -> theirs.
BASELINES = {
    "none": lambda advantages, batch, config: advantages,
    **dict.fromkeys(
        ("positive_dominant", "negative_dominant", "hard_focused", "easy_focused"),
        lambda advantages, batch, config: controlled_advantage(
            advantages,
            batch.successes.mean(1),
            config.method,
            config.control_beta,
            config.control_gamma,
        ),
    ),
    "w_reinforce": lambda advantages, batch, config: w_reinforce_advantage(
        batch.successes, config.success_weight
    ),
    "grpo_lead": lambda advantages, batch, config: grpo_lead_advantage(
        batch.successes, batch.written.sum(1).view_as(batch.successes)
    ),
}
# In a flag's type: the values of --method that read it.
OfAgrae = Only(method="agrae")
OfDominant = Only(method="positive_dominant negative_dominant")
OfFocused = Only(method="hard_focused easy_focused")
OfWReinforce = Only(method="w_reinforce")
VARIANTS = {
    "agrae": dict(),
    "agrae-dapo": dict(epsilon_high=0.28, aggregation="token"),  # no dynamic sampling (C.2)
    "agrae-dr-grpo": dict(scale_rewards=False, aggregation="constant"),
    "sample-level": dict(group_level=False),
    "group-level": dict(sample_level=False),
    "positive-dominant": dict(method="positive_dominant"),  # the control experiments, Table 1
    "negative-dominant": dict(method="negative_dominant"),
    "hard-focused": dict(method="hard_focused"),
    "easy-focused": dict(method="easy_focused"),
    "w-reinforce": dict(method="w_reinforce"),  # the baselines of Table 2
    "grpo-lead": dict(method="grpo_lead"),
    "released": dict(released_weight=True),
    "images": dict(  # C.2; the two updates a step are our choice
        alpha=0.5,
        num_generations=5,
        minibatch_size=80,
        format_share=0.9,
        system_prompt="monologue",
    ),
}


@dataclass
class Config(rlvr.flags.Config):
    """The flags of all scripts, and those of this one."""

    variant: Literal[tuple(VARIANTS)] = "agrae"  # named preset of flags; a given flag wins
    scale_rewards: bool = True  # divide the base advantage by the group's standard deviation
    method: Literal[("agrae", *BASELINES)] = "agrae"  # what becomes of the base advantage
    # batch success rate from which A > 0 counts fully; 0.5 for images
    alpha: Annotated[Share[float], OfAgrae] = 1.0
    sample_level: Annotated[bool, OfAgrae] = True  # Eq. 12
    group_level: Annotated[bool, OfAgrae] = True  # Eq. 13
    # 1 - sqrt(p) for sqrt(1 - p) in Eq. 12, as in the released code
    released_weight: Annotated[bool, OfAgrae] = False
    # multiplies A > 0 (positive_dominant), or divides it (negative_dominant)
    control_beta: Annotated[float, OfDominant] = 10.0
    # hard_focused, easy_focused: factor of all advantages
    control_gamma: Annotated[float, OfFocused] = 0.5
    success_weight: Annotated[ZeroOrMore[float], OfWReinforce] = 0.1  # a failure is worth -1
    # w is the mean reward, with its share for the format, as Eq. 11 prints it
    mean_reward: Annotated[bool, OfAgrae] = False
    # share of the reward for the format; paper: 0.9, images
    format_share: Share[ZeroOrMore[float]] = 0.0

    def check(self) -> None:
        super().check()
        if self.mean_reward and self.dynamic_sampling:
            raise UserError("--mean_reward is of the groups as first drawn: no --dynamic_sampling")
        counts_successes = self.method in ("w_reinforce", "grpo_lead")
        if counts_successes and (self.format_share or not self.scale_rewards):
            raise UserError(f"--method {self.method}: no --format_share and no --no_scale_rewards")


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


def agrae_advantage(
    advantages,
    success_rate,
    mean_success,
    alpha=1.0,
    sample_level=True,
    group_level=True,
    released_weight=False,
):
    """A-GRAE on top of any base advantage (Eqs. 11-13).

    advantages [B, G]; success_rate [B]: p of each group; mean_success, a float or 0-dim tensor: w
    of Eq. 11. Returns [B, G]; with both levels off, the input itself. ValueError for alpha <= 0.
    """
    if alpha <= 0:
        raise ValueError(f"alpha must be positive, got {alpha}")
    w = mean_success
    if sample_level:  # Eq. 12: from easy prompts to hard ones as w grows
        p = success_rate.to(advantages.dtype).unsqueeze(1)  # [B, 1]
        mixed = (p > 0) & (p < 1)  # [B, 1]
        # The paper omits the rescaling at p = 0 and 1; 0.5 stands in, so that nothing is infinite.
        p = torch.where(mixed, p, 0.5)  # [B, 1]
        root_p = p.sqrt()  # [B, 1]
        root_q = 1 - root_p if released_weight else (1 - p).sqrt()  # [B, 1]
        scale = (w / 2) / root_p + ((1 - w) / 2) / root_q  # [B, 1]
        advantages = advantages * torch.where(mixed, scale, 1.0)
    if group_level:  # Eq. 13: weak policies explore, strong ones keep the plain advantage
        suppressed = advantages * min(1.0, w / alpha)
        advantages = torch.where(advantages > 0, suppressed, advantages)
    return advantages


def format_reward(text: str) -> float:
    """1.0 for a thought in <think> tags and, behind it, an answer in \\boxed{}, else 0.0 (C.2)."""
    thought, closed, answer = text.strip().partition("</think>")
    _, boxed, rest = answer.partition("\\boxed{")
    return float(thought.startswith("<think>") and bool(closed and boxed) and "}" in rest)


def difficulty_metrics(advantages, successes, mean_success, alpha):
    """What to log: w, the factor on successes that it gives, and where the advantages' size lies.

    advantages [B, G], successes [B, G] in {0, 1}, w and alpha. Sums are over all ranks, which call
    it together.
    """
    success_rate = successes.mean(1)  # [B]
    size = advantages.abs().sum(1)  # [B]
    easy, hard, total, unsolved, correct = rlvr.machine.global_sum(
        size[success_rate > 0.5].sum(),
        size[success_rate < 0.5].sum(),
        size.sum(),
        (success_rate == 0).sum(),
        successes.sum(),
    )
    return {
        "mean_success": mean_success,
        "success_factor": min(1.0, mean_success / alpha),
        "easy_share": easy / total if total else 0.0,
        "hard_share": hard / total if total else 0.0,
        "unsolved_groups": int(unsolved),
        "correct_samples": correct,
    }


def compute_advantages(batch, config: Config):
    """The advantages of a batch [B, G], and what to log of them. All ranks call it together."""
    rewards, well_formed = batch.rewards, {}
    if config.format_share:
        formats = [format_reward(text) for text in batch.texts()]
        formats = torch.tensor(formats, device=rewards.device).view_as(rewards)  # [B, G]
        rewards = (1 - config.format_share) * rewards + config.format_share * formats
        well_formed["format"] = rlvr.machine.global_mean(formats)[0]
    advantages = grpo_advantage(rewards, config.scale_rewards)  # [B, G]
    # w, before dynamic sampling has replaced any group
    (w,) = rlvr.machine.global_mean(rewards if config.mean_reward else batch.first_successes)
    if config.method == "agrae":
        advantages = agrae_advantage(
            advantages,
            batch.successes.mean(1),
            w,
            config.alpha,
            config.sample_level,
            config.group_level,
            config.released_weight,
        )
    else:
        advantages = BASELINES[config.method](advantages, batch, config)
    difficulty = difficulty_metrics(advantages, batch.successes, w, config.alpha)
    return advantages, difficulty | well_formed


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
