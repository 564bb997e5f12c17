"""FADE, focal advantage with dynamic entropy, and the policy weights that the paper compares.

For a prompt whose group has the mean reward r_mean (Eq. 11, Algorithm 2):

    A = (1 - r_mean)^(alpha-1) (r - r_mean), divided by delta where r < r_mean

A controller chooses alpha by the solve rate, which is the success rate of the batch, and delta by
the entropy. alpha >= 1 turns to hard prompts while few are solved; delta <= 1 strengthens the
failures while entropy is below its target.

What differs from grpo.py: the advantages (--weight, section 8), a constant denominator (11.1),
and diagnostics.

Paper: Don't Let Gains FADE (Decugis, O'Brien, Bach, Synnaeve, Cohen; arXiv 2607.01490). Algorithm 2
prints the mean over the batch for r_mean (--batch_mean), while section 10 needs the prompt's own,
which is taken.

    python fade.py                                                      # a laptop
    python fade.py --weight mix_pass_k --weight_args k=4                # any of POLICY_WEIGHTS
    python fade.py --model Qwen/Qwen2.5-0.5B-Instruct --dataset math    # one GPU
    torchrun --nproc_per_node 8 fade.py --model ... --dataset math      # 8 GPUs share the batch
"""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import rlvr
from rlvr import world
from rlvr.baselines import rank1_statistics, read_arguments, try_weight
from rlvr.errors import UserError
from rlvr.flags import Only, ZeroOrMore

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
# In a flag's type: the values of --weight that read it.
OfFade = Only(weight="fade")
OfAverages = Only(weight="fade ha_dw")
OfFocal = Only(weight="fade log_schedule power asym")  # those that are fade_advantage


@dataclass
class Config(rlvr.flags.Config):
    """The flags of all scripts, and those of this one."""

    variant: Literal[tuple(VARIANTS)] = "fade"  # named preset of flags; a given flag wins
    aggregation: Literal["sequence", "token", "constant"] = "constant"  # what divides the sum
    weight: str = "fade"  # fade, log_schedule or a key of POLICY_WEIGHTS
    weight_args: str = ""  # of the policy weight, such as k=4 or alpha_s=2,alpha_f=1.5
    # H*, nats; half of the first step's if None
    target_entropy: Annotated[ZeroOrMore[float | None], OfFade] = None
    # share of the past in the controller's averages
    ema_beta: Annotated[ZeroOrMore[float], OfAverages] = 0.02
    alpha_max: Annotated[float, OfFade] = 3.0  # upper limit of alpha
    # alpha, too, follows the entropy, not the solve rate
    alpha_from_entropy: Annotated[bool, OfFade] = False
    # r_mean is that of the batch, as Algorithms 1 and 2 print it
    batch_mean: Annotated[bool, OfFocal] = False
    equalize_learning_rate: bool = False  # make learning rate x max|A| GRPO's (section 11.3)

    def check(self) -> None:
        super().check()
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
            # without arguments an error is one of the weight itself
            try_weight(choose_weight(self), self.num_generations if self.weight_args else 0)
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
        mean = torch.full_like(1.0 * rewards[:, :1], mean)  # rewards may be integers
    failed = torch.where(mean < 1, 1 - mean, 1)  # [B, 1]; r - mean is 0 anyway where none failed
    focal = failed ** (alpha - 1) * (rewards - mean)  # [B, G]
    return torch.where(rewards < mean, focal / delta, focal)


class FadeController:
    """alpha from the solve rate s and delta from the entropy H (Eq. 11, Algorithm 2).

        alpha = 3 (1 - s) / (2 s), kept between 1 and alpha_max: 1 where s is 0.6 or more
        delta = 1 + H - H*, kept between 0.3 and 1: below 1 where H, in nats, is below its target H*

    s and H are moving averages, in which the past's share is ema_beta. s begins at 0.5, and H at
    initial_entropy, or at the first step's where that is None. H* is target_entropy, or half of the
    H at the beginning where that is None. The numbers 3/2, 0.3 and 0.5 are the paper's.

    With alpha_from_entropy (Figure 9, no formula printed) alpha falls along a line, from alpha_max
    where the entropy is twice its target to 1 at the target.

    ValueError unless 0 <= ema_beta < 1 <= alpha_max. A checkpoint keeps the attributes.
    """

    def __init__(
        self,
        initial_entropy=None,
        target_entropy=None,
        ema_beta=0.02,
        alpha_max=3.0,
        alpha_from_entropy=False,
    ):
        if not 0 <= ema_beta < 1 <= alpha_max:
            raise ValueError(f"need 0 <= ema_beta < 1 <= alpha_max, got {ema_beta}, {alpha_max}")
        self.ema_beta, self.alpha_max = ema_beta, alpha_max
        self.alpha_from_entropy = alpha_from_entropy
        self.solve_rate = 0.5
        self.entropy, self.target_entropy = initial_entropy, target_entropy
        self.last_entropy, self.predicted_drift = None, 0.0  # of the step before, to be logged

    def step(self, mean_reward, entropy):
        """A batch's mean reward, and its entropy as the mean of -log pi, nats -> (alpha, delta)."""
        if self.entropy is None:
            self.entropy = float(entropy)
        if self.target_entropy is None:
            self.target_entropy = self.entropy / 2
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


# Section 8: rewards r [B, G] of 0 and 1 -> advantages [B, G]. The first two are Eq. 11 with a fixed
# alpha and delta; `asym` is what the paper calls AsymGRPO, and not the method of asymgrpo.py.
POLICY_WEIGHTS = {
    "power": partial(fade_advantage, alpha=2.0, delta=1.0),
    "asym": partial(fade_advantage, alpha=1.0, delta=0.5),
    **rlvr.baselines.BASELINES,
}


def choose_weight(config, alpha=1.0, delta=1.0, batch_mean=0.5, running_mean=0.5, lengths=0.0):
    """--weight as a function of the rewards alone. Config.check tries it with the defaults.

    alpha and delta are FADE's; the mean rewards are the batch's (--batch_mean) and the controller's
    moving average (HA-DW); lengths [B, G] are shares of --max_completion_length (T2T).
    """
    arguments = {"mean": batch_mean} if config.batch_mean else {}
    if config.weight in MOVING:
        return partial(fade_advantage, alpha=alpha, delta=delta, **arguments)
    if config.weight == "t2t":
        arguments["lengths"] = lengths
    if config.weight == "ha_dw":
        arguments["baseline"] = running_mean
    arguments |= read_arguments(config.weight_args)
    return partial(POLICY_WEIGHTS[config.weight], **arguments)


def learning_rate_factor(config: Config) -> float:
    """What makes learning rate x largest |A| the same as GRPO's (section 11.3); else 1.

    It is fixed for the whole run, by the weight that the run starts with: that of FADE at a solve
    rate of 0.5. The largest |A| is over the success rates k/G; GRPO's is that of one success or one
    failure in a group, sqrt(G - 1).
    """
    if not config.equalize_learning_rate:
        return 1.0
    first_alpha = min(1.5, config.alpha_max)  # 3 (1 - s) / (2 s) at s = 0.5
    if config.alpha_from_entropy:
        first_alpha = config.alpha_max
    if config.weight == "log_schedule":
        first_alpha = 2.0
    G = config.num_generations
    groups = torch.ones(G + 1, G).tril(-1)  # with 0, 1 ... G successes
    largest = choose_weight(config, first_alpha)(groups).abs().max().item()
    return (G - 1) ** 0.5 / largest


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


def head_change(policy, first_head):
    """rank1_statistics of the output head's change since it was first_head [V, H].

    All ranks call it together, since the heads may be sharded; {} on a rank that logs nothing.
    """
    change = rlvr.policy.whole(policy.get_output_embeddings().weight.detach() - first_head)
    return rank1_statistics(change) if world.RANK == 0 else {}


def make_controller(config: Config) -> FadeController:
    """The controller by the flags. Its entropy begins at that of the first step."""
    return FadeController(
        None, config.target_entropy, config.ema_beta, config.alpha_max, config.alpha_from_entropy
    )


def compute_advantages(batch, config: Config, controller: FadeController, step: int):
    """The advantages of a batch [B, G], and what to log of them. All ranks call it together.

    entropy_drift is what was predicted in the step before, and entropy_change is what the entropy
    has done since.
    """
    # The entropy is the mean of -log pi by the sampler (Algorithm 2), not that over the vocabulary.
    # The controller sees the mean reward before dynamic sampling has replaced any group.
    mean_logprobs = batch.mean_logprobs()  # [B, G]
    first_mean, batch_mean, entropy = rlvr.machine.global_mean(
        batch.first_successes, batch.successes, -mean_logprobs
    )
    alpha, delta = controller.step(first_mean, entropy)
    if config.weight == "log_schedule":
        # Eqs. 18 and 17, with the numbers that the paper has fitted to its run of 7 B.
        alpha = log_schedule(step, config.max_steps, 2.0, 1.917, tau=8500)
        delta = log_schedule(step, config.max_steps, 1.0, 0.802, tau=12264)
    lengths = batch.written.sum(1).clamp(min=1).view_as(batch.rewards)  # [B, G]
    lengths = lengths / config.max_completion_length
    policy_weight = choose_weight(config, alpha, delta, batch_mean, controller.solve_rate, lengths)
    # A policy weight, the paper's word for such a function, sees success or failure alone (2.1).
    advantages = policy_weight(batch.successes)  # [B, G]
    m_S, m_F, drift = rlvr.machine.global_mean(
        *gradient_mass(advantages, batch.successes),
        entropy_drift(advantages, mean_logprobs, entropy),
    )
    last_entropy = entropy if controller.last_entropy is None else controller.last_entropy
    diagnostics = {
        "alpha": alpha,
        "delta": delta,
        "solve_rate_ema": controller.solve_rate,
        "entropy_ema": controller.entropy,
        "m_S": m_S,
        "m_F": m_F,
        "entropy_drift": controller.predicted_drift,
        "entropy_change": entropy - last_entropy,
    }
    controller.last_entropy, controller.predicted_drift = entropy, drift
    return advantages, diagnostics


def main(config: Config) -> None:
    """Train and evaluate by these flags. All output goes into the run folder."""
    run = rlvr.training.Run(config)  # the ranks, the seed, the run folder
    policy, tokenizer = rlvr.policy.load_policy(config, run.device)
    stream, eval_sets = rlvr.tasks.open_problems(config, tokenizer)
    reference = rlvr.policy.load_reference(policy, config)  # None where --beta is 0
    sampler = rlvr.rollout.make_sampler(policy, tokenizer, config, common.decode)
    optimizer, scheduler = rlvr.training.make_optimizer(
        policy, config, learning_rate_factor(config)
    )
    training = rlvr.training.TrainingState(policy, tokenizer, optimizer, scheduler, stream)
    training.memory = controller = make_controller(config)  # which checkpoints keep
    first_head = policy.get_output_embeddings().weight.detach().clone()  # [V, H]
    last_step = run.resume(training)  # 0 unless --resume_from_checkpoint is given
    if last_step == 0:
        evaluation = common.evaluate(sampler, eval_sets, config)
        run.log("eval", 0, evaluation | head_change(policy, first_head))

    for step in range(last_step + 1, config.max_steps + 1):
        # 1. Roll out: G graded completions for each of B prompts, N = B * G rows.
        run.start_clock()
        batch = common.roll_out(sampler, stream, config)
        run.lap("rollout")

        # 2. Advantages: how much better is a completion than the others of its prompt?
        advantages, diagnostics = compute_advantages(batch, config, controller, step)
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
            evaluation = common.evaluate(sampler, eval_sets, config)
            run.log("eval", step, evaluation | head_change(policy, first_head))
        if run.end_step(step, training):  # True after Ctrl-C or SIGTERM
            break
    run.finish()


if __name__ == "__main__":
    config = rlvr.flags.parse_flags(Config, VARIANTS)
    rlvr.training.launch(main, config)
