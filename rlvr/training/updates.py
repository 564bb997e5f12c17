"""The optimizer, the learning rate of each update, and what the updates did."""

import math
import warnings

from rlvr.machine import global_max, global_sum

import torch


def make_optimizer(policy, config, rate_factor: float = 1.0):
    """Return AdamW for the policy, and its learning rate schedule. Call step() after each update.

    The rate is --learning_rate times the factor. It rises from 0 over the first --warmup_ratio of
    the run's updates. Then it stays, or falls to 0 along a line or half a cosine. Skipped updates
    count as well. Build both before a sharded policy computes anything (see sharding.py).
    """
    import transformers

    optimizer = torch.optim.AdamW(
        policy.parameters(),
        lr=config.learning_rate * rate_factor,
        weight_decay=config.weight_decay,
        fused=next(policy.parameters()).device.type in ("cpu", "cuda"),
    )
    rollout = config.prompts_per_step * config.num_generations
    updates = config.max_steps * config.num_iterations * (rollout // config.minibatch_size)
    warmup = math.ceil(updates * config.warmup_ratio)
    name = config.lr_scheduler_type
    if name == "constant":
        name = "constant_with_warmup"
    # torch would warn if the first update is skipped because its gradient is 0
    warnings.filterwarnings("ignore", r"Detected call of `lr_scheduler\.step\(\)` before")
    return optimizer, transformers.get_scheduler(name, optimizer, warmup, updates)


class UpdateMetrics:
    """Sums over the microbatches and updates of a step."""

    def __init__(self):
        self.loss = 0.0  # of all updates, on this rank
        self.tokens = 0.0
        self.sums = {}  # metric -> sum over the tokens
        self.largest = []  # log-ratio of each microbatch
        self.grad_norms = []  # one per update
        self.learning_rate = 0.0  # of the last update

    def add(self, loss: torch.Tensor, mask: torch.Tensor, log_ratio, **per_token) -> None:
        """Count a microbatch. The mask, log(pi / pi_old) and the metrics to average are [m, T]."""
        per_token |= {"ratio_k3": log_ratio.expm1() - log_ratio}
        self.loss = self.loss + loss.detach()
        self.tokens = self.tokens + mask.sum()
        self.largest.append(log_ratio.masked_fill(mask == 0, -math.inf).max())
        for name, values in per_token.items():
            # Tensors of the wrong shape would broadcast in silence.
            assert values.shape == mask.shape, f"{name} is {[*values.shape]}, not {[*mask.shape]}"
            self.sums[name] = self.sums.get(name, 0.0) + (mask * values.detach()).sum()

    def metrics(self) -> dict[str, float]:
        """Means over updates, and over tokens. All ranks call it together."""
        loss, tokens, *sums = global_sum(self.loss, self.tokens, *self.sums.values())
        updates = len(self.grad_norms)
        means = {name: value / max(tokens, 1) for name, value in zip(self.sums, sums, strict=True)}
        return {
            "loss": loss / updates,
            **means,
            "ratio_max": global_max(torch.stack(self.largest).max().exp().item()),
            "grad_norm": sum(self.grad_norms) / updates,
            "skipped": sum(not math.isfinite(norm) for norm in self.grad_norms),
            "learning_rate": self.learning_rate,
        }
