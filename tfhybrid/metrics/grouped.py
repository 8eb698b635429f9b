"""AUC within groups, such as the samples of a user: the quality of a ranking for that user."""

from __future__ import annotations

import warnings

import numpy as np
import numpy.typing as npt

from tfhybrid.errors import DataError
from tfhybrid.metrics.binary import checked_samples


def gauc(
    groups: npt.ArrayLike,
    labels: npt.ArrayLike,
    scores: npt.ArrayLike,
    weights: npt.ArrayLike | None = None,
) -> float:
    """Computes the mean AUC of groups, weighted by their samples (Zhou et al., 2018, DIN).

    Groups with only one class have no AUC and are left out. It sorts once, which takes O(n log n)
    for any number of groups.

    Args:
        groups: Key per sample, `[n]` or `[n, 1]`, of any type that can be sorted.
        labels: 0 or 1 per sample, `[n]` or `[n, 1]`.
        scores: Finite score per sample, any monotone scale.
        weights: Weight per sample, not negative. Defaults to 1 each.

    Returns:
        The mean, in `[0, 1]`; nan, with a `RuntimeWarning`, if no group has both classes.

    Raises:
        DataError: As for `auc`, or the numbers of groups and samples differ.

    Example:

    >>> gauc([7, 7, 9, 9, 9], [0, 1, 1, 0, 0], [0.1, 0.2, 0.3, 0.3, 0.1])
    0.85
    """
    samples = checked_samples(labels, scores, weights)
    keys = np.asarray(groups).ravel()
    if keys.size != samples[0].size:
        raise DataError(
            f"There must be a group for each of {samples[0].size} samples. Received: {keys.size}."
        )
    order = np.lexsort((samples[1], keys))
    ordered, (label, score, weight) = keys[order], (column[order] for column in samples)
    new_group = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    new_tie = new_group | np.concatenate([[True], score[1:] != score[:-1]])
    tie = np.cumsum(new_tie) - 1  # samples with the same group and score
    group = (np.cumsum(new_group) - 1)[new_tie]
    positives = np.bincount(tie, weight * label)
    negatives = np.bincount(tie, weight * (1 - label))
    below = np.cumsum(negatives) - negatives
    below -= below[np.searchsorted(group, group)]  # sum over earlier groups
    wins = np.bincount(group, positives * (below + 0.5 * negatives))
    pairs = np.bincount(group, positives) * np.bincount(group, negatives)
    mass = np.bincount(group, positives + negatives)
    defined = pairs > 0
    if not defined.any():
        warnings.warn("No group has both classes: nan.", RuntimeWarning, stacklevel=2)
        return float("nan")
    return float(np.average(wins[defined] / pairs[defined], weights=mass[defined]))
