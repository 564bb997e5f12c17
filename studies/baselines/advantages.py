"""Advantages that the papers compare theirs with, and others of the field, as pure functions.

They take rewards r [B, G] of 0 and 1, unless a docstring says otherwise, and return advantages
[B, G]. p is the success rate of the prompt's group, and q = 1 - p. The first part is from FADE's
section 8, where a docstring also has the gradient masses (m_S, m_F) of successes and failures, or
one mass for both. Then come the control experiments (Table 1) and baselines (Table 2) of A-GRAE.
"""

from functools import partial

import torch

from fade import fade_advantage
from grpo import grpo_advantage


def reinforce(rewards):
    """2 r - 1. Masses p and q."""
    return 2 * rewards - 1


def skew_r(rewards):
    """(r - r_mean) std. Mass p q sqrt(p q)."""
    std = rewards.std(1, correction=0, keepdim=True)  # [B, 1]
    return (rewards - rewards.mean(1, keepdim=True)) * std


def t2t(rewards, shares, alpha):
    """GRPO of the rewards 1 - alpha p L for a success and alpha q L for a failure (8.2, T2T).

    shares L [B, G] are lengths over the longest that is allowed. Mass p q C / std(rewards), where
    C = 1 - alpha (p mean(L of successes) + q mean(L of failures)) (Eqs. 12-14).
    """
    p = rewards.mean(1, keepdim=True)  # [B, 1]
    shaped = torch.where(rewards == 1, 1 - alpha * p * shares, alpha * (1 - p) * shares)  # [B, G]
    return grpo_advantage(shaped)


def maxrl(rewards):
    """r / r_mean - 1; 0 where none succeeded. Mass q."""
    mean = rewards.mean(1, keepdim=True)  # [B, 1]
    return torch.where(mean > 0, rewards / mean - 1, 0.0)


def pass_k(rewards):
    """1 for the only success of its group, else 0: pass@k with k = G.

    Masses 1 / G and 0 with one success, else 0; over many groups p q^(G-1), p the policy's own.
    """
    return rewards * (rewards.sum(1, keepdim=True) == 1)


def analytic_pass_k(rewards, k, mix=False):
    """The advantage of pass@k over all subsets of the group, analytic pass@k (8.4.2).

    Mass p sqrt((1 - R) / R), where R is the group's pass@k. With mix it is p times this plus q
    times GRPO (8.4.3), of mass p (p A_S(k) + q A_S(1)), where A_S(k) is the advantage of a success
    under pass@k.
    ValueError unless k is a whole number from 1 to G.
    """
    G = rewards.shape[1]
    if k not in range(1, G + 1):
        raise ValueError(f"k must be a whole number from 1 to G = {G}, got {k}")
    p = rewards.mean(dim=1, keepdim=True)  # [B, 1]
    drawn = torch.arange(k, device=rewards.device)  # [k]
    left = (1 - rewards).sum(dim=1, keepdim=True) - drawn  # [B, k], failures left
    miss = (left / (G - drawn)).prod(dim=1, keepdim=True)  # [B, 1], 1 - pass@k = C(F, k) / C(G, k)
    scale = (miss / (1 - miss)).sqrt() / (1 - p)  # [B, 1]
    if mix:
        scale = p * scale + ((1 - p) / p).sqrt()
    return torch.where((p > 0) & (p < 1), scale * (rewards - p), 0.0)


def asym_power(rewards, alpha_s, alpha_f):
    """q^alpha_s for a success, -p^alpha_f for a failure. Masses p q^alpha_s and p^alpha_f q."""
    p = rewards.mean(1, keepdim=True)  # [B, 1]
    return torch.where(rewards == 1, (1 - p) ** alpha_s, -(p**alpha_f))


def shifted(rewards, delta=0.01):
    """r - r_mean - delta, AsymRL. Masses p (q - delta) and q (p + delta)."""
    return rewards - rewards.mean(1, keepdim=True) - delta


def quantile(rewards, tau):
    """r less 0 where p <= tau, and less 1 where p > tau (8.6), the group's quantile for tau = 1/2.

    Masses p and 0 where p <= tau, else 0 and q.
    """
    baseline = rewards.mean(1, keepdim=True) > tau  # [B, 1]
    return rewards - baseline.to(rewards)


def binary_contrastive(rewards):
    """1 for a success, -p / q for a failure. Mass p."""
    p = rewards.mean(1, keepdim=True)  # [B, 1]
    return torch.where(rewards == 1, rewards, -p / (1 - p))


def power_norm(rewards, gamma):
    """(r - r_mean) / variance^gamma; 0 where all rewards are equal. Mass (p q)^(1 - gamma)."""
    variance = rewards.var(1, correction=0, keepdim=True)  # [B, 1]
    centred = rewards - rewards.mean(1, keepdim=True)  # [B, G]
    return torch.where(variance > 0, centred / variance**gamma, 0.0)


def softmax(rewards, beta):
    """softmax(beta r) - 1 / G. Mass c p q / (1 + c p) / G, where c = e^beta - 1."""
    return (beta * rewards).softmax(1) - 1 / rewards.shape[1]


def logmeanexp(rewards, beta):
    """lme(r) - lme(all but r_i), where lme(r) = log(mean(exp(beta r))) / beta, beta > 0 (8.9).

    Mass of softmax divided by beta, for large G.
    """
    G = rewards.shape[1]
    own = torch.eye(G, dtype=rewards.dtype, device=rewards.device)  # [G, G]
    weight_of_others = ((1 - own) / (G - 1)).log()  # [G, G], -inf on the diagonal
    others = (beta * rewards[:, None] + weight_of_others).logsumexp(2)  # [B, G]
    total = (beta * rewards).logsumexp(1, True) - torch.full_like(rewards, G).log()  # [B, G]
    return (total - others) / beta


def relu(rewards):
    """r - r_mean where that is positive, else 0. Masses p q and 0."""
    return (rewards - rewards.mean(1, keepdim=True)).clamp(min=0)


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
    """W-REINFORCE (Table 2): success_weight for a success, -1 for a failure."""
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
    advantages = grpo_advantage(value)  # [B, G]
    p = rewards.mean(1, keepdim=True)  # [B, 1]
    of_success = 0.4 + 1.1 * torch.sigmoid(10 * (0.75 - p))  # [B, 1], w(p)
    of_failure = 0.4 + 1.1 * torch.sigmoid(10 * (p - 0.25))  # [B, 1], w(1 - p)
    return advantages * torch.where(advantages > 0, of_success, of_failure)


def rloo(rewards):
    """r less the mean of the other rewards of its group, RLOO (arXiv 2402.14740); any rewards."""
    others = rewards.sum(1, keepdim=True) - rewards  # [B, G]
    return rewards - others / (rewards.shape[1] - 1)


def batch_std(rewards):
    """r - r_mean over the standard deviation of that in the batch, ScaleRL (arXiv 2510.13786).

    Any rewards [B, G], those of all ranks. The paper's A_std is that of the advantages. TRL's
    scale_rewards="batch" has the rewards' instead, which is larger by the spread of the r_mean.
    """
    centred = grpo_advantage(rewards, scale_rewards=False)  # [B, G]
    std = centred.std(correction=0)
    return torch.where(std > 0, centred / std, 0.0)


def gdpo(parts, weights):
    """Each reward's z-score in its group, added up and whitened in the batch, GDPO (2601.05242).

    parts [R, B, G] are R rewards of any kind, those of all ranks, and weights R numbers -> [B, G].
    TRL has the same up to its 1e-4, and to n - 1 in the deviations. verl weighs each response in
    the last mean and deviation by its length.
    """
    scores = torch.stack([w * grpo_advantage(r) for r, w in zip(parts, weights, strict=True)])
    total = scores.sum(0)  # [B, G]
    std = total.std(correction=0)
    return torch.where(std > 0, (total - total.mean()) / std, 0.0)


def named(sentence, function, **arguments):
    """Return the function with these arguments, and with a sentence of its own for --list."""
    with_sentence = partial(function, **arguments)
    with_sentence.__doc__ = sentence
    return with_sentence


# What --advantage takes: the functions of successes (1) and failures (0) ...
OF_SUCCESSES = {
    "power": named(
        "q^(alpha-1) (r - r_mean), Power alpha (4.3).", fade_advantage, alpha=2.0, delta=1.0
    ),
    "asym": named(
        "q for a success, -p / delta for a failure (4.2).", fade_advantage, alpha=1.0, delta=0.5
    ),
    "reinforce": reinforce,
    "mean": named("r - r_mean, as in Dr.GRPO. Mass p q.", grpo_advantage, scale_rewards=False),
    "skew_r": skew_r,
    "t2t": t2t,
    "maxrl": maxrl,
    "pass_k": pass_k,
    "analytic_pass_k": analytic_pass_k,
    "mix_pass_k": named(
        "p times analytic pass@k plus q times GRPO (8.4.3).", analytic_pass_k, mix=True
    ),
    "asym_power": asym_power,
    "shifted": shifted,
    "quantile": quantile,
    "median": named("r less the group's median, MC-GRPO: the quantile at 1/2.", quantile, tau=0.5),
    "binary_contrastive": binary_contrastive,
    "power_norm": power_norm,
    "softmax": softmax,
    "logmeanexp": logmeanexp,
    "relu": relu,
    "w_reinforce": w_reinforce_advantage,
    "grpo_lead": grpo_lead_advantage,
}
# ... the functions of any rewards ...
OF_REWARDS = {"rloo": rloo, "batch_std": batch_std, "gdpo": gdpo}
OF_THE_WHOLE_BATCH = ("batch_std", "gdpo")  # of all ranks
# ... and those of GRPO's advantages and the success rates.
CONTROLS = {
    "positive_dominant": "GRPO's A, times beta where A > 0",
    "negative_dominant": "GRPO's A, divided by beta where A > 0",
    "hard_focused": "GRPO's A times gamma / sqrt(p), for hard prompts",
    "easy_focused": "GRPO's A times gamma / sqrt(q), for easy prompts",
}
OF_ADVANTAGES = {
    name: named(f"{sentence} (A-GRAE, Table 1).", controlled_advantage, variant=name)
    for name, sentence in CONTROLS.items()
}
