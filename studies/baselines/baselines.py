"""Other methods in grpo.py's loop: what the papers compare theirs with, and others of the field.

    python studies/baselines/baselines.py --list
    python studies/baselines/baselines.py --advantage mix_pass_k --k 4
    python studies/baselines/baselines.py --advantage rloo --loss cispo --epsilon 1
    python studies/baselines/baselines.py --teacher strong
    python studies/baselines/baselines.py --loss ipo --num_iterations 4 --staleness 4
    torchrun --nproc_per_node 8 studies/baselines/baselines.py --model ... --dataset math

Each method is one pure function of advantages.py or losses.py. `main` is that of the five scripts,
with the chosen advantage, token mask, importance weights and loss. --staleness and the metric
`dropped` show what a trust region does when the rollout's policy is not the current one.
"""

import functools
import inspect
import math
import sys
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the project's root

from rlvr import world
from rlvr.errors import UserError
from rlvr.flags import flag, parse_flags
from rlvr.machine import gather_groups, global_mean, global_sum
from rlvr.policy import frozen_logprobs, load_policies
from rlvr.rollout import make_sampler
from rlvr.tasks import open_problems
from rlvr.training import Run, launch, make_optimizer

import torch

import agrae
import common
import cwgrpo
import fade
import grpo
from studies.baselines import losses
from studies.baselines.advantages import OF_ADVANTAGES, OF_REWARDS, OF_SUCCESSES, OF_THE_WHOLE_BATCH

VARIANTS = grpo.VARIANTS
ADVANTAGES = {**OF_SUCCESSES, **OF_REWARDS, **OF_ADVANTAGES}
METHODS = {  # what --list shows: the flags, and where each is documented
    **{f"advantage {name}": function for name, function in ADVANTAGES.items()},
    **{f"loss {name}": function for name, function in losses.LOSSES.items()},
    "token clip_cov": losses.clip_cov_mask,
    "token high_entropy": losses.high_entropy_mask,
    "token otb": losses.otb,
    "importance icepop": losses.icepop,
    "teacher": losses.distillation,
    "off_policy_mask_threshold": losses.off_policy_mask,
    "use_bias_correction_kl": losses.unbiased_k3,
}
# Which advantages read the rewards beside the successes, and which begin with GRPO's.
BY_GRPO = dict(advantage=" ".join(["grpo", *OF_ADVANTAGES]))
BY_REWARDS = dict(advantage=" ".join(["grpo", *OF_REWARDS, *OF_ADVANTAGES]))
OF_EPSILON = dict(loss="ppo_clip cispo dppo up")
# An advantage's parameters that are flags, and the names of these flags.
FLAGS = {name: name for name in "k alpha delta alpha_s alpha_f tau gamma success_weight".split()}
FLAGS |= {"beta": "advantage_beta"}


@dataclass
class Config(grpo.Config):
    """The flags of grpo.py, and the method."""

    advantage: str = flag("grpo", "a name of --list", choices=("grpo", *ADVANTAGES))
    scale_rewards: bool = flag(True, "as in grpo.py", only=BY_GRPO)
    loss: str = flag("ppo_clip", "what to maximise", choices=("ppo_clip", *losses.LOSSES))
    epsilon: float = flag(0.2, "as in grpo.py", le=1, only=OF_EPSILON)
    epsilon_high: float | None = flag(None, "as in grpo.py", only=dict(loss="ppo_clip cispo dppo"))
    token: Literal["none", "clip_cov", "high_entropy", "otb"] = flag(
        "none", "which tokens get no gradient, or a baseline of each token"
    )
    importance: Literal["truncated", "icepop"] = flag("truncated", "weights of an inexact sampler")
    teacher: str = flag("", "the advantage is log pi_teacher - log pi of each token, of this model")
    staleness: int = flag(0, "how many steps old the weights are that write a rollout", ge=0)
    k: int | None = flag(None, "analytic_pass_k, mix_pass_k")
    alpha: float | None = flag(None, "power, t2t")
    delta: float | None = flag(None, "power, asym, shifted", ge=-1)
    alpha_s: float | None = flag(None, "asym_power: exponent of successes", ge=0)
    alpha_f: float | None = flag(None, "asym_power: exponent of failures", ge=0)
    tau: float | None = flag(None, "quantile", ge=0)
    gamma: float | None = flag(None, "power_norm, hard_focused, easy_focused")
    advantage_beta: float | None = flag(
        None, "beta of softmax, logmeanexp, positive_dominant, negative_dominant"
    )
    success_weight: float | None = flag(None, "w_reinforce; a failure is worth -1", ge=0)
    clip_cov_fraction: float = flag(
        2e-4, "share of a minibatch's tokens", le=1, only=dict(token="clip_cov")
    )
    kl_cov_fraction: float = flag(
        2e-4, "share of a microbatch's tokens", le=1, only=dict(loss="kl_cov")
    )
    top_entropy_quantile: float = flag(
        0.2, "share of a minibatch's tokens", le=1, only=dict(token="high_entropy")
    )
    off_policy_mask_threshold: float | None = flag(
        None, "nats per token by which a failure may have become rarer", ge=0
    )
    use_bias_correction_kl: bool = flag(False, "the KL penalty times the ratio")
    format_share: float = flag(0.0, "as in agrae.py", ge=0, le=1, only=BY_REWARDS)
    format_weight: float = flag(0.0, "as in cwgrpo.py", ge=0, only=BY_REWARDS)
    format_tags: Literal["think", "think_answer"] = flag("think_answer", "as in cwgrpo.py")
    equalize_learning_rate: bool = flag(False, "as in fade.py")
    log_schedule: bool = flag(
        False, "alpha and delta follow the steps (Eqs. 17-18)", only=dict(advantage="power")
    )

    def check(self) -> None:
        super().check()
        by_length = self.advantage in ("t2t", "grpo_lead")
        if self.equalize_learning_rate and (by_length or self.advantage not in OF_SUCCESSES):
            raise UserError("--equalize_learning_rate: the largest |A| has to depend on successes")
        if self.loss != "ppo_clip" and self.importance_sampling_level == "sequence":
            raise UserError("--importance_sampling_level sequence is for --loss ppo_clip")
        if self.log_schedule and not (self.alpha is self.delta is None):
            raise UserError("--log_schedule chooses alpha and delta: no --alpha, no --delta")
        of_rewards = "advantage token scale_rewards negatives_only format_share format_weight"
        for name in of_rewards.split() if self.teacher else ():
            if getattr(self, name) != self.__dataclass_fields__[name].default:
                raise UserError(f"--teacher gives each token's advantage: nothing reads --{name}")
        if self.format_tags != "think_answer" and not self.format_weight:
            raise UserError("--format_tags needs --format_weight")
        if self.use_bias_correction_kl and not self.beta:
            raise UserError("--use_bias_correction_kl needs --beta")
        groups = self.num_generations * world.WORLD_SIZE
        if self.token in ("clip_cov", "high_entropy") and self.minibatch_size % groups:
            raise UserError(f"--token {self.token}: --minibatch_size must hold whole groups")
        function = advantage_function(self)
        if self.advantage in OF_SUCCESSES:
            try_on_groups(function, self)

    def may_change(self, name: str) -> bool:
        # the log schedule depends on the share of max_steps that is done
        return super().may_change(name) and not (name == "max_steps" and self.log_schedule)


def log_schedule(step, total_steps, start, end, tau):
    """Return a value that moves from start to end along log(1 + step / tau) (FADE Eqs. 17-18)."""
    return start - (start - end) * math.log1p(step / tau) / math.log1p(total_steps / tau)


def advantage_function(config: Config, step: int = 0):
    """Return --advantage with the arguments that are given; UserError if they do not fit."""
    of_grpo = functools.partial(grpo.grpo_advantage, scale_rewards=config.scale_rewards)
    function = ADVANTAGES.get(config.advantage, of_grpo)
    parameters = inspect.signature(function).parameters
    values = {name: getattr(config, flag) for name, flag in FLAGS.items()}
    if config.log_schedule:  # with the numbers that FADE has fitted to its run of 7 B
        values["alpha"] = log_schedule(step, config.max_steps, 2.0, 1.917, tau=8500)
        values["delta"] = log_schedule(step, config.max_steps, 1.0, 0.802, tau=12264)
    arguments = {name: value for name, value in values.items() if value is not None}
    empty = inspect.Parameter.empty
    needed = {name for name, parameter in parameters.items() if parameter.default is empty}
    for name in arguments.keys() - parameters.keys():
        raise UserError(f"--{FLAGS[name]} is not for --advantage {config.advantage}")
    for name in sorted(needed & values.keys() - arguments.keys()):
        raise UserError(f"--advantage {config.advantage} needs --{FLAGS[name]}")
    return functools.partial(function, **arguments)


def call(function, **known):
    """Call an advantage's function with what it asks for by the names of its parameters."""
    wanted = inspect.signature(function).parameters
    return function(**{name: value for name, value in known.items() if name in wanted})


def try_on_groups(function, config: Config) -> torch.Tensor:
    """Return the advantages of groups with 0, 1 ... G successes. UserError if they are unusable."""
    G = config.num_generations
    groups = torch.ones(G + 1, G).tril(-1)
    half = torch.full_like(groups, 0.5)
    try:
        advantages = call(function, rewards=groups, lengths=half, shares=half)
    except ValueError as error:
        raise UserError(f"--advantage {config.advantage}: {error}") from error
    if not (advantages.isfinite().all() and advantages.any()):
        raise UserError(f"--advantage {config.advantage}: all advantages are 0, or one is infinite")
    return advantages


def compute_advantages(batch: common.Batch, config: Config, step: int):
    """Return the advantages of a batch [B, G], and the metrics to log. Steps count from 1.

    With --token otb they are [B, G, T]. All ranks call it.
    """
    parts, weights = [batch.rewards], [1 - config.format_share]
    lengths = batch.completion_mask.sum(1).view_as(batch.rewards)  # [B, G], in tokens
    if config.format_share:
        parts.append(batch.rewards.new_tensor([*map(agrae.format_reward, batch.texts())]))
        weights.append(config.format_share)
    if config.format_weight:
        formats = [cwgrpo.format_reward(text, config.format_tags) for text in batch.texts()]
        parts.append(batch.rewards.new_tensor(formats))
        weights.append(config.format_weight)
    parts = [part.view_as(batch.rewards) for part in parts]
    of_all_ranks = config.advantage in OF_THE_WHOLE_BATCH
    if of_all_ranks:
        parts = gather_groups(config.num_generations, *(part.flatten() for part in parts))
    rewards = sum(weight * part for weight, part in zip(weights, parts, strict=True))
    advantages = call(
        advantage_function(config, step),
        rewards=batch.successes if config.advantage in OF_SUCCESSES else rewards,
        advantages=grpo.grpo_advantage(rewards, config.scale_rewards),
        success_rate=batch.successes.mean(1),
        lengths=lengths,
        shares=lengths.clamp(min=1) / config.max_completion_length,
        parts=parts,
        weights=weights,
    )
    if of_all_ranks:
        advantages = advantages[world.RANK :: world.WORLD_SIZE].contiguous()
    if config.negatives_only:
        advantages = grpo.negative_only(advantages)
    masses = global_mean(*fade.gradient_mass(advantages, batch.successes))
    diagnostics = dict(zip(("m_S", "m_F"), masses, strict=True))
    if config.token == "otb":
        advantages = with_token_baseline(batch, advantages, config)
    return advantages, diagnostics


def with_token_baseline(batch: common.Batch, advantages, config: Config):
    """Return the advantages [B, G] less OTB's baseline, [B, G, T]. It costs two forward passes.

    Half the temperature doubles the logits, which gives the sum of the squared probabilities.
    """
    sharper = replace(config, temperature=config.temperature / 2)
    by_group = (*advantages.shape, -1)  # to [B, G, T]
    logprobs, sharper_logprobs = (
        frozen_logprobs(batch.sampler.policy, batch.samples, of_temperature)[0].view(by_group)
        for of_temperature in (config, sharper)
    )
    return losses.otb(advantages, logprobs, sharper_logprobs, batch.loss_mask.view(by_group))


def roll_out(sampler, stream, config: Config, history: deque) -> common.Batch:
    """Return common.roll_out's batch, written with the weights of --staleness steps ago.

    history [staleness + 1] holds the weights of the last steps; the first steps have fewer, and so
    has a resumed run. Afterwards the policy has its own weights again.
    """
    if config.staleness == 0:
        return common.roll_out(sampler, stream, config)
    state = sampler.policy.state_dict()
    history.append({name: weights.clone() for name, weights in state.items()})
    sampler.policy.load_state_dict(history[0])
    batch = common.roll_out(sampler, stream, config)
    sampler.policy.load_state_dict(history[-1])
    return batch


def dropped_tokens(loss_of, *, logprobs, **terms) -> torch.Tensor:
    """Return 1 on the tokens whose advantage has no gradient in the loss, else 0, [m, T].

    The loss is that of the advantages alone, without KL penalty and entropy bonus.
    """
    logprobs = logprobs.detach().requires_grad_()
    loss, _ = loss_of(logprobs=logprobs, **terms | dict(beta=0.0, entropy_coef=0.0))
    (gradient,) = torch.autograd.grad(loss, logprobs)  # [m, T]
    return (gradient == 0).to(logprobs)


def load_teacher(config: Config, tokenizer):
    """Return the policy of --teacher, or None. UserError if its vocabulary is another one."""
    if not config.teacher:
        return None
    teacher, _, of_teacher = load_policies(replace(config, model=config.teacher, beta=0.0))
    if of_teacher.get_vocab() != tokenizer.get_vocab():
        raise UserError(f"--teacher {config.teacher} has another vocabulary than the policy")
    return teacher


def token_mask(batch: common.Batch, rows: list[int], advantages, config: Config, seed: int):
    """Return 0 for the tokens of a minibatch that Clip-Cov or 80/20 drops, and 1 for the others.

    rows are this rank's rows of the minibatch, and advantages are [N, 1] -> [n, T]. The choice is
    among the tokens of the minibatch on all ranks, by the current policy: it costs a forward pass.
    """
    logprobs, entropies = frozen_logprobs(batch.sampler.policy, batch.samples, config, rows)
    by_entropy = config.token == "high_entropy"
    values, of_rows, mask = gather_groups(
        config.num_generations,
        (entropies if by_entropy else logprobs)[rows],
        advantages[rows, 0],
        batch.loss_mask[rows],
    )
    if by_entropy:
        keep = losses.high_entropy_mask(values, mask, config.top_entropy_quantile)
    else:
        generator = torch.Generator().manual_seed(seed)  # the same on all ranks
        keep = losses.clip_cov_mask(
            values, of_rows, mask, config.clip_cov_fraction, generator=generator
        )
    own = keep[world.RANK :: world.WORLD_SIZE, :, : batch.loss_mask.shape[1]]  # [b, G, T]
    return own.flatten(0, 1)


def main(config: Config):
    """Train and evaluate with these flags, as grpo.main does. Return what it returns."""
    run = Run(config)
    policy, reference, tokenizer = load_policies(config)
    stream, eval_sets = open_problems(config, tokenizer)
    sampler = make_sampler(policy, tokenizer, config, common.decode)
    if config.importance == "icepop" and not sampler.cap:
        raise UserError("--importance icepop is for vLLM or half precision: all weights are 1 here")
    optimizer, scheduler = make_optimizer(policy, config, learning_rate_factor(config))
    teacher = load_teacher(config, tokenizer)  # None without --teacher
    history = deque(maxlen=config.staleness + 1)  # weights of the last steps
    first_head = policy.get_output_embeddings().weight.detach().clone()  # [V, H]
    last_step = run.start(policy, tokenizer, optimizer, scheduler, stream)
    loss_of = make_loss(config)  # common.ppo_clip_loss, perhaps with another objective or KL
    by_minibatch = config.token in ("clip_cov", "high_entropy")
    if last_step == 0:
        evaluation = common.evaluate(sampler, eval_sets, config)
        run.log_evaluation(0, evaluation, fade.head_change(policy, first_head))

    for step in range(last_step + 1, config.max_steps + 1):
        # 1. Roll out.
        batch = roll_out(sampler, stream, config, history)

        # 2. Advantages.
        advantages, diagnostics = compute_advantages(batch, config, step)  # [B, G] or [B, G, T]
        if teacher is not None:
            of_teacher, _ = frozen_logprobs(teacher, batch.samples, config)  # [N, T]
            advantages = losses.distillation(of_teacher, batch.sampled_logprobs, batch.loss_mask)
            advantages = advantages.unflatten(0, batch.rewards.shape)  # [B, G, T]

        # 3. Update. The advantages become [N, 1] or [N, T].
        advantages = common.prepare_update(batch, advantages, policy, reference, config)
        if config.staleness:  # pi_old is the policy that wrote the rollout, in all updates
            batch.old_logprobs = batch.sampled_logprobs
        counted, dropped = 0.0, 0.0  # tokens with |A| > 1e-6, and those of them without a gradient
        keep = torch.ones_like(batch.loss_mask)  # [N, T], 0 on the tokens that --token drops
        for update, minibatch in enumerate(batch.minibatches(config, whole_groups=by_minibatch)):
            if by_minibatch:
                rows = sorted(row for microbatch in minibatch for row in microbatch)
                seed = config.seed + 1000 * step + update
                keep[rows] = token_mask(batch, rows, advantages, config, seed)
            for rows in minibatch:
                logprobs, entropy = common.token_logprobs(
                    policy, batch.samples, rows, config.temperature
                )  # [m, T] each
                if update == 0 and not config.staleness:
                    batch.old_logprobs[rows] = logprobs.detach()
                importance = batch.importance[rows]  # [m, T]
                if config.importance == "icepop":
                    importance = losses.icepop(
                        batch.old_logprobs[rows], batch.sampled_logprobs[rows]
                    )
                terms = dict(
                    logprobs=logprobs,
                    old_logprobs=batch.old_logprobs[rows],
                    sampled_logprobs=batch.sampled_logprobs[rows],
                    advantages=keep[rows] * advantages[rows],
                    loss_mask=batch.loss_mask[rows],
                    token_weights=batch.token_weights[rows],
                    importance=importance,
                    epsilon=config.epsilon,
                    epsilon_high=config.epsilon_high,
                    importance_sampling_level=config.importance_sampling_level,
                    ref_logprobs=batch.ref_logprobs[rows],
                    beta=config.beta,
                    entropy=entropy,
                    entropy_coef=config.entropy_coef,
                )
                loss, stats = loss_of(**terms)
                has_advantage = batch.loss_mask[rows] * (advantages[rows].abs() > 1e-6)  # [m, T]
                counted += has_advantage.sum()
                dropped += (has_advantage * dropped_tokens(loss_of, **terms)).sum()
                loss.backward()
                run.add(loss, batch, rows, logprobs=logprobs, entropy=entropy, **stats)
            common.optimizer_step(policy, optimizer, run)
            scheduler.step()

        # 4. Log, evaluate, save.
        counted, dropped = global_sum(counted, dropped)
        diagnostics = diagnostics | {"dropped": dropped / max(counted, 1)}
        run.log_step(step, batch, keep * advantages, diagnostics)
        if step % config.eval_steps == 0 or step == config.max_steps:
            evaluation = common.evaluate(sampler, eval_sets, config)
            run.log_evaluation(step, evaluation, fade.head_change(policy, first_head))
        if run.end_step(step):
            break
    return run.finish()


def learning_rate_factor(config: Config) -> float:
    """Return what the rate is multiplied by: 1, or GRPO's largest |A| over the method's own."""
    if not config.equalize_learning_rate:
        return 1.0
    largest = try_on_groups(advantage_function(config), config).abs().max().item()
    return (config.num_generations - 1) ** 0.5 / largest


def make_loss(config: Config):
    """Return the loss of --loss, --off_policy_mask_threshold and --use_bias_correction_kl."""
    objective = losses.LOSSES.get(config.loss)  # None for ppo_clip
    if config.loss == "kl_cov":
        objective = functools.partial(losses.LOSSES["kl_cov"], fraction=config.kl_cov_fraction)
    return losses.loss_with(
        objective, config.off_policy_mask_threshold, config.use_bias_correction_kl
    )


def list_methods() -> None:
    """Print the first line of each method's docstring."""
    for name, function in METHODS.items():
        print(f"--{name}: {(function.__doc__ or '').splitlines()[0]}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        list_methods()
    else:
        launch(main, parse_flags(Config, VARIANTS))
