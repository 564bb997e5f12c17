"""How a weight matrix has changed."""

import torch


def rank1_statistics(delta_weight):
    """How close to rank 1 the output head's change [m, n] since before RL is (section 4.2).

    {r1: s1^2 / sum s^2, ratio: s1 / s2, srank: least k with s1 + .. + sk >= 0.99 sum s} of its
    singular values s. Without any change: 0, 1 and 0.
    """
    if not delta_weight.any():
        return {"r1": 0.0, "ratio": 1.0, "srank": 0}
    if min(delta_weight.shape) < 512:
        s = torch.linalg.svdvals(delta_weight)  # [min(m, n)], falling
    else:
        # The singular values of a large head would take a minute. Their squares are the eigenvalues
        # of the Gram matrix, in float64 and added up by blocks of rows.
        m, n = delta_weight.shape
        tall = delta_weight if m >= n else delta_weight.T
        largest = tall.abs().max()
        gram = 0.0
        for rows in tall.split(8192):
            rows = rows.double() / largest
            gram = gram + rows.T @ rows  # [min(m, n), min(m, n)]
        squares = torch.linalg.eigvalsh(gram).flip(0)
        s = squares.clamp(min=1e-16 * squares[0]).sqrt()  # what is below that is rounding
    s = s / s[0]  # so that the squares of a small change do not underflow
    srank = 1 + (s.cumsum(0) < 0.99 * s.sum()).sum().item()
    return {"r1": 1 / s.square().sum().item(), "ratio": (1 / s[1]).item(), "srank": srank}
