"""FADE, focal advantage with dynamic entropy, and the policy weights that the paper compares.

For a prompt whose group has the mean reward r_mean (Eq. 11, Algorithm 2):

    A = (1 - r_mean)^(alpha-1) (r - r_mean), divided by delta where r < r_mean

A controller chooses alpha by the solve rate, which is the success rate of the batch, and delta by
the entropy. alpha >= 1 turns to hard prompts while few are solved; delta <= 1 strengthens the
failures while entropy is below its target.

What differs from grpo.py: the advantages (--weight, section 8), a constant denominator (11.1),
and diagnostics.

Paper: Don't Let Gains FADE (Decugis, O'Brien, Bach, Synnaeve, Cohen; arXiv 2607.01490). Algorithm 2
prints the mean over the batch for r_mean (--batch_mean), while the per-prompt masses of section 10
need the prompt's own, which is taken. The text calls the controller's averages smoothed, but prints
0.02 for the share of the past, which keeps almost nothing of it; --ema_beta 0.98 smooths.

    python fade.py                                                      # a laptop
    python fade.py --weight mix_pass_k --weight_args k=4                # any of POLICY_WEIGHTS
    python fade.py --model Qwen/Qwen2.5-0.5B-Instruct --dataset math    # one GPU
    torchrun --nproc_per_node 8 fade.py --model ... --dataset math      # 8 GPUs share the batch
"""

import inspect
from dataclasses import dataclass
from functools import partial
from typing import Literal

import rlvr.checkpoints
import rlvr.config
import rlvr.flags
import rlvr.models
import rlvr.policy_weights
import rlvr.ranks
import rlvr.run
import rlvr.samplers
import rlvr.schedules
import rlvr.sharding
import rlvr.tasks.datasets
import rlvr.tasks.stream
import rlvr.tokens
from rlvr import world
from rlvr.config import ZeroOrMore
from rlvr.diagnostics import rank1_statistics
from rlvr.errors import UserError

import torch

import common

VARIANTS = {
    "fade": dict(),
    "power": dict(weight="power", weight_args="alpha=2"),
    "asym": dict(weight="asym", weight_args="delta=0.5"),
    "asym-power": dict(weight="asym_power", weight_args="alpha_s=2,alpha_f=1.5"),
    "log-schedule": dict(weight="log_schedule"),
    # The ablations of Figure 9. With H* = 0, 1 + H - H* is never below 1, so that delta stays 1.
    "alpha-only": dict(target_entropy=0.0),
    "delta-only": dict(alpha_max=1.0),
    "entropy-only": dict(alpha_from_entropy=True),
}
MOVING = ("fade", "log_schedule")  # the weights whose alpha and delta change from step to step
FOCAL = (*MOVING, "power", "asym")  # the weights that are fade_advantage
READ_BY = {  # flag -> the weights that read it; all of them read a flag that is not listed
    "target_entropy": ("fade",),
    "ema_beta": ("fade", "ha_dw"),
    "alpha_max": ("fade",),
    "alpha_from_entropy": ("fade",),
    "batch_mean": FOCAL,
}


@dataclass
class Config(rlvr.config.Config):
    """The flags of all scripts, and those of this one."""

    variant: Literal[tuple(VARIANTS)] = "fade"  # named preset of flags; a given flag wins
    aggregation: Literal["sequence", "token", "constant"] = "constant"  # what divides the sum
    weight: str = "fade"  # fade, log_schedule or a key of POLICY_WEIGHTS
    weight_args: str = ""  # of the policy weight, such as k=4 or alpha_s=2,alpha_f=1.5
    target_entropy: ZeroOrMore[float | None] = None  # H*, nats; half of the first step's if None
    ema_beta: ZeroOrMore[float] = 0.02  # share of the past in the controller's averages
    alpha_max: float = 3.0  # upper limit of alpha
    alpha_from_entropy: bool = False  # alpha, too, follows the entropy, not the solve rate
    batch_mean: bool = False  # r_mean is that of the batch, as Algorithms 1 and 2 print it
    equalize_learning_rate: bool = False  # make learning rate x max|A| GRPO's (section 11.3)

    def check(self) -> None:
        super().check()
        self.refuse_unread("weight", READ_BY)
        if self.equalize_learning_rate and self.weight == "t2t":
            raise UserError("--equalize_learning_rate: the largest |A| of t2t depends on lengths")
        if self.weight_args and self.weight in MOVING:
            raise UserError(f"--weight {self.weight} takes no --weight_args: alpha and delta move")
        if self.alpha_from_entropy and self.target_entropy == 0:
            raise UserError("--alpha_from_entropy needs a --target_entropy above 0")
        names = (*MOVING, *POLICY_WEIGHTS)
        if self.weight not in names:
            raise UserError(f"--weight {self.weight} is none of {', '.join(names)}")
        if self.ema_beta >= 1:
            raise UserError("--ema_beta must be below 1")
        if self.alpha_max < 1:
            raise UserError("--alpha_max must be 1 or more")
        try:
            weight = choose_weight(self)
            inspect.signature(weight).bind("rewards")  # TypeError where it lacks an argument
            if self.weight_args:  # without them an error is one of the weight itself
                G = self.num_generations
                groups = torch.ones(G + 1, G).tril(-1)  # with 0, 1 ... G successes
                advantages = weight(groups)
                if advantages.is_complex() or not advantages.isfinite().all():
                    raise ValueError("some advantages are no finite numbers")
                if not advantages.any():
                    raise ValueError("all advantages are 0")
        except (TypeError, ValueError) as error:
            given = f"--weight {self.weight} --weight_args {self.weight_args!r}"
            raise UserError(f"{given}: {error}") from error

    def may_change(self, name: str) -> bool:
        # log_schedule goes by the share of max_steps that is done
        sets_length = name in ("max_steps", "num_train_epochs")
        return super().may_change(name) and not (sets_length and self.weight == "log_schedule")


def fade_advantage(rewards, alpha, delta, mean=None):
    """FADE (Eq. 11): (1 - r_mean)^(alpha - 1) (r - r_mean), divided by delta where r < r_mean.

    rewards [B, G] in [0, 1] -> [B, G]. r_mean is the mean of each prompt's own group, unless the
    float `mean` is given for all prompts, as Algorithm 2 prints the mean of the batch. With rewards
    of 0 and 1, p = r_mean and q = 1 - p, the gradient masses (2.1) are m_S = p q^alpha of successes
    and m_F = m_S / delta of failures. ValueError for delta <= 0.
    """
    if delta <= 0:
        raise ValueError(f"delta must be positive, got {delta}")
    if mean is None:
        mean = rewards.mean(dim=1, keepdim=True)  # [B, 1]
    else:
        mean = torch.full_like(rewards[:, :1], mean)
    failed = torch.where(mean < 1, 1 - mean, 1)  # [B, 1]; r - mean is 0 anyway where none failed
    focal = failed ** (alpha - 1) * (rewards - mean)  # [B, G]
    return torch.where(rewards < mean, focal / delta, focal)


class FadeController:
    """alpha from the solve rate s and delta from the entropy H (Eq. 11, Algorithm 2).

        alpha = 3 (1 - s) / (2 s), kept between 1 and alpha_max: 1 where s is 0.6 or more
        delta = 1 + H - H*, kept between 0.3 and 1: below 1 where H, in nats, is below its target H*

    s and H are moving averages, in which the past's share is ema_beta; s begins at 0.5. H* is
    target_entropy, or half of initial_entropy when that is None. vars() is the state to save.

    With alpha_from_entropy (Figure 9, no formula printed) alpha falls along a line, from alpha_max
    where the entropy is twice its target to 1 at the target.

    ValueError unless 0 <= ema_beta < 1 <= alpha_max.
    """

    def __init__(
        self,
        initial_entropy,
        target_entropy=None,
        ema_beta=0.02,
        alpha_max=3.0,
        alpha_from_entropy=False,
    ):
        if not 0 <= ema_beta < 1 <= alpha_max:
            raise ValueError(f"need 0 <= ema_beta < 1 <= alpha_max, got {ema_beta}, {alpha_max}")
        self.ema_beta, self.alpha_max = ema_beta, alpha_max
        self.alpha_from_entropy = alpha_from_entropy
        self.solve_rate, self.entropy = 0.5, float(initial_entropy)
        self.target_entropy = self.entropy / 2 if target_entropy is None else float(target_entropy)

    def step(self, mean_reward, entropy):
        """A batch's mean reward, and its entropy as the mean of -log pi, nats -> (alpha, delta)."""
        past, now = self.ema_beta, 1 - self.ema_beta
        self.solve_rate = past * self.solve_rate + now * float(mean_reward)
        self.entropy = past * self.entropy + now * float(entropy)
        alpha = self.alpha_max
        if self.alpha_from_entropy and self.target_entropy > 0:
            alpha = 1 + (self.alpha_max - 1) * (self.entropy / self.target_entropy - 1)
        elif self.solve_rate > 0:
            alpha = 3 * (1 - self.solve_rate) / (2 * self.solve_rate)
        delta = 1 + self.entropy - self.target_entropy
        return min(max(alpha, 1.0), self.alpha_max), min(max(delta, 0.3), 1.0)


def log_schedule(step, total_steps, start, end, tau):
    """The schedule without feedback, from start to end along log(1 + step / tau) (Eqs. 17-18)."""
    steps = torch.tensor([step / tau, total_steps / tau], dtype=torch.float64)
    now, last = steps.log1p().tolist()
    return start - (start - end) * now / last


def control(config, memory, step, solve_rate, entropy):
    """alpha and delta of this step: the controller's, or those of --weight log_schedule.

    memory["controller"] is the controller's state. Checkpoints keep its numbers and not the object,
    so each step makes a controller that goes on from them. In the first step there are none yet;
    the default target is half of that step's entropy.
    """
    controller = FadeController(
        entropy,
        config.target_entropy,
        config.ema_beta,
        config.alpha_max,
        config.alpha_from_entropy,
    )
    # From the second step on, the numbers that were kept take the places of those just set.
    vars(controller).update(memory.get("controller", {}))
    alpha, delta = controller.step(solve_rate, entropy)
    memory["controller"] = vars(controller)
    if config.weight == "log_schedule":
        # Eqs. 18 and 17, with the numbers that the paper has fitted to its run of 7 B.
        alpha = log_schedule(step, config.max_steps, 2.0, 1.917, tau=8500)
        delta = log_schedule(step, config.max_steps, 1.0, 0.802, tau=12264)
    return alpha, delta


# Section 8: rewards r [B, G] of 0 and 1 -> advantages [B, G]. The first two are Eq. 11 with a fixed
# alpha and delta; `asym` is what the paper calls AsymGRPO, and not the method of asymgrpo.py.
POLICY_WEIGHTS = {
    "power": partial(fade_advantage, alpha=2.0, delta=1.0),
    "asym": partial(fade_advantage, alpha=1.0, delta=0.5),
    **rlvr.policy_weights.BASELINES,
}


def choose_weight(config, alpha=1.0, delta=1.0, solve_rate=0.5, running_rate=0.5, lengths=0.0):
    """--weight as a function of the rewards alone. Config.check tries it with the defaults.

    alpha and delta are FADE's. The solve rates are the batch's (--batch_mean) and the running one
    (HA-DW); lengths [B, G] are shares of --max_completion_length (T2T).
    """
    arguments = {"mean": solve_rate} if config.batch_mean else {}
    if config.weight in MOVING:
        return partial(fade_advantage, alpha=alpha, delta=delta, **arguments)
    if config.weight == "t2t":
        arguments["lengths"] = lengths
    if config.weight == "ha_dw":
        arguments["baseline"] = running_rate
    for pair in filter(None, config.weight_args.split(",")):
        name, value = pair.split("=")
        arguments[name] = int(value) if value.isdigit() else float(value)
    return partial(POLICY_WEIGHTS[config.weight], **arguments)


def equalized_learning_rate(config, weight):
    """The learning rate whose product with the weight's largest |A| is GRPO's (section 11.3).

    The largest is over the success rates k/G; GRPO's is that of one success or one failure in a
    group, sqrt(G - 1).
    """
    G = config.num_generations
    groups = torch.ones(G + 1, G).tril(-1)  # with 0, 1 ... G successes
    largest = weight(groups).abs().max().item()
    return config.learning_rate * (G - 1) ** 0.5 / largest


def gradient_mass(advantages, rewards):
    """(m_S, m_F), [B] each: the sum of A over successes, and of -A over failures, over G (2.1)."""
    return (advantages * rewards).mean(dim=1), -(advantages * (1 - rewards)).mean(dim=1)


def entropy_drift(advantages, mean_logprobs, entropy):
    """(m_S - m_F) H - Cov(A, log pi) over each prompt's responses (Eq. 7, per unit learning rate).

    advantages [B, G], mean_logprobs [B, G] and H -> [B]. This is Eq. 7 as printed. For a softmax
    policy under natural gradients the first-order change would be -Cov alone.
    """
    centred = mean_logprobs - mean_logprobs.mean(dim=1, keepdim=True)  # [B, G]
    mass_difference = advantages.mean(dim=1)  # [B], m_S - m_F
    return mass_difference * entropy - (advantages * centred).mean(dim=1)


def fade_metrics(advantages, rewards, mean_logprobs, entropy, memory):
    """What to log of the controller and of the advantages; all ranks call it together.

    advantages, rewards and mean_logprobs [B, G]; memory is what checkpoints keep. entropy_drift is
    what was predicted in the step before; entropy_change is what the entropy has done since.
    """
    m_S, m_F, drift = rlvr.ranks.global_mean(
        *gradient_mass(advantages, rewards), entropy_drift(advantages, mean_logprobs, entropy)
    )
    metrics = {
        "solve_rate_ema": memory["controller"]["solve_rate"],
        "entropy_ema": memory["controller"]["entropy"],
        "m_S": m_S,
        "m_F": m_F,
        "entropy_drift": memory.get("drift", 0.0),
        "entropy_change": entropy - memory.get("entropy", entropy),
    }
    memory.update(entropy=entropy, drift=drift)
    return metrics


def head_change(head, first_head):
    """rank1_statistics of the head's change; nothing on a rank that logs nothing.

    All ranks call it together, since the heads [V, H] may be sharded.
    """
    change = rlvr.sharding.whole(head - first_head)
    return rank1_statistics(change) if world.RANK == 0 else {}


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
    memory = training.extra  # what checkpoints keep of the controller and of the step before
    head = policy.get_output_embeddings().weight.detach()  # [V, H], follows the updates
    first_head = head.clone()

    last_step = run.resume(training)  # 0 unless --resume_from_checkpoint is given
    if last_step == 0:
        rank1 = head_change(head, first_head)
        run.log("eval", 0, common.evaluate(sampler, eval_sets, config) | rank1)

    for step in range(last_step + 1, config.max_steps + 1):
        timer = common.Timer()

        # 1. Roll out: G graded completions for each of B prompts, N = B * G rows.
        batch = common.roll_out(sampler, stream, config)
        timer.lap("rollout")

        # 2. Advantages: how much better is a completion than the others of its prompt?
        old_logprobs = common.compute_old_logprobs(batch, policy, config)  # [N, T]
        lengths = batch.written.sum(1).clamp(min=1)  # [N]
        mean_logprobs = (batch.written * old_logprobs).sum(1) / lengths  # [N]
        mean_logprobs = mean_logprobs.view_as(batch.rewards)  # [B, G]
        # The controller's solve rate is that before dynamic sampling has replaced any group.
        # Its entropy is the mean of -log pi (Algorithm 2), and not that over the vocabulary below.
        first_rate, solve_rate, sampled_entropy = rlvr.ranks.global_mean(
            batch.first_successes, batch.successes, -mean_logprobs
        )
        alpha, delta = control(config, memory, step, first_rate, sampled_entropy)
        running_rate = memory["controller"]["solve_rate"]
        shares = lengths.view_as(batch.rewards) / config.max_completion_length  # [B, G]
        # The paper calls an advantage, as a function of the rewards, a policy weight.
        policy_weight = choose_weight(config, alpha, delta, solve_rate, running_rate, shares)
        # The paper's rewards are 0 or 1: a policy weight depends on success or failure alone (2.1).
        advantages = policy_weight(batch.successes)  # [B, G]
        if config.equalize_learning_rate:
            rlvr.schedules.set_base(scheduler, equalized_learning_rate(config, policy_weight))
        diagnostics = {"alpha": alpha, "delta": delta} | fade_metrics(
            advantages, batch.successes, mean_logprobs, sampled_entropy, memory
        )
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
            rank1 = head_change(head, first_head)
            run.log("eval", step, common.evaluate(sampler, eval_sets, config) | rank1)
        if run.end_step(step, training):  # True after Ctrl-C or SIGTERM
            break
    run.finish()


if __name__ == "__main__":
    rlvr.run.launch(main, rlvr.flags.parse_flags(Config, VARIANTS))
