"""Metrics by their definitions, sample by sample and pair by pair."""

from __future__ import annotations

import numpy as np


def pairwise_auc(
    labels: np.ndarray, scores: np.ndarray, weights: np.ndarray | None = None
) -> float:
    """Returns the share of (positive, negative) pairs in which the positive scores higher.

    Ties count one half, a pair the product of its weights (Hanley and McNeil 1982).
    """
    weights = np.ones(len(labels)) if weights is None else weights
    positive = np.asarray(labels, bool)
    above, below = scores[positive][:, np.newaxis], scores[~positive]
    pairs = weights[positive][:, np.newaxis] * weights[~positive]
    won = (above > below) + 0.5 * (above == below)
    return float((won * pairs).sum() / pairs.sum())


def plain_log_loss(
    labels: np.ndarray, probabilities: np.ndarray, weights: np.ndarray | None = None
) -> float:
    """Returns the mean negative log-likelihood; 0 and 1 are moved inside by an epsilon."""
    epsilon = np.finfo(probabilities.dtype).eps
    inside = np.clip(probabilities, epsilon, 1 - epsilon).astype(np.float64)
    losses = -np.where(labels == 1, np.log(inside), np.log1p(-inside))
    return float(np.average(losses, weights=weights))
