"""A-GRAE, asymmetric group relative advantage estimation, on top of GRPO, DAPO or Dr.GRPO.

GRPO is symmetric twice: in a group, successes and failures weigh the same (Eq. 5), and a prompt
with success rate p weighs as much as one with 1 - p. A-GRAE breaks both symmetries. With p the
success rate of the prompt's group, and w that of the whole batch (Eqs. 11-13):

    A'  = (w/2) A / sqrt(p) + ((1-w)/2) A / sqrt(1-p)    sample level: first easy prompts, then hard
    A'' = A' min(1, w / alpha)  where A' > 0             group level: A > 0 is held back at first

What differs from grpo.py: the advantages, and what is logged about them.

Paper: Unveiling Implicit Advantage Symmetry (A-GRAE; Yu, Chen, Liu, Zhang, Qu; arXiv 2602.05548).
This file follows its text. But w counts right answers only, even with a reward for the format
(--format_share), where Eq. 11 prints the mean reward. The released code departs from the text: it
has 1 - sqrt(p) in place of sqrt(1-p) (--variant released), and Bessel's standard deviation plus
1e-6. Its A-GRAE branch never runs: it is taken only while an annealed weight has its first value,
and that weight changes from the first step on.

Two baselines of its Table 2 stand here, too: W-REINFORCE (arXiv 2506.01347) and GRPO-LEAD (Zhang
and Zuo 2025, arXiv 2504.09696).

    python agrae.py                                                      # a laptop
    python agrae.py --variant agrae-dr-grpo                              # on Dr.GRPO
    python agrae.py --model Qwen/Qwen2.5-0.5B-Instruct --dataset math    # one GPU
    python agrae.py --variant images --model Qwen/Qwen2.5-VL-3B-Instruct --dataset geo3k
    torchrun --nproc_per_node 8 agrae.py --model ... --dataset math      # 8 GPUs share the batch
"""

from dataclasses import dataclass
from typing import Literal

import rlvr.checkpoints
import rlvr.config
import rlvr.flags
import rlvr.models
import rlvr.ranks
import rlvr.run
import rlvr.samplers
import rlvr.schedules
import rlvr.tasks.datasets
import rlvr.tasks.prompts
import rlvr.tasks.stream
import rlvr.tokens
from rlvr.config import ZeroOrMore
from rlvr.errors import UserError

import torch

import common

METHODS = (
    "agrae",
    "positive_dominant",
    "negative_dominant",
    "hard_focused",
    "easy_focused",
    "w_reinforce",
    "grpo_lead",
    "none",
)
READ_BY = {  # flag -> the methods that read it; all of them read a flag that is not listed
    "alpha": ("agrae",),
    "sample_level": ("agrae",),
    "group_level": ("agrae",),
    "released_weight": ("agrae",),
    "control_beta": ("positive_dominant", "negative_dominant"),
    "control_gamma": ("hard_focused", "easy_focused"),
    "success_weight": ("w_reinforce",),
}
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
class Config(rlvr.config.Config):
    """The flags of all scripts, and those of this one."""

    variant: Literal[tuple(VARIANTS)] = "agrae"  # named preset of flags; a given flag wins
    scale_rewards: bool = True  # divide the base advantage by the group's standard deviation
    method: Literal[METHODS] = "agrae"  # what becomes of the base advantage
    alpha: float = 1.0  # batch success rate from which A > 0 counts fully; 0.5 for images
    sample_level: bool = True  # Eq. 12
    group_level: bool = True  # Eq. 13
    released_weight: bool = False  # 1 - sqrt(p) for sqrt(1 - p) in Eq. 12, as in the released code
    control_beta: float = 10.0  # multiplies A > 0 (positive_dominant), or divides it (negative)
    control_gamma: float = 0.5  # hard_focused, easy_focused: factor of all advantages
    success_weight: ZeroOrMore[float] = 0.1  # of W-REINFORCE; a failure is worth -1
    format_share: ZeroOrMore[float] = 0.0  # share of the reward for the format; paper: 0.9, images

    def check(self) -> None:
        super().check()
        self.refuse_unread("method", READ_BY)
        if self.format_share > 1:
            raise UserError("--format_share must be at most 1")
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
    of Eq. 11, the success rate of the batch on all ranks. Positive advantages
    are held back until w reaches alpha. released_weight: the second term of Eq. 12 divides by
    1 - sqrt(p), as in the released code.
    Returns [B, G]; with both levels off, the input itself. ValueError for alpha <= 0.
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


def controlled_advantage(advantages, success_rate, variant, beta=10, gamma=0.5):
    """The control experiments, each of which breaks one symmetry of GRPO (section 4.1, Table 1).

    advantages [B, G], success_rate [B] -> [B, G]. By variant: "positive_dominant", beta A where
    A > 0; "negative_dominant", A / beta where A > 0; "hard_focused", gamma A / sqrt(p);
    "easy_focused", gamma A / sqrt(1 - p). ValueError for another variant.
    """
    if variant == "positive_dominant":
        return torch.where(advantages > 0, advantages * beta, advantages)
    if variant == "negative_dominant":
        return torch.where(advantages > 0, advantages / beta, advantages)
    p = success_rate.to(advantages.dtype).unsqueeze(1)  # [B, 1]
    mixed = (p > 0) & (p < 1)  # [B, 1]
    p = torch.where(mixed, p, 0.5)  # [B, 1], a stand-in: the paper omits the rescaling at 0 and 1
    if variant == "hard_focused":
        scale = gamma / p.sqrt()  # [B, 1]
    elif variant == "easy_focused":
        scale = gamma / (1 - p).sqrt()  # [B, 1]
    else:
        names = "positive_dominant, negative_dominant, hard_focused or easy_focused"
        raise ValueError(f"variant must be {names}; got {variant!r}")
    return advantages * torch.where(mixed, scale, 1.0)


def w_reinforce_advantage(rewards, success_weight=0.1):
    """W-REINFORCE (Table 2): success_weight for a success, -1 for a failure.

    rewards [B, G] in {0, 1} -> [B, G].
    """
    return torch.full_like(rewards, -1.0).masked_fill(rewards == 1, success_weight)


def grpo_lead_advantage(rewards, lengths, length_penalty=0.05, low=0.4, high=1.5, middle=0.75):
    """GRPO-LEAD (Table 2): short or rare successes count more, and so do rare failures.

    A group that is all right has a gradient, too, wherever lengths differ, be it by a token.
    rewards [B, G] in {0, 1} and lengths [B, G], in tokens -> [B, G]. With z the standardised length
    among the group's successes, a success is worth exp(-length_penalty z) and a failure -1. A is
    GRPO's advantage of these values. With p the success rate it is A w(p) where A > 0 and
    A w(1 - p) elsewhere, where w falls from high to low around the success rate `middle`:
    w(p) = low + (high - low) / (1 + exp(10 (p - middle))).
    """
    success = rewards == 1  # [B, G]
    count = success.sum(1, keepdim=True).clamp(min=1)  # [B, 1]
    mean_length = (success * lengths).sum(1, keepdim=True) / count  # [B, 1]
    longer = torch.where(success, lengths - mean_length, 0)  # [B, G]
    spread = (longer.square().sum(1, keepdim=True) / count).sqrt()  # [B, 1]
    z = longer / torch.where(spread > 0, spread, 1)  # [B, G], 0 where all are equally long
    value = torch.where(success, (-length_penalty * z).exp(), -1).to(rewards.dtype)  # [B, G]

    std = value.std(1, keepdim=True, correction=0)  # [B, 1]
    mixed = value.amax(1, keepdim=True) > value.amin(1, keepdim=True)  # [B, 1]
    advantages = (value - value.mean(1, keepdim=True)) / torch.where(mixed, std, 1)  # [B, G]
    advantages = torch.where(mixed, advantages, 0)  # [B, G]

    p = rewards.mean(1, keepdim=True)  # [B, 1]
    of_success = low + (high - low) * torch.sigmoid(10 * (middle - p))  # [B, 1], w(p)
    of_failure = low + (high - low) * torch.sigmoid(10 * (middle - 1 + p))  # [B, 1], w(1 - p)
    return advantages * torch.where(advantages > 0, of_success, of_failure)


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
    easy, hard, total, unsolved, correct = rlvr.ranks.global_sum(
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
        formats = [format_reward(text) for text in texts]
        formats = torch.tensor(formats, device=run.device).view_as(batch.rewards)  # [B, G]
        rewards = (1 - config.format_share) * batch.rewards + config.format_share * formats
        advantages = grpo_advantage(rewards, config.scale_rewards)  # [B, G]
        success_rate = batch.successes.mean(1)  # [B], p
        first_rates = rlvr.ranks.gather(batch.first_successes.mean(1).tolist())
        mean_success = sum(first_rates) / len(first_rates)  # w, before any group is replaced
        if config.method == "agrae":
            advantages = agrae_advantage(
                advantages,
                success_rate,
                mean_success,
                config.alpha,
                config.sample_level,
                config.group_level,
                config.released_weight,
            )
        elif config.method == "w_reinforce":
            advantages = w_reinforce_advantage(batch.successes, config.success_weight)
        elif config.method == "grpo_lead":
            lengths = batch.written.sum(1).view_as(batch.successes)  # [B, G]
            advantages = grpo_lead_advantage(batch.successes, lengths)
        elif config.method != "none":
            advantages = controlled_advantage(
                advantages, success_rate, config.method, config.control_beta, config.control_gamma
            )
        diagnostics = difficulty_metrics(advantages, batch.successes, mean_success, config.alpha)
        if config.format_share:
            well_formed, completions = rlvr.ranks.global_sum(formats.sum(), formats.numel())
            diagnostics["format"] = well_formed / completions
        advantages = advantages.view(-1, 1)  # [N, 1]: all tokens of a completion share it

        # 3. Update: PPO-clip against the policy that wrote the rollout.
        common.compute_old_and_ref_logprobs(batch, policy, reference, config)
        update = common.UpdateMetrics()
        minibatches = batch.minibatches(config.minibatch_size)
        for minibatch in minibatches * config.num_iterations:  # the whole list, repeated
            # What each token counts in the loss, such as 1 / (n |o_i|) in GRPO; 0 off the mask. n
            # counts the whole minibatch on all ranks, so that microbatches and ranks just add up.
            loss_weights = common.minibatch_weights(batch.mask, minibatch, config)  # [N, T]
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
                    ratio, advantages[rows], config.epsilon, config.epsilon_high
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
        metrics = batch.metrics() | update.metrics() | run.metrics() | diagnostics
        timer.lap("update")

        # 4. Log, evaluate, save.
        run.log("metrics", step, metrics | timer.seconds, batch.samples)
        rlvr.tokens.log_tokens(run, step, batch, advantages, training)
        if run.is_due(step, config.eval_steps):
            run.log("eval", step, common.evaluate(sampler, eval_sets, config))
        if run.end_step(step, training):  # True after Ctrl-C or SIGTERM
            break
    run.finish()


if __name__ == "__main__":
    rlvr.run.launch(main, rlvr.flags.parse_flags(Config, VARIANTS))
