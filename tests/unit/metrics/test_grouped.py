"""GAUC against the AUC of each group by its definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.reference.ranking import pairwise_auc
from tfhybrid.errors import DataError
from tfhybrid.metrics import auc, gauc


def reference(groups, labels, scores, weights) -> float:
    areas, masses = [], []
    for group in np.unique(groups):
        own = (groups == group) & (weights > 0)
        if len(np.unique(labels[own])) == 2:
            areas.append(pairwise_auc(labels[own], scores[own], weights[own]))
            masses.append(weights[own].sum())
    return np.average(areas, weights=masses)


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 2**32 - 1), st.integers(1, 8), st.integers(1, 6), st.booleans())
def test_it_is_the_mean_of_the_groups_by_their_weight(seed, groups, grid, weighted) -> None:
    random = np.random.default_rng(seed)
    keys = random.integers(-groups, groups, 60) * 2**60
    labels = random.integers(0, 2, 60)
    keys[:2], labels[:2] = 0, [0, 1]
    scores = random.integers(0, grid + 1, 60) / grid  # many tie
    weights = random.integers(0, 4, 60).astype(float) if weighted else np.ones(60)
    weights[:2] = 1
    expected = reference(keys, labels, scores, weights)
    assert gauc(keys, labels, scores, weights) == pytest.approx(expected, abs=1e-12)


def test_one_group_is_plain_auc() -> None:
    random = np.random.default_rng(1)
    labels, scores = random.integers(0, 2, 1000), random.random(1000)
    assert gauc(np.zeros(1000), labels, scores) == pytest.approx(auc(labels, scores), abs=1e-12)


def test_groups_of_one_class_alone_are_undefined() -> None:
    with pytest.warns(RuntimeWarning, match="No group has both classes"):
        assert np.isnan(gauc([1, 1, 2], [0, 0, 1], [0.1, 0.2, 0.3]))


def test_every_sample_has_a_group() -> None:
    with pytest.raises(
        DataError, match=r"There must be a group for each of 2 samples. Received: 3"
    ):
        gauc([1, 2, 3], [0, 1], [0.1, 0.2])
