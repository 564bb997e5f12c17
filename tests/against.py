"""The losses of the scripts, of TRL and of verl, and their derivatives, on random batches.

A batch has completions of unequal length, two truncated ones that are masked, ratios far from 1,
advantages of both signs, a KL penalty and an entropy bonus, all in float64. docs/elsewhere.md says
what had to be set so that all compute the same. Of verl's files only the functions are read.
"""

import ast
import copy
import importlib
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

from rlvr.policy.logprobs import completion_logprobs
from rlvr.tasks.problems import own_tokens

import losses
import torch
from torch.nn.utils import clip_grad_norm_, parameters_to_vector

import common

COMPLETIONS, LONGEST = 32, 12  # N, T
BETA, ENTROPY_COEF = 0.3, 0.1
CASES = [("grpo", variant) for variant in ("grpo", "dapo", "dr-grpo", "gspo")]
CASES += [(script, script) for script in ("agrae", "asymgrpo", "fade", "cwgrpo")]
TRL_LOSS = {"sequence": "grpo", "token": "dapo", "constant": "dr_grpo"}  # by --aggregation
VERL_LOSS = {
    "sequence": "seq-mean-token-mean",
    "token": "token-mean",
    "constant": "seq-mean-token-sum-norm",
}


class Batch(NamedTuple):
    """One minibatch; all are [N, T]."""

    advantages: torch.Tensor
    mask: torch.Tensor
    logprobs: torch.Tensor
    old_logprobs: torch.Tensor
    ref_logprobs: torch.Tensor
    entropy: torch.Tensor


def random_batch(seed: int) -> Batch:
    """Ratios to the old policy of some 0.2 to 5, to the reference below verl's limit of the KL."""
    random = torch.Generator().manual_seed(seed)
    shape = (COMPLETIONS, LONGEST)

    def normal(scale):
        return scale * torch.randn(shape, generator=random, dtype=torch.float64)

    lengths = torch.randint(1, LONGEST + 1, (shape[0], 1), generator=random)
    mask = (torch.arange(LONGEST) < lengths).double()
    mask[[1, 6]] = 0  # truncated
    logprobs = -normal(1).abs()
    return Batch(
        # of both signs, and the loss is no small difference of large sums
        advantages=1 + normal(1),
        mask=mask,
        logprobs=logprobs,
        old_logprobs=logprobs + normal(0.6),
        ref_logprobs=logprobs + normal(0.5).clamp(-2, 2),
        entropy=normal(1).abs(),
    )


def flags_of(script: str, variant: str):
    """The script's Config with the presets of the variant, a KL penalty and an entropy bonus."""
    module = importlib.import_module(script)
    presets = {**module.VARIANTS[variant], "beta": BETA, "entropy_coef": ENTROPY_COEF}
    flags = module.Config(**presets, max_completion_length=LONGEST)
    if flags.epsilon_high is None:
        flags.epsilon_high = flags.epsilon
    return flags


def own_loss(batch: Batch, flags) -> torch.Tensor:
    """The loss as step 3 of the scripts has it."""
    return losses.ppo_clip_loss(
        batch.logprobs,
        batch.old_logprobs,
        batch.advantages,
        batch.mask,
        flags.epsilon,
        flags.epsilon_high,
        flags.importance_sampling_level,
        flags.aggregation,
        flags.max_completion_length,
        ref_logprobs=batch.ref_logprobs,
        beta=flags.beta,
        entropy=batch.entropy,
        entropy_coef=flags.entropy_coef,
    ).loss


# ------------------------------------------------------------------------------------------- TRL


def trl_loss(batch: Batch, flags, unbiased_kl=False) -> torch.Tensor:
    """TRL's GRPOTrainer._compute_loss, with the entropy bonus of the scripts.

    TRL's own bonus is a mean over tokens, so it is used for the aggregation over tokens alone.
    """
    from trl import GRPOTrainer

    rows, by_token = len(batch.mask), flags.aggregation == "token"
    trainer = SimpleNamespace(
        model=SimpleNamespace(training=True),
        args=SimpleNamespace(
            delta=None, use_bias_correction_kl=unbiased_kl, steps_per_generation=1
        ),
        accelerator=SimpleNamespace(
            num_processes=1, sync_gradients=True, gather=lambda x: x, reduce=lambda x, reduction: x
        ),
        current_gradient_accumulation_steps=1,
        loss_type=TRL_LOSS[flags.aggregation],
        importance_sampling_level=flags.importance_sampling_level,
        epsilon_low=flags.epsilon,
        epsilon_high=flags.epsilon_high,
        beta=flags.beta,
        entropy_coef=flags.entropy_coef,
        max_completion_length=flags.max_completion_length,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        use_vllm=False,
        aux_loss_enabled=False,
        use_adaptive_entropy=False,
        _entropy_bonus_enabled=by_token,
        _metrics={"train": defaultdict(list)},
        _get_per_token_logps_and_entropies=lambda *_, **__: (batch.logprobs, batch.entropy, None),
    )
    inputs = dict(
        prompt_ids=torch.zeros(rows, 1),
        prompt_mask=torch.ones(rows, 1),
        completion_ids=torch.zeros_like(batch.mask),
        completion_mask=batch.mask,
        advantages=batch.advantages,
        old_per_token_logps=batch.old_logprobs,
        ref_per_token_logps=batch.ref_logprobs,
        num_items_in_batch=batch.mask.sum(),
    )
    loss = GRPOTrainer._compute_loss(trainer, None, inputs)
    if by_token:
        return loss
    weights = common.token_weights(batch.mask, flags.aggregation, flags.max_completion_length)
    return loss - flags.entropy_coef * (weights * batch.entropy).sum()


# ------------------------------------------------------------------------------------------ verl


def functions_of(file: Path, names, **given) -> SimpleNamespace:
    """Some functions of a file, without their decorators and without what the file imports."""
    tree = ast.parse(file.read_text())
    wanted = [node for node in tree.body if getattr(node, "name", None) in names]
    for node in wanted:
        node.decorator_list = []
    future = ast.parse("from __future__ import annotations").body
    namespace = {"torch": torch, **given}
    module = ast.Module(body=[*future, *wanted], type_ignores=[])
    exec(compile(module, str(file), "exec"), namespace)
    return SimpleNamespace(**{name: namespace[name] for name in names})


class VerlConfig(SimpleNamespace):
    """What verl's losses read of its ActorConfig."""

    def get(self, name, default):
        return getattr(self, name, default)


def read_verl(clone: Path) -> Callable:
    """verl_loss with the functions of a clone. OSError where the clone lacks a file."""
    helpers = functions_of(clone / "verl/utils/torch_functional.py", ("masked_sum", "masked_mean"))
    names = "agg_loss compute_policy_loss_vanilla compute_policy_loss_gspo kl_penalty"
    core = functions_of(
        clone / "verl/trainer/ppo/core_algos.py",
        [*names.split(), "kl_penalty_forward"],
        verl_F=helpers,
        ActorConfig=VerlConfig,
        AlgoConfig=type(None),
    )

    def verl_loss(batch: Batch, flags) -> torch.Tensor:
        """Policy loss, KL and entropy, put together as verl's actor does.

        Its second clip at 3 is off, and masked completions count in a mean over completions.
        """
        rows = len(batch.mask)
        divisors = dict(global_batch_size=rows, loss_scale_factor=flags.max_completion_length)
        config = VerlConfig(
            clip_ratio=flags.epsilon,
            clip_ratio_low=flags.epsilon,
            clip_ratio_high=flags.epsilon_high,
            clip_ratio_c=1e9,
            global_batch_info=divisors,
        )
        mode = VERL_LOSS[flags.aggregation]
        sequence = flags.importance_sampling_level == "sequence"
        policy_loss = (
            core.compute_policy_loss_gspo if sequence else core.compute_policy_loss_vanilla
        )
        loss, _ = policy_loss(
            batch.old_logprobs, batch.logprobs, batch.advantages, batch.mask, mode, config
        )
        kl = core.kl_penalty(batch.logprobs, batch.ref_logprobs, "low_var_kl")
        kl = core.agg_loss(kl, batch.mask, mode, **divisors)
        entropy = core.agg_loss(batch.entropy, batch.mask, mode, **divisors)
        return loss + flags.beta * kl - flags.entropy_coef * entropy

    return verl_loss


# ------------------------------------------------------------------------------------- compared


def value_and_slopes(loss: Callable, batch: Batch, flags):
    """The loss, and its derivatives by the log-probs and by the entropies of the tokens."""
    leaves = [x.clone().requires_grad_() for x in (batch.logprobs, batch.entropy)]
    value = loss(batch._replace(logprobs=leaves[0], entropy=leaves[1]), flags)
    return [value.detach(), *torch.autograd.grad(value, leaves)]


def difference(other: Callable, case: tuple[str, str], seeds: int) -> float:
    """The largest relative difference to the scripts' loss, over some random batches."""
    largest = 0.0
    for seed in range(seeds):
        batch, flags = random_batch(seed), flags_of(*case)
        if flags.importance_sampling_level == "sequence":  # then a completion has one advantage
            batch = batch._replace(advantages=batch.advantages[:, :1].expand(-1, LONGEST))
        ours, theirs = (value_and_slopes(loss, batch, flags) for loss in (own_loss, other))
        for own, their in zip(ours, theirs, strict=True):
            largest = max(largest, ((own - their).abs().max() / own.abs().max()).item())
    return largest


def update_of(policy, samples, loss: Callable, learning_rate: float = 1e-3):
    """What one step of AdamW on loss(logprobs, mask) adds to the weights, and the gradient's norm.

    AdamW's first step tells the direction of the gradient, but not its size.
    """
    policy = copy.deepcopy(policy)
    before = parameters_to_vector(policy.parameters()).detach().clone()
    optimizer = torch.optim.AdamW(policy.parameters(), learning_rate, weight_decay=0.0)
    mask = own_tokens(samples).float()  # [N, T]
    logprobs, _ = completion_logprobs(policy, samples, 1.0, mask.shape[1])  # [N, T]
    loss(logprobs, mask).backward()
    grad_norm = clip_grad_norm_(policy.parameters(), 1.0).item()
    optimizer.step()
    return parameters_to_vector(policy.parameters()).detach() - before, grad_norm


def own_update(policy, samples, advantages: Callable, aggregation: str, longest: int):
    """update_of by the scripts' loss; advantages(logprobs, mask) are [N] or [N, T]."""

    def loss(logprobs, mask):
        old = logprobs.detach()
        return losses.ppo_clip_loss(
            logprobs,
            old,
            advantages(old, mask),
            mask,
            aggregation=aggregation,
            max_completion_length=longest,
        ).loss

    return update_of(policy, samples, loss)
