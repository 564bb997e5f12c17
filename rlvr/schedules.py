"""The learning rate of each update, and how many steps a run has."""

import math
import warnings

import torch
import transformers


def count_steps(config, train_problems: list) -> int:
    """--max_steps, or as many steps as --num_train_epochs passes over the problems take.

    Groups that dynamic sampling draws again are not counted.
    """
    if config.num_train_epochs is None:
        return config.max_steps
    return math.ceil(config.num_train_epochs * len(train_problems) / config.prompts_per_step)


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


def set_base(scheduler: torch.optim.lr_scheduler.LambdaLR, learning_rate: float) -> None:
    """Let the schedule scale another learning rate, from the next update on."""
    for i, group in enumerate(scheduler.optimizer.param_groups):
        scheduler.base_lrs[i] = learning_rate
        group["lr"] = learning_rate * scheduler.lr_lambdas[i](scheduler.last_epoch)
