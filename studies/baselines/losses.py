"""What other methods do with single tokens: their losses, masks and importance weights.

Shapes are those of common.ppo_clip_loss: m completions of a microbatch, T tokens. Where TRL 1.16 or
verl 0.9.1 computes something else, a docstring says so.
"""

import torch

import common

# Losses: the part of each token that is to be maximised, [m, T], from the ratio rho = pi / pi_old.
# logprobs, log_ratio, ratio and loss_mask are [m, T]; advantages are [m, 1] or [m, T].


def cispo(ratio, logprobs, advantages, epsilon, epsilon_high, **_):
    """sg(clip(rho, 1 - epsilon, 1 + epsilon_high)) A log pi, CISPO (arXiv 2506.13585).

    verl has the same. TRL clips above alone, and its epsilon_high is the limit itself.
    """
    return ratio.clamp(1 - epsilon, 1 + epsilon_high).detach() * advantages * logprobs


def dppo(ratio, logprobs, advantages, epsilon, epsilon_high, **_):
    """rho A, without the tokens whose probability has moved too far along A, DPPO (2602.04879).

    A token is dropped if A > 0 and pi - pi_old > epsilon_high, or if A < 0 and pi_old - pi >
    epsilon: the binary total variation, in probabilities, 0.2 for both by default. verl's gradient
    is the same up to its cap on rho, 20. The paper and prime-rl measure from the sampler's policy;
    here an inexact sampler's weights stand beside the loss, as in all methods.
    """
    moved = logprobs.detach().exp() * (1 - 1 / ratio.detach())  # [m, T], pi - pi_old
    far = torch.where(advantages > 0, moved > epsilon_high, moved < -epsilon)  # [m, T]
    return torch.where(far, 0, ratio * advantages)


def ipo(ratio, logprobs, sampled_logprobs, advantages, threshold=0.3, **_):
    """rho A, without the tokens whose probability has moved by more than 0.3, IPO (prime-rl).

    A token is dropped where |pi - mu| > threshold, whatever the sign of A; mu is the sampler's
    policy. prime-rl has pi / mu in place of rho. Here an inexact sampler's weight stands beside it.
    """
    far = (logprobs.detach().exp() - sampled_logprobs.exp()).abs() > threshold  # [m, T]
    return torch.where(far, 0, ratio * advantages)


def up(ratio, logprobs, advantages, epsilon, **_):
    """A log pi where A > 0, and PPO-clip's A max(rho, 1 - epsilon) elsewhere, UP (2607.06987).

    A success is neither clipped nor weighed by rho. The paper prints pi / sg(pi) for log pi, which
    has the same gradient.
    """
    clipped = ratio.clamp(min=1 - epsilon)  # [m, T]
    return torch.where(advantages > 0, logprobs, clipped) * advantages


def dro(log_ratio, logprobs, advantages, coef=0.05, **_):
    """A log pi - coef / 2 (log rho)^2, a soft trust region of both signs, DRO (2405.19107).

    As in Tinker, with the coefficient of its example. The paper learns a value function for A.
    """
    return advantages * logprobs - coef / 2 * log_ratio.square()


def sapo(ratio, advantages, tau=1.0, tau_negative=1.05, **_):
    """(4 / tau) sigmoid(tau (rho - 1)) A, a soft clip, SAPO (arXiv 2511.20347).

    The slope at rho = 1 is A. tau_negative stands for tau where A <= 0; its slope decays faster.
    TRL and verl have the same, in GRPO's mean over tokens and then over responses.
    """
    tau = torch.full_like(advantages, tau_negative).masked_fill(advantages > 0, tau)
    return 4 / tau * torch.sigmoid(tau * (ratio - 1)) * advantages


def kl_cov(log_ratio, ratio, logprobs, advantages, loss_mask, fraction=2e-4, coef=1.0, **_):
    """rho A, and -coef |log rho| where log pi and A covary most, KL-Cov (arXiv 2505.22617).

    The covariance is (log pi - mean) (A - mean). As in the paper's code and in verl, the means and
    the fraction of tokens, one or more, are those of a microbatch of one rank, and nothing is
    clipped. The penalty's slope is 0 at rho = 1: it needs several updates for each rollout.
    """
    tokens = loss_mask > 0  # [m, T]
    with torch.no_grad():
        centred = [
            x - (x * tokens).sum() / tokens.sum().clamp(min=1)
            for x in (logprobs, advantages.expand_as(logprobs))
        ]
        covariance = torch.where(tokens, centred[0] * centred[1], -torch.inf).flatten()  # [m * T]
        highest = covariance.topk(max(1, int(fraction * tokens.sum()))).indices
        penalised = torch.zeros_like(covariance).index_fill(0, highest, 1).view_as(logprobs)
    return ratio * advantages - coef * penalised * log_ratio.abs()


LOSSES = {loss.__name__: loss for loss in (cispo, dppo, ipo, up, dro, sapo, kl_cov)}


def unbiased_k3(ratio, logprobs, ref_logprobs):
    """rho (pi_ref / pi - log(pi_ref / pi) - 1), whose gradient is that of KL(pi || pi_ref).

    DeepSeek-V3.2 (arXiv 2512.02556). rho has a gradient, as in TRL, where this is the default. In
    verl 0.9.1 "k3+" is another correction: it takes the gradient of (log(pi_ref / pi))^2 / 2.
    """
    log_ref_ratio = ref_logprobs - logprobs  # [m, T]
    return ratio * (log_ref_ratio.expm1() - log_ref_ratio)


def off_policy_mask(log_ratio, advantages, loss_mask, threshold):
    """0 where A < 0 and the response's mean of log(pi_old / pi) is above the threshold, else 1.

    DeepSeek-V3.2 (arXiv 2512.02556). log_ratio is log(pi / pi_old). The KL penalty is not masked.
    TRL measures from the sampler where it has its log-probs. verl 0.9.1 has no such mask.
    """
    lengths = loss_mask.sum(1, keepdim=True).clamp(min=1)  # [m, 1]
    drift = -(loss_mask * log_ratio.detach()).sum(1, keepdim=True) / lengths  # [m, 1], in nats
    return 1 - ((advantages < 0) & (drift > threshold)).to(log_ratio)


def loss_with(objective=None, off_policy_threshold=None, bias_correction_kl=False):
    """Return common.ppo_clip_loss with another objective, a mask of responses, or another KL.

    An objective of LOSSES stands in place of the clipped minimum; clip_low and clip_high are then
    0. The entropy bonus stays.
    """

    def loss(*, sampled_logprobs, importance=1.0, **terms):
        if terms["epsilon_high"] is None:
            terms["epsilon_high"] = terms["epsilon"]
        logprobs, advantages, loss_mask = (
            terms[name] for name in ("logprobs", "advantages", "loss_mask")
        )  # [m, T] each, or advantages [m, 1]
        log_ratio = torch.where(loss_mask > 0, logprobs - terms["old_logprobs"], 0)  # [m, T]
        # as in ppo_clip_loss: one that overflowed would give NaN
        hidden = (advantages >= 0) & (log_ratio > 80)  # [m, T]
        ratio, added = torch.where(hidden, 80, log_ratio).exp(), 0.0
        if off_policy_threshold is not None:
            mask = off_policy_mask(log_ratio, advantages, loss_mask, off_policy_threshold)
            terms["advantages"] = mask * advantages
        if objective is not None:
            ratios = dict(log_ratio=log_ratio, ratio=ratio, sampled_logprobs=sampled_logprobs)
            added = -importance * objective(**ratios, **terms)  # [m, T]
            terms["advantages"] = torch.zeros_like(advantages)
        if bias_correction_kl:
            ref_logprobs = torch.where(loss_mask > 0, terms["ref_logprobs"], logprobs.detach())
            added = added + terms["beta"] * unbiased_k3(ratio, logprobs, ref_logprobs)  # [m, T]
            terms["beta"] = 0.0
        rest, stats = common.ppo_clip_loss(importance=importance, **terms)
        return rest + (terms["token_weights"] * added).sum(), stats

    return loss


def icepop(old_logprobs, sampled_logprobs, low: float = 0.5, high: float = 5.0) -> torch.Tensor:
    """k = pi_old / pi_sampler where low <= k <= high, else 0; any shape (arXiv 2510.18855).

    As every importance weight, it multiplies the term of the advantage alone, not KL and entropy.
    """
    k = (old_logprobs - sampled_logprobs).exp()
    return torch.where((k >= low) & (k <= high), k, 0)


# Masks of single tokens.


@torch.no_grad()
def clip_cov_mask(logprobs, advantages, mask, fraction=2e-4, low=1.0, high=5.0, generator=None):
    """Return 0 for the tokens that Clip-Cov detaches, and 1 for the others; 0 off the mask.

    CW-GRPO's paper (Table 2) only cites the rule (arXiv 2505.22617). Here floor(fraction x tokens)
    tokens of a minibatch get 0, drawn uniformly among those with low < covariance < high; all if
    fewer. The means of the covariance are those of the minibatch. That paper's code takes the
    means, the fraction, and at least one token from each microbatch of a GPU, and leaves out tokens
    that PPO-clip has clipped. The shapes are those of covariance_weights.
    """
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


def high_entropy_mask(entropies, mask, share=0.2):
    """Return 1 for the share of tokens with the highest entropy, else 0: 80/20 (2506.01939).

    entropies, mask [B, G, T] of a minibatch. Tokens at the quantile 1 - share are kept. A dropped
    token counts in the loss's mean, as in the paper and in TRL. It keeps its KL penalty and entropy
    bonus; TRL drops the bonus, too, and takes each microbatch by itself.
    """
    tokens = mask.bool()
    least = entropies[tokens].quantile(1 - share) if tokens.any() else torch.inf
    return (tokens & (entropies >= least)).to(mask)


# Advantages and baselines of single tokens.


def distillation(teacher_logprobs, logprobs, mask):
    """log pi_teacher - log pi of each token, on-policy distillation (arXiv 2306.13649).

    All are [N, T], logprobs by the policy that wrote the completions. Its mean is minus the
    estimate of KL(pi || pi_teacher). NeMo RL and Tinker have the same; prime-rl takes log pi from
    each update.
    """
    return mask * (teacher_logprobs - logprobs)


def otb(advantages, logprobs, sharper_logprobs, mask):
    """A less its mean weighed by W_t, at each token t of a prompt's group, OTB (arXiv 2602.07078).

    advantages [B, G]; logprobs, sharper_logprobs and mask [B, G, T] -> [B, G, T]. W_t is the sum
    over j <= t of 1 - 2 pi_j + sum(pi^2), the squared slope of log pi_j in the logits. With l the
    logits and o the token, logprobs are log softmax(l)[o], and sharper_logprobs are
    log softmax(2 l)[o], so that sum(pi^2) = pi_o^2 / softmax(2 l)[o].

    GRPO's A with --no_scale_rewards gives the same as the paper's rewards. Where one response alone
    is left, the result is 0; verl keeps its reward there unless handle_zero_tail is off.
    """
    squares = (2 * logprobs - sharper_logprobs).exp()  # [B, G, T]
    W = mask * (mask * (1 - 2 * logprobs.exp() + squares)).cumsum(2)  # [B, G, T]
    A = advantages[..., None]  # [B, G, 1]
    total = W.sum(1, keepdim=True)  # [B, 1, T]
    baseline = (A * W).sum(1, keepdim=True) / torch.where(total > 0, total, 1)  # [B, 1, T]
    return mask * (A - baseline)
