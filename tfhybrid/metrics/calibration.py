"""Metrics of predicted probabilities: normalized entropy and calibration."""

from __future__ import annotations

import warnings

import numpy as np
import numpy.typing as npt

from tfhybrid.metrics.binary import checked_samples, log_loss


def normalized_entropy(
    labels: npt.ArrayLike, probabilities: npt.ArrayLike, weights: npt.ArrayLike | None = None
) -> float:
    """Computes log loss relative to always predicting the rate of positives (He et al., 2014).

    A value below 1 is better than knowing only the base rate. Unlike log loss, it can be compared
    between data with different base rates.

    Args:
        labels: 0 or 1 per sample, `[n]` or `[n, 1]`.
        probabilities: Predicted probability of label 1.
        weights: Weight per sample, not negative. Defaults to 1 each.

    Returns:
        The quotient; nan, with a `RuntimeWarning`, if only one class has weight.

    Raises:
        DataError: As for `log_loss`.

    Example:

    >>> round(normalized_entropy([0, 0, 1, 1], [0.1, 0.2, 0.7, 0.9]), 3)
    0.285
    """
    loss = log_loss(labels, probabilities, weights)
    labels, probabilities, weights = checked_samples(labels, probabilities, weights)
    positives, total = float(weights @ labels), float(weights.sum())
    if positives in (0, total):
        return _undefined("Normalized entropy")
    rate = positives / total
    return loss / -float(rate * np.log(rate) + (1 - rate) * np.log1p(-rate))


def calibration(
    labels: npt.ArrayLike, probabilities: npt.ArrayLike, weights: npt.ArrayLike | None = None
) -> float:
    """Computes predicted clicks divided by actual clicks: 1 is best, above 1 predicts too many.

    Args:
        labels: 0 or 1 per sample, `[n]` or `[n, 1]`.
        probabilities: Predicted probability of label 1.
        weights: Weight per sample, not negative. Defaults to 1 each.

    Returns:
        The quotient; nan, with a `RuntimeWarning`, if no positive has weight.

    Raises:
        DataError: As for `auc`.

    Example:

    >>> calibration([0, 1, 0, 1], [0.5, 0.5, 0.5, 1.0])
    1.25
    """
    labels, probabilities, weights = checked_samples(labels, probabilities, weights)
    positives = float(weights @ labels)
    return float(weights @ probabilities) / positives if positives else _undefined("Calibration")


def _undefined(name: str) -> float:
    message = f"{name} is undefined for these classes and weights: nan."
    warnings.warn(message, RuntimeWarning, stacklevel=3)
    return float("nan")
