"""The shifted power law of pass@k."""

import numpy as np


def fit_pass_at_k(ks: list[int], values: list[float]) -> dict[str, float]:
    """fit_a, fit_b, fit_c of pass@k = exp(-a (k + c)^-b) (FADE, section 12).

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
