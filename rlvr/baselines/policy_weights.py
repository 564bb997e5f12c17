"""The policy weights that FADE's section 8 compares: rewards r [B, G] -> advantages [B, G].

Rewards are 0 and 1. Each docstring has the gradient masses (m_S, m_F) of successes and failures,
or one mass for both; p is the success rate of the prompt's group, and q = 1 - p.
"""

import inspect
from functools import partial

import torch


def reinforce(rewards):
    """2 r - 1. Masses p and q."""
    return 2 * rewards - 1


def mean(rewards):
    """r - r_mean, as in Dr.GRPO. Mass p q."""
    return rewards - rewards.mean(1, keepdim=True)


def grpo(rewards):
    """(r - r_mean) / std; 0 where all rewards are equal. Mass sqrt(p q)."""
    std = rewards.std(1, correction=0, keepdim=True)  # [B, 1]
    return torch.where(std > 0, (rewards - rewards.mean(1, keepdim=True)) / std, 0.0)


def skew_r(rewards):
    """(r - r_mean) std. Mass p q sqrt(p q)."""
    std = rewards.std(1, correction=0, keepdim=True)  # [B, 1]
    return (rewards - rewards.mean(1, keepdim=True)) * std


def t2t(rewards, lengths, alpha):
    """GRPO of the rewards 1 - alpha p L for a success and alpha q L for a failure (8.2, T2T).

    lengths L [B, G] are shares of the longest that is allowed. Mass p q C / std(rewards), where
    C = 1 - alpha (p mean(L of successes) + q mean(L of failures)) (Eqs. 12-14).
    """
    p = rewards.mean(1, keepdim=True)  # [B, 1]
    rewards = torch.where(rewards == 1, 1 - alpha * p * lengths, alpha * (1 - p) * lengths)
    mixed = rewards.amax(1, keepdim=True) > rewards.amin(1, keepdim=True)  # [B, 1]
    std = rewards.std(1, correction=0, keepdim=True)  # [B, 1]
    return torch.where(mixed, (rewards - rewards.mean(1, keepdim=True)) / std, 0.0)


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
    """Analytic pass@k (8.4.2); with mix, p times it + q times GRPO (8.4.3).

    Mass p sqrt((1 - R) / R), where R is the group's pass@k. Mixed, it is p (p A_S(k) + q A_S(1)),
    where A_S(k) is the advantage of a success under pass@k.
    ValueError unless k is a whole number from 1 to G.
    """
    G = rewards.shape[1]
    if k not in range(1, G + 1):
        raise ValueError(f"k must be a whole number from 1 to G = {G}, got {k}")
    p = rewards.mean(dim=1, keepdim=True)  # [B, 1]
    drawn = torch.arange(k, device=rewards.device)  # [k]
    left = ((1 - rewards).sum(dim=1, keepdim=True) - drawn).clamp(min=0)  # [B, k], failures left
    miss = (left / (G - drawn)).prod(dim=1, keepdim=True)  # [B, 1], 1 - pass@k = C(F, k) / C(G, k)
    scale = (miss / (1 - miss)).sqrt() / (1 - p)  # [B, 1]
    if mix:
        scale = p * scale + ((1 - p) / p).sqrt()
    return torch.where((p > 0) & (p < 1), scale * (rewards - p), 0.0)


def scaled_power(rewards, alpha=2.0, easy=False):
    """C q^(alpha-1) (r - r_mean), or with p for q if easy. Mass C p q^alpha or C p^alpha q (4.3).

    C lets the largest mass be 1/4, as it is for alpha = 1 and C = 1 (Eq. 27).
    """
    p = rewards.mean(1, keepdim=True)  # [B, 1]
    focus = p if easy else 1 - p
    C = (1 + alpha) ** (1 + alpha) / (4 * alpha**alpha)
    return C * torch.where(focus > 0, focus, 1) ** (alpha - 1) * (rewards - p)


def asym_power(rewards, alpha_s, alpha_f):
    """q^alpha_s for a success, -p^alpha_f for a failure. Masses p q^alpha_s and p^alpha_f q."""
    p = rewards.mean(1, keepdim=True)  # [B, 1]
    return torch.where(rewards == 1, (1 - p) ** alpha_s, -(p**alpha_f))


def shifted(rewards, delta=0.01):
    """r - r_mean - delta, AsymRL. Masses p (q - delta) and q (p + delta)."""
    return rewards - rewards.mean(1, keepdim=True) - delta


def quantile(rewards, tau):
    """r less 0 where p <= tau, and less 1 where p > tau (8.6).

    Only for tau = 1/2 is that the group's tau-quantile. Masses p and 0 where p <= tau, else 0 and
    q.
    """
    baseline = rewards.mean(1, keepdim=True) > tau  # [B, 1]
    return rewards - baseline.to(rewards)


def median(rewards):
    """r less the group's median, MC-GRPO: the quantile at 1/2."""
    return rewards - rewards.median(1, keepdim=True).values


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


def ha_dw(rewards, baseline, scale=1.0):
    """scale A exp(-sgn(A) (r_mean - baseline)) with A = r - r_mean, HA-DW (8.10).

    Masses scale p q e^(baseline - p) and scale p q e^(p - baseline). The paper prints f p q and
    p q, where f stands for scale times the exponential.
    """
    mean = rewards.mean(1, keepdim=True)  # [B, 1]
    advantages = rewards - mean
    return scale * advantages * torch.exp(-advantages.sign() * (mean - baseline))


def relu(rewards):
    """r - r_mean where that is positive, else 0. Masses p q and 0."""
    return (rewards - rewards.mean(1, keepdim=True)).clamp(min=0)


BASELINES = {
    "reinforce": reinforce,
    "mean": mean,
    "grpo": grpo,
    "skew_r": skew_r,
    "t2t": t2t,
    "maxrl": maxrl,
    "pass_k": pass_k,
    "analytic_pass_k": analytic_pass_k,
    "mix_pass_k": partial(analytic_pass_k, mix=True),
    "scaled_power": scaled_power,
    "easy_power": partial(scaled_power, easy=True),
    "asym_power": asym_power,
    "shifted": shifted,
    "quantile": quantile,
    "median": median,
    "binary_contrastive": binary_contrastive,
    "power_norm": power_norm,
    "softmax": softmax,
    "logmeanexp": logmeanexp,
    "ha_dw": ha_dw,
    "relu": relu,
}


def read_arguments(text: str) -> dict[str, float]:
    """The numbers in a text such as "k=4,alpha=0.5" by name; ValueError for another form."""
    found = {}
    for pair in filter(None, text.split(",")):
        if pair.count("=") != 1:
            raise ValueError(f"{pair!r} is not of the form name=value")
        name, value = pair.split("=")
        found[name] = int(value) if value.isdigit() else float(value)
    return found


def try_weight(weight: partial, G: int) -> None:
    """TypeError where an argument is missing or unknown.

    ValueError where the groups of G with 0, 1 ... G successes get no finite advantages, or only 0.
    With G = 0 they are not tried.
    """
    inspect.signature(weight.func).bind("rewards", **weight.keywords)
    if G:
        advantages = weight(torch.ones(G + 1, G).tril(-1))
        if advantages.is_complex() or not advantages.isfinite().all():
            raise ValueError("some advantages are no finite numbers")
        if not advantages.any():
            raise ValueError("all advantages are 0")
