"""AUC and log loss of binary labels: exact, in NumPy, equal to scikit-learn's."""

from __future__ import annotations

import warnings

import numpy as np
import numpy.typing as npt

from tfhybrid.errors import DataError

Floats = npt.NDArray[np.float64]


def sigmoid(logits: npt.NDArray[np.floating]) -> Floats:
    """Returns the probabilities of logits, computed in float64 so that large ones do not overflow.

    Args:
        logits: Logits of any shape.
    """
    return np.exp(-np.logaddexp(0.0, -logits.astype(np.float64)))


def auc(
    labels: npt.ArrayLike, scores: npt.ArrayLike, weights: npt.ArrayLike | None = None
) -> float:
    """Computes the area under the ROC curve: how likely a positive scores above a negative.

    Ties count one half, as in `sklearn.metrics.roc_auc_score`. It is exact, without buckets, and
    sorts once, which takes O(n log n).

    Args:
        labels: 0 or 1 per sample, `[n]` or `[n, 1]`.
        scores: Finite score per sample, any monotone scale (logits or probabilities).
        weights: Weight per sample, not negative. Defaults to 1 each.

    Returns:
        AUC in `[0, 1]`; nan, with a `RuntimeWarning`, if only one class has weight (as in
        scikit-learn, because a small share of clicks is not a programming error).

    Raises:
        DataError: No samples, unequal sizes, a label other than 0 and 1, a score or weight that
            is not finite, or a negative weight.

    Example:

    ```python
    auc([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])  # 0.75
    ```
    """
    labels, scores, weights = checked_samples(labels, scores, weights)
    distinct, group = np.unique(scores, return_inverse=True)
    positives = np.bincount(group, weights * labels, distinct.size)
    negatives = np.bincount(group, weights * (1 - labels), distinct.size)
    pairs = positives.sum() * negatives.sum()
    if pairs == 0:
        warnings.warn("AUC is undefined with one class only: nan.", RuntimeWarning, stacklevel=2)
        return float("nan")
    below = np.cumsum(negatives) - negatives
    return float(np.sum(positives * (below + 0.5 * negatives)) / pairs)


def log_loss(
    labels: npt.ArrayLike, probabilities: npt.ArrayLike, weights: npt.ArrayLike | None = None
) -> float:
    """Computes the mean negative log-likelihood of the labels, in nats.

    Args:
        labels: 0 or 1 per sample, `[n]` or `[n, 1]`.
        probabilities: Predicted probability of label 1. They are kept one machine epsilon of
            their own dtype away from 0 and 1, as in `sklearn.metrics.log_loss`.
        weights: Weight per sample, not negative. Defaults to 1 each.

    Returns:
        The weighted mean; nan, with a `RuntimeWarning`, if all weights are 0.

    Raises:
        DataError: As for `auc`, or a probability outside `[0, 1]`.

    Example:

    ```python
    log_loss([0, 1], [0.1, 0.8])  # 0.16425
    ```
    """
    probabilities = np.asarray(probabilities)
    dtype = probabilities.dtype if probabilities.dtype.kind == "f" else np.dtype(np.float64)
    labels, probabilities, weights = checked_samples(labels, probabilities, weights)
    outside = probabilities[(probabilities < 0) | (probabilities > 1)]
    if outside.size:
        raise DataError(f"Probabilities must be within [0, 1]. Received: {outside[0]}.")
    if not weights.any():
        warnings.warn("Log loss is undefined without weight: nan.", RuntimeWarning, stacklevel=2)
        return float("nan")
    epsilon = float(np.finfo(dtype).eps)
    clipped = np.clip(probabilities, epsilon, 1 - epsilon)
    losses = -np.where(labels == 1, np.log(clipped), np.log1p(-clipped))
    return float(np.average(losses, weights=weights))


def checked_samples(
    labels: npt.ArrayLike, predictions: npt.ArrayLike, weights: npt.ArrayLike | None
) -> tuple[Floats, Floats, Floats]:
    """Flattens and checks labels, predictions and weights.

    Raises:
        DataError: No samples, unequal sizes, a label other than 0 and 1, a prediction or weight
            that is not finite, or a negative weight.
    """
    labels = np.asarray(labels, np.float64).ravel()
    predictions = np.asarray(predictions, np.float64).ravel()
    weights = np.ones_like(labels) if weights is None else np.asarray(weights, np.float64).ravel()
    sizes = (labels.size, predictions.size, weights.size)
    if len(set(sizes)) > 1:
        raise DataError(
            f"Labels, predictions and weights must have one size. Received: {sizes} samples."
        )
    if labels.size == 0:
        raise DataError("A metric needs at least one sample. Received: none.")
    if not np.isin(labels, (0, 1)).all():
        odd = labels[~np.isin(labels, (0, 1))][0]
        raise DataError(f"Labels must be 0 or 1. Received: {odd}.")
    if not np.isfinite(predictions).all():
        bad = ~np.isfinite(predictions)
        raise DataError(
            f"Predictions must be finite. Received: {bad.sum()} of {bad.size} that are not, "
            f"the first is {predictions[bad][0]} at sample {bad.argmax()}."
        )
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise DataError("Weights must be finite and not negative. Received: one that is not.")
    return labels, predictions, weights
