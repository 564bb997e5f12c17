"""This project's functions under the names that CS336's assignment 5 gives them in its tests.

test_external.py puts this file into a copy of that repository's tests. There the standard deviation
is divided by G - 1, and advantage_eps is added to it.
"""

import torch

from common import ppo_clip_loss, token_weights
from grpo import grpo_advantage


def run_compute_group_normalized_rewards(
    reward_fn,
    rollout_responses,
    repeated_ground_truths,
    group_size,
    advantage_eps,
    normalize_by_std,
):
    pairs = zip(rollout_responses, repeated_ground_truths, strict=True)
    rewards = torch.tensor([reward_fn(response, truth)["reward"] for response, truth in pairs])
    groups = rewards.view(-1, group_size)
    advantages = grpo_advantage(groups, scale_rewards=normalize_by_std)
    if normalize_by_std:
        population = groups.std(1, keepdim=True, correction=0)
        advantages = advantages * population / (groups.std(1, keepdim=True) + advantage_eps)
    return advantages.flatten(), rewards, {}


def run_compute_grpo_clip_loss(advantages, policy_log_probs, old_log_probs, cliprange):
    # The loss of a token is the derivative of the whole loss in the token's weight.
    weights = torch.ones_like(policy_log_probs, requires_grad=True)
    given = policy_log_probs.detach(), old_log_probs, advantages
    loss, _ = ppo_clip_loss(*given, torch.ones_like(weights), weights, cliprange)
    return torch.autograd.grad(loss, weights)[0], {}


def run_compute_policy_gradient_loss(
    policy_log_probs, loss_type, raw_rewards, advantages, old_log_probs, cliprange
):
    if loss_type != "grpo_clip":
        raise NotImplementedError
    return run_compute_grpo_clip_loss(advantages, policy_log_probs, old_log_probs, cliprange)


def run_masked_mean(tensor, mask, dim=None):
    if dim is not None:
        raise NotImplementedError
    mask = mask.float()
    return (token_weights(mask, "token") * tensor).sum()


def run_grpo_microbatch_train_step(
    policy_log_probs,
    response_mask,
    gradient_accumulation_steps,
    loss_type,
    raw_rewards=None,
    advantages=None,
    old_log_probs=None,
    cliprange=None,
):
    if loss_type != "grpo_clip":
        raise NotImplementedError
    mask = response_mask.float()
    weights = token_weights(mask, "sequence") / gradient_accumulation_steps
    given = policy_log_probs, old_log_probs, advantages
    loss, _ = ppo_clip_loss(*given, mask, weights, cliprange)
    loss.backward()
    return loss.detach(), {}


def run_compute_naive_policy_gradient_loss(raw_rewards_or_advantages, policy_log_probs):
    raise NotImplementedError
