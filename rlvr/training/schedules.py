"""The optimizer, and the learning rate of each update."""

import math
import warnings

import torch
import transformers


def make_optimizer(policy, config, rate_factor: float = 1.0):
    """AdamW for the policy, and the schedule of its learning rate.

    The rate is --learning_rate times the factor. Build it before anything is computed with a
    sharded policy (see rlvr/policy/sharding.py).
    """
    optimizer = torch.optim.AdamW(
        policy.parameters(),
        lr=config.learning_rate * rate_factor,
        weight_decay=config.weight_decay,
        fused=True,
    )
    return optimizer, make_scheduler(optimizer, config)


def make_scheduler(optimizer, config) -> torch.optim.lr_scheduler.LambdaLR:
    """The schedule of transformers that the flags name; its step() follows each update.

    The learning rate rises from 0 over the first --warmup_ratio of the run's updates. Then it
    stays, or falls to 0 along a line or half a cosine. An update that is left out counts, too.
    """
    rollout = config.prompts_per_step * config.num_generations
    updates = config.max_steps * config.num_iterations * (rollout // config.minibatch_size)
    name = config.lr_scheduler_type
    if name == "constant":
        name = "constant_with_warmup"
    # torch would warn where the first update is left out because its gradient is 0
    warnings.filterwarnings("ignore", r"Detected call of `lr_scheduler\.step\(\)` before")
    return transformers.get_scheduler(
        name, optimizer, math.ceil(updates * config.warmup_ratio), updates
    )
