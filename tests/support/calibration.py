"""Samples to calibrate, and fits of them that share nothing with the code."""

from __future__ import annotations

import numpy as np

Columns = tuple[list[float], list[float]]


def samples(*, ties: bool, weighted: bool, count: int = 2000) -> np.ndarray:
    """Returns label, logit and weight of samples of a model that is too sure of itself."""
    random = np.random.default_rng(3)
    logits = random.normal(-1, 3, count)
    labels = random.random(count) < 1 / (1 + np.exp(-(0.4 * logits - 0.5)))
    if ties:
        logits = np.round(logits * 2) / 2
    weights = random.uniform(0.1, 5, count) if weighted else np.ones(count)
    return np.float32(np.stack([labels, logits, weights], axis=1))


def isotonic_reference(columns: np.ndarray) -> Columns:
    """Returns different logits, and the probability at each: pools are merged one by one."""
    of_logit: dict[float, list[float]] = {}
    for label, logit, weight in columns.astype(np.float64):
        sums = of_logit.setdefault(logit, [0.0, 0.0])
        sums[0] += weight * label
        sums[1] += weight
    pools: list[list[float]] = []  # positives, weight, number of logits
    for _, (positives, weight) in sorted(of_logit.items()):
        pools.append([positives, weight, 1])
        while len(pools) > 1 and pools[-2][0] / pools[-2][1] >= pools[-1][0] / pools[-1][1]:
            last = pools.pop()
            pools[-1] = [one + other for one, other in zip(pools[-1], last, strict=True)]
    fitted = [positives / weight for positives, weight, n in pools for _ in range(int(n))]
    return sorted(of_logit), fitted


def corners(logits: list[float], probabilities: list[float]) -> Columns:
    """Returns the first and the last logit of each level of a curve."""
    kept = [
        place
        for place, level in enumerate(probabilities)
        if place in (0, len(probabilities) - 1)
        or not probabilities[place - 1] == level == probabilities[place + 1]
    ]
    return [logits[place] for place in kept], [probabilities[place] for place in kept]


def platt_reference(columns: np.ndarray) -> np.ndarray:
    """Returns slope and intercept: Newton's method over all samples, from Platt's first line on."""
    labels, logits, weights = columns.T.astype(np.float64)
    positive, negative = weights[labels == 1].sum(), weights[labels == 0].sum()
    targets = np.where(labels == 1, (positive + 1) / (positive + 2), 1 / (negative + 2))
    inputs = np.stack([logits, np.ones_like(logits)], axis=1)
    line = np.array([0.0, np.log((positive + 1) / (negative + 1))])
    for _ in range(50):
        probabilities = 1 / (1 + np.exp(-inputs @ line))
        gradient = inputs.T @ (weights * (probabilities - targets))
        curvature = weights * probabilities * (1 - probabilities)
        line = line - np.linalg.solve(inputs.T @ (curvature[:, None] * inputs), gradient)
    return line
