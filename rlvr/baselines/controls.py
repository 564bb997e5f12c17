"""What the papers compare their method with, beside GRPO.

Of A-GRAE's paper the control experiments (Table 1), and of its baselines (Table 2) W-REINFORCE
(arXiv 2506.01347) and GRPO-LEAD (Zhang and Zuo 2025, arXiv 2504.09696). Of CW-GRPO's paper Clip-Cov
(arXiv 2505.22617).
"""

import torch


def controlled_advantage(advantages, success_rate, variant, beta=10, gamma=0.5):
    """The control experiments, each of which breaks one symmetry of GRPO (section 4.1, Table 1).

    advantages [B, G], success_rate [B] -> [B, G]. By variant: "positive_dominant", beta A where
    A > 0; "negative_dominant", A / beta where A > 0; "hard_focused", gamma A / sqrt(p);
    "easy_focused", gamma A / sqrt(1 - p). ValueError for another variant.
    """
    if variant == "positive_dominant":
        return torch.where(advantages > 0, advantages * beta, advantages)
    if variant == "negative_dominant":
        return torch.where(advantages > 0, advantages / beta, advantages)
    p = success_rate.to(advantages.dtype).unsqueeze(1)  # [B, 1]
    mixed = (p > 0) & (p < 1)  # [B, 1]
    p = torch.where(mixed, p, 0.5)  # [B, 1], a stand-in: the paper omits the rescaling at 0 and 1
    if variant == "hard_focused":
        scale = gamma / p.sqrt()  # [B, 1]
    elif variant == "easy_focused":
        scale = gamma / (1 - p).sqrt()  # [B, 1]
    else:
        names = "positive_dominant, negative_dominant, hard_focused or easy_focused"
        raise ValueError(f"variant must be {names}; got {variant!r}")
    return advantages * torch.where(mixed, scale, 1.0)


def w_reinforce_advantage(rewards, success_weight=0.1):
    """W-REINFORCE (Table 2): success_weight for a success, -1 for a failure.

    rewards [B, G] in {0, 1} -> [B, G].
    """
    return torch.full_like(rewards, -1.0).masked_fill(rewards == 1, success_weight)


def grpo_lead_advantage(rewards, lengths):
    """GRPO-LEAD (Table 2): short or rare successes count more, and so do rare failures.

    A group that is all right has a gradient, too, wherever lengths differ, be it by a token.
    rewards [B, G] in {0, 1} and lengths [B, G], in tokens -> [B, G]. With z the standardised length
    among the group's successes, a success is worth exp(-0.05 z) and a failure -1. A is GRPO's
    advantage of these values. With p the success rate it is A w(p) where A > 0 and A w(1 - p)
    elsewhere, where w(p) = 0.4 + 1.1 / (1 + exp(10 (p - 0.75))).
    """
    success = rewards == 1  # [B, G]
    count = success.sum(1, keepdim=True).clamp(min=1)  # [B, 1]
    mean_length = (success * lengths).sum(1, keepdim=True) / count  # [B, 1]
    longer = torch.where(success, lengths - mean_length, 0)  # [B, G]
    spread = (longer.square().sum(1, keepdim=True) / count).sqrt()  # [B, 1]
    z = longer / torch.where(spread > 0, spread, 1)  # [B, G], 0 where all are equally long
    value = torch.where(success, (-0.05 * z).exp(), -1).to(rewards.dtype)  # [B, G]

    std = value.std(1, keepdim=True, correction=0)  # [B, 1]
    mixed = value.amax(1, keepdim=True) > value.amin(1, keepdim=True)  # [B, 1]
    advantages = (value - value.mean(1, keepdim=True)) / torch.where(mixed, std, 1)  # [B, G]
    advantages = torch.where(mixed, advantages, 0)  # [B, G]

    p = rewards.mean(1, keepdim=True)  # [B, 1]
    of_success = 0.4 + 1.1 * torch.sigmoid(10 * (0.75 - p))  # [B, 1], w(p)
    of_failure = 0.4 + 1.1 * torch.sigmoid(10 * (p - 0.25))  # [B, 1], w(1 - p)
    return advantages * torch.where(advantages > 0, of_success, of_failure)


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
