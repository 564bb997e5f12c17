"""What other methods do with single tokens: their losses, masks and importance weights.

Shapes are those of common.ppo_clip_loss: m completions of a microbatch, T tokens.
"""

import torch

import common

ppo_clip_loss = common.ppo_clip_loss  # baselines.py puts another one in its place

# Losses: the part of each token that is to be maximised, [m, T], from the ratio rho = pi / pi_old.


def cispo(ratio, logprobs, advantages, epsilon, epsilon_high):
    """sg(clip(rho, 1 - epsilon, 1 + epsilon_high)) A log pi, CISPO (arXiv 2506.13585)."""
    return ratio.clamp(1 - epsilon, 1 + epsilon_high).detach() * advantages * logprobs


LOSSES = {"cispo": cispo}


def loss_with(objective):
    """Return common.ppo_clip_loss with an objective of LOSSES in place of the clipped minimum.

    The KL penalty and the entropy bonus stay. clip_low and clip_high are 0.
    """

    def loss(*, logprobs, old_logprobs, advantages, loss_mask, token_weights, **given):
        penalties, stats = ppo_clip_loss(
            logprobs=logprobs,
            old_logprobs=old_logprobs,
            advantages=torch.zeros_like(advantages),
            loss_mask=loss_mask,
            token_weights=token_weights,
            **given,
        )
        ratio = torch.where(loss_mask > 0, logprobs - old_logprobs, 0).exp()  # [m, T]
        low = given["epsilon"]
        high = low if given["epsilon_high"] is None else given["epsilon_high"]
        value = objective(ratio, logprobs, advantages, low, high)  # [m, T]
        return penalties - (token_weights * value).sum(), stats

    return loss


# Importance weights of a sampler whose log-probs are not quite the old policy's.


def icepop(old_logprobs, sampled_logprobs, low: float = 0.5, high: float = 5.0) -> torch.Tensor:
    """k = pi_old / pi_sampler where low <= k <= high, else 0; any shape (arXiv 2510.18855)."""
    k = (old_logprobs - sampled_logprobs).exp()
    return torch.where((k >= low) & (k <= high), k, 0)


# Rewards.


def soft_overlong(lengths: torch.Tensor, longest: int, cache: int) -> torch.Tensor:
    """0 for up to longest - cache tokens, then falling to -1 at the longest (DAPO, Eq. 13)."""
    return ((longest - cache - lengths) / cache).clamp(-1, 0)


# Masks of single tokens.


@torch.no_grad()
def clip_cov_mask(logprobs, advantages, mask, fraction=2e-4, low=1.0, high=5.0, generator=None):
    """Clip-Cov, the baseline in Table 2: a 0 / 1 weight per token, used where CW-GRPO has its own.

    The paper only cites the rule (arXiv 2505.22617). As in that paper's code, the fraction is of
    all tokens of a minibatch: floor(fraction x tokens) of them (that code: at least 1) get 0, drawn
    uniformly among those with low < covariance < high; all if fewer. That code also leaves out
    tokens that PPO-clip has clipped. Shapes and errors are those of covariance_weights; 0 off the
    mask.
    """
    if logprobs.shape != mask.shape or logprobs.shape[:2] != advantages.shape:
        shapes = f"{[*logprobs.shape]}, {[*advantages.shape]}, {[*mask.shape]}"
        raise ValueError(f"not BGT, BG, BGT: {shapes}")
    tokens = mask.bool()
    adv = advantages.to(logprobs)[..., None].expand_as(logprobs)  # [B, G, T]
    # over the whole batch, [B, G, T]
    cov = (logprobs - logprobs[tokens].mean()) * (adv - adv[tokens].mean())
    eligible = (tokens & (cov > low) & (cov < high)).flatten().nonzero().squeeze(-1)  # [n]
    order = torch.randperm(len(eligible), generator=generator)  # the generator is the CPU's
    drawn = eligible[order.to(eligible.device)][: int(fraction * tokens.sum().item())]
    keep = tokens.to(logprobs.dtype).flatten()  # [B * G * T]
    keep[drawn] = 0
    return keep.view_as(logprobs)
