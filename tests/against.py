"""What the losses are compared on with verl's functions and TRL's trainer.

Of verl's files only the functions are read. docs/elsewhere.md says what had to be set so that all
compute the same.
"""

import ast
import copy
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

from rlvr.policy.logprobs import completion_logprobs
from rlvr.tasks.problems import own_tokens

import losses
import torch
from torch.nn.utils import clip_grad_norm_, parameters_to_vector

COMPLETIONS, LONGEST = 32, 12  # N, T
LOSS = dict(beta=0.3, epsilon=0.02, epsilon_high=0.03)  # of the updates by TRL


class Batch(NamedTuple):
    """One minibatch in float64, of which two completions are masked; all are [N, T]."""

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


def own_updates(policy, samples, advantages: Callable, aggregation: str, longest: int):
    """What two steps of AdamW by the scripts' loss add to the weights, and the gradients' norms.

    advantages(logprobs, mask) are [N] or [N, T]. AdamW's first step tells the direction of the
    gradient, but not its size.
    """
    policy, norms = copy.deepcopy(policy), []
    before = parameters_to_vector(policy.parameters()).detach().clone()
    optimizer = torch.optim.AdamW(policy.parameters(), 1e-3, weight_decay=0.0)
    mask = own_tokens(samples).float()  # [N, T]
    how = dict(aggregation=aggregation, max_completion_length=longest, **LOSS)
    for _ in range(2):
        logprobs, _ = completion_logprobs(policy, samples, 1.0, mask.shape[1])  # [N, T]
        if not norms:
            old = logprobs.detach()
            given = old, advantages(old, mask), mask
        result = losses.ppo_clip_loss(logprobs, *given, ref_logprobs=old, **how)
        result.loss.backward()
        norms.append(clip_grad_norm_(policy.parameters(), 1.0).item())
        optimizer.step()
        optimizer.zero_grad()
    assert result.clipped_low > 0 and result.clipped_high > 0  # of the second step
    return parameters_to_vector(policy.parameters()).detach() - before, norms
