"""The five functions of the assignment. Copy this file, and fill them in with torch alone.

B prompts have G completions each. A minibatch has n completions of at most T tokens, and a
microbatch has m of them. Log-probs are in nats.
"""

import torch


def grpo_advantage(rewards: torch.Tensor) -> torch.Tensor:
    """Return (r - mean) / std over each prompt's group, [B, G] -> [B, G].

    The standard deviation is the population's. A group of equal rewards gets exactly 0.
    """
    raise NotImplementedError


def token_weights(loss_mask: torch.Tensor, aggregation: str, max_completion_length=None):
    """Return each token's weight in the loss, [n, T] -> [n, T], 0 where loss_mask is 0.

    "sequence": 1 / (n |o_i|), where |o_i| is the sum of row i of loss_mask; a row may be empty.
    "token": 1 / sum_i |o_i|.
    "constant": 1 / (n max_completion_length).
    """
    raise NotImplementedError


def ppo_clip_loss(
    *,
    logprobs: torch.Tensor,  # [m, T], from the policy in training
    old_logprobs: torch.Tensor,  # [m, T], from the policy that wrote the completions
    advantages: torch.Tensor,  # [m, 1]
    loss_mask: torch.Tensor,  # [m, T]; off the mask, log-probs may be infinite
    token_weights: torch.Tensor,  # [m, T]
    epsilon: float = 0.2,
    epsilon_high: float | None = None,  # equal to epsilon if None
) -> torch.Tensor:
    """Return - sum w min(rho A, clip(rho, 1 - epsilon, 1 + epsilon_high) A), rho = pi / pi_old."""
    raise NotImplementedError


def pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """Return the probability that one or more of k samples, without replacement, are correct."""
    raise NotImplementedError


def update(policy, optimizer, old_logprobs, advantages, loss_mask, microbatches) -> None:
    """Make one optimizer step on a minibatch, whose microbatches are lists of rows.

    policy(rows) returns log-probs [m, T] for the rows of at most one microbatch. Weight tokens by
    "sequence" over the whole minibatch, so that the microbatches' gradients add up to its gradient.
    Ignore gradients that are left from before.
    """
    raise NotImplementedError
