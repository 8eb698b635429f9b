"""Fits of probabilities to logits: Platt's line and the isotonic curve, in NumPy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tfhybrid.errors import DataError
from tfhybrid.metrics.binary import checked_samples, sigmoid

Floats = npt.NDArray[np.float64]
_MAX_STEPS = 100


class ScoredClasses(NamedTuple):
    """Weight of both classes at each logit.

    Attributes:
        logits: Different logits, float64, ascending.
        positives: Weight of the samples with label 1, by logit.
        negatives: Weight of the samples with label 0, by logit.
    """

    logits: Floats
    positives: Floats
    negatives: Floats


def scored_classes(samples: npt.NDArray[np.float32]) -> ScoredClasses:
    """Adds up the weights of both classes at each logit. Samples without weight do not count.

    The sums have the same bits for every order of the samples.

    Args:
        samples: Label, logit and weight of each sample, `[samples, 3]`.

    Raises:
        DataError: A label is not 0 or 1, a logit is not finite, a weight is negative or not finite,
            or a class has no weight.
    """
    labels, logits, weights = checked_samples(*samples.T) if len(samples) else np.empty((3, 0))
    of_class = {label: float(weights[labels == label].sum()) for label in (0, 1)}
    if not all(of_class.values()):
        raise DataError(
            "Calibration needs samples of both classes. "
            f"Received: weight {of_class[0]:g} of label 0 and {of_class[1]:g} of label 1."
        )
    order = np.lexsort((weights, labels, logits))
    order = order[weights[order] > 0]
    labels, logits, weights = labels[order], logits[order], weights[order]
    distinct, group = np.unique(logits, return_inverse=True)
    sums = (np.bincount(group, weights * part, distinct.size) for part in (labels, 1 - labels))
    return ScoredClasses(distinct, *(each.astype(np.float64) for each in sums))


def platt_line(classes: ScoredClasses) -> tuple[float, float]:
    """Returns slope and intercept of the logits that fit the labels best (Platt, 1999).

    As in the paper, the targets are `(P + 1) / (P + 2)` and `1 / (N + 2)` instead of 1 and 0, with
    `P` and `N` the weights of the classes. So the line is finite, even if a logit separates the
    classes. The minimum of the log loss is found by Newton's method with halved steps (Lin, Lin and
    Weng, 2007). If all logits are equal, the slope is 1.

    Args:
        classes: Weights of both classes, each above 0.
    """
    positive, negative = classes.positives.sum(), classes.negatives.sum()
    targets = classes.positives * (positive + 1) / (positive + 2) + classes.negatives / (
        negative + 2
    )
    weights = classes.positives + classes.negatives
    mean = np.sum(weights * classes.logits) / weights.sum()
    spread = np.sqrt(np.sum(weights * (classes.logits - mean) ** 2) / weights.sum())
    start = np.array([0.0, np.log(targets.sum() / (weights - targets).sum())])
    if classes.logits.size == 1:
        return 1.0, float(start[1] - mean)
    scaled = (classes.logits - mean) / spread
    slope, intercept = _minimized(start, scaled, targets, weights)
    return float(slope / spread), float(intercept - slope * mean / spread)


def _minimized(line: Floats, scaled: Floats, targets: Floats, weights: Floats) -> Floats:
    """Returns the slope and intercept with the least log loss, from a first line on."""

    def loss(line: Floats) -> float:
        logits = line[0] * scaled + line[1]
        return float(np.sum(weights * np.logaddexp(0.0, logits) - targets * logits))

    current = loss(line)
    for _ in range(_MAX_STEPS):
        probabilities = sigmoid(line[0] * scaled + line[1])
        # Sums of NumPy instead of dot products: their bits do not depend on the number of threads.
        errors = weights * probabilities - targets
        curvature = weights * probabilities * (1 - probabilities)
        gradient = np.array([np.sum(errors * scaled), np.sum(errors)])
        mixed = np.sum(curvature * scaled)
        hessian = np.array([[np.sum(curvature * scaled**2), mixed], [mixed, np.sum(curvature)]])
        step = np.linalg.solve(hessian + 1e-12 * np.eye(2), gradient)
        following = loss(line - step)
        # Near the minimum, losses differ by less than they are rounded.
        while following > current + 1e-12 * abs(current) and np.abs(step).max() > 1e-12:
            step /= 2
            following = loss(line - step)
        line, current = line - step, following
        if np.abs(step).max() <= 1e-12 * max(1.0, np.abs(line).max()):
            break
    return line


def isotonic_curve(classes: ScoredClasses) -> tuple[Floats, Floats]:
    """Returns the ascending curve of probabilities that fits the labels best, as its corners.

    Neighbouring logits whose rates of positives do not ascend are pooled until all do. A pool is
    flat, from its first logit to its last one.

    Args:
        classes: Weights of both classes, each above 0.

    Returns:
        Logits, ascending, and the probability at each.
    """
    first = np.arange(classes.logits.size)
    positives, weights = classes.positives, classes.positives + classes.negatives
    while True:
        rates = positives / weights
        # All of a run that does not ascend ends up in one pool, whatever is pooled before.
        starts = np.flatnonzero(np.concatenate([[True], rates[1:] > rates[:-1]]))
        if starts.size == rates.size:
            break
        first = first[starts]
        positives, weights = np.add.reduceat(positives, starts), np.add.reduceat(weights, starts)
    last = np.concatenate([first[1:], [classes.logits.size]]) - 1
    corners = np.stack([first, last], axis=1).ravel()
    kept = np.concatenate([[True], corners[1:] > corners[:-1]])
    return classes.logits[corners[kept]], np.repeat(rates, 2)[kept]
