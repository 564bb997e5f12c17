"""The five functions of the assignment. Copy this file, and fill them in with torch alone.

B prompts have G completions each. A minibatch has n completions of at most T tokens, and a
microbatch has m of them. Log-probs are in nats. The first four can be pasted into the project.
"""

import torch


def grpo_advantage(rewards: torch.Tensor, scale_rewards: bool = True) -> torch.Tensor:
    """Return (r - mean) / std over each prompt's group, or r - mean, [B, G] -> [B, G].

    The standard deviation is the population's, which divides by G. A group of equal rewards gets
    exactly 0, although its std may be off by a rounding error. No other group does.
    """
    raise NotImplementedError


def token_weights(loss_mask: torch.Tensor, aggregation: str, max_completion_length=None):
    """Return each token's weight in the loss of a minibatch, [n, T] -> [n, T].

    "sequence": 1 / (n |o_i|), where |o_i| is the sum of row i of loss_mask.
    "token": 1 / sum_i |o_i|.
    "constant": 1 / (n max_completion_length).
    The weight is 0 where loss_mask is 0. A row may have zeros anywhere, and may be all 0.
    """
    raise NotImplementedError


def ppo_clip_loss(
    *,
    logprobs: torch.Tensor,  # [m, T], by the policy that is trained
    old_logprobs: torch.Tensor,  # [m, T], by the policy that wrote the completions
    advantages: torch.Tensor,  # [m, 1], or [m, T] with one per token
    loss_mask: torch.Tensor,  # [m, T], 1 on the tokens that the loss counts
    token_weights: torch.Tensor,  # [m, T], each token's weight; 0 off the mask
    importance: torch.Tensor | float = 1.0,  # you may ignore this
    epsilon: float = 0.2,
    epsilon_high: float | None = None,  # equal to epsilon if None
    importance_sampling_level: str = "token",  # and what follows
    ref_logprobs: torch.Tensor | None = None,
    beta: float = 0.0,
    entropy: torch.Tensor | float = 0.0,
    entropy_coef: float = 0.0,
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the PPO-clip loss, and {"kl": ..., "clip_low": ..., "clip_high": ...}, [m, T] each.

        - sum w min(rho A, clip(rho, 1 - epsilon, 1 + epsilon_high) A), where rho = pi / pi_old

    clip_low and clip_high mark the tokens that lose their gradient because rho is too low or too
    high. kl is all 0. Off the mask, log-probs may be infinite: nothing may become NaN there.
    """
    raise NotImplementedError


def pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """Return the probability that one or more of k samples, without replacement, are correct."""
    raise NotImplementedError


def update(policy, optimizer, old_logprobs, advantages, loss_mask, microbatches) -> None:
    """Make one optimizer step on a minibatch, whose microbatches are lists of its rows.

    policy(rows) returns the log-probs [m, T] of these rows, at most one microbatch. Use your
    token_weights with "sequence" and your ppo_clip_loss. The microbatches' gradients must add up to
    the minibatch's gradient. Ignore gradients that are left from before.
    """
    raise NotImplementedError
