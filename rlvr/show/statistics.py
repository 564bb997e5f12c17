"""How a weight matrix has changed, the power law of pass@k, and the covariances of CW-GRPO."""

import numpy as np
import torch


def rank1_statistics(delta_weight):
    """Return how close to rank 1 the output head's change [m, n] by RL is (section 4.2).

    {r1: s1^2 / sum s^2, ratio: s1 / s2, srank: least k with s1 + .. + sk >= 0.99 sum s} of its
    singular values s. Without any change: 0, 1 and 0.
    """
    if not delta_weight.any():
        return {"r1": 0.0, "ratio": 1.0, "srank": 0}
    if delta_weight.device.type == "mps":  # a Mac's GPU has no float64
        delta_weight = delta_weight.cpu()
    # The singular values of a large head would take a minute. Their squares are the eigenvalues of
    # the Gram matrix, in float64 and added up by blocks of rows.
    m, n = delta_weight.shape
    tall = delta_weight if m >= n else delta_weight.T
    largest = tall.abs().max()  # without it, the squares of a small change would underflow
    gram = 0.0
    for rows in tall.split(8192):
        rows = rows.double() / largest
        gram = gram + rows.T @ rows  # [min(m, n), min(m, n)]
    squares = torch.linalg.eigvalsh(gram).flip(0)
    squares = squares.clamp(min=1e-16 * squares[0])  # what is below that is rounding
    s = (squares / squares[0]).sqrt()  # [min(m, n)], falling
    srank = 1 + (s.cumsum(0) < 0.99 * s.sum()).sum().item()
    return {"r1": 1 / s.square().sum().item(), "ratio": (1 / s[1]).item(), "srank": srank}


def fit_pass_at_k(ks: list[int], values: list[float]) -> dict[str, float]:
    """Return fit_a, fit_b, fit_c of pass@k = exp(-a (k + c)^-b) (FADE, section 12).

    For each c on a grid, log(-log pass@k) = log a - b log(k + c) is a line; the best c has the
    least squared error. {} for fewer than 3 values strictly between 0 and 1.
    """
    points = [(k, value) for k, value in zip(ks, values, strict=True) if 0 < value < 1]
    if len(points) < 3:
        return {}
    k, value = np.array(points).T
    fits = []
    for c in np.geomspace(0.01, 101, 1000) - 1:
        slope, intercept = np.polyfit(np.log(k + c), np.log(-np.log(value)), 1)
        fitted = np.exp(-np.exp(intercept + slope * np.log(k + c)))
        fits.append((np.square(fitted - value).sum(), intercept, slope, c))
    _, intercept, slope, c = min(fits)
    return {"fit_a": float(np.exp(intercept)), "fit_b": float(-slope), "fit_c": float(c)}


@torch.no_grad()
def covariance_statistics(logprobs, advantages, mask, weights, means="tokens"):
    """Return the covariances' metrics (Table 1, Figure 3); arguments as in covariance_weights.

    covariance_{positive,negative}_top_X%: the least extreme value among the X% most extreme of that
    sign; covariance_top_1%_share: the part of sum |c| in the 1% largest |c|; effective_tokens:
    (sum w)^2 / sum w^2. X% of n tokens is rounded up. Floats; 0 if there is nothing to measure.
    """
    tokens = mask.bool()
    logp = torch.where(tokens, logprobs, 0)  # [B, G, T]
    adv = torch.where(tokens, advantages.to(logp)[..., None], 0)  # [B, G, T]
    lengths = tokens.sum(2, keepdim=True)  # [B, G, 1]
    share = tokens.to(logp) / lengths.sum(1, keepdim=True)  # [B, G, T], of a token in the means
    if means != "tokens":
        share = tokens.to(logp) / lengths.clamp(min=1) / (lengths > 0).sum(1, keepdim=True)
    centre = (share * logp).sum((1, 2), keepdim=True)  # [B, 1, 1]
    if means == "own":
        centre = logp.sum(2, keepdim=True) / lengths  # [B, G, 1], NaN without tokens
    adv = adv - (share * adv).sum((1, 2), keepdim=True)
    cov = ((logp - centre) * adv)[tokens]  # [tokens]
    statistics = {}
    for name, sign in (("positive", 1), ("negative", -1)):
        side = (sign * cov)[sign * cov > 0].sort(descending=True).values  # [n]
        for per_10k in (1, 100, 2000, 4000, 10_000):
            last = -(-len(side) * per_10k // 10_000) - 1  # index of the ceil(n X%)-th largest
            value = sign * side[last].item() if len(side) else 0.0
            statistics[f"covariance_{name}_top_{per_10k / 100:g}%"] = value
    size, used = cov.abs().sort(descending=True).values, weights[tokens]  # [tokens]
    share = size[: -(-len(size) // 100)].sum() / size.sum()
    statistics["covariance_top_1%_share"] = share.item() if size.any() else 0.0
    effective = used.sum() ** 2 / (used**2).sum()
    statistics["effective_tokens"] = effective.item() if used.any() else 0.0
    return statistics
