"""Observations add up to what NumPy and scikit-learn's definition say of all rows at once."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tfhybrid.stream.weights.observed import Observed, quantile


@pytest.mark.parametrize("scale", [1.0, 1e-3, 30.0])
def test_the_auc_of_parts_is_that_of_all(scale: float):
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 3000)
    scores = (random.normal(size=3000) + labels).astype(np.float32) * np.float32(scale)
    total = Observed()
    for part in np.array_split(np.arange(3000), 7):
        said = json.loads(json.dumps(Observed.of_scores(scores[part], labels[part]).to_json()))
        total += Observed.from_json(said, len(part))
    positive, negative = scores[labels == 1], scores[labels == 0]
    wins = (positive[:, None] > negative).mean() + (positive[:, None] == negative).mean() / 2
    assert total.auc == pytest.approx(wins, abs=2e-3)  # scores are rounded
    assert (total.rows, total.judged) == (3000, 3000)


def test_equal_scores_count_half_and_one_class_says_nothing():
    assert Observed.of_scores(np.array([0.0, -0.0, 1.0, 1.0]), np.array([0, 1, 0, 1])).auc == 0.5
    assert Observed.of_scores(np.array([0.1, 0.2]), np.array([1, 1])).auc is None
    assert Observed().auc is None


def test_many_times_become_coarser_and_lose_no_row():
    times = np.arange(100_000, 104_000) + 0.5
    seen = Observed.of_times(np.append(times, np.nan))
    assert seen.rows == 4001
    assert sum(seen.times.values()) == 4000
    assert len(seen.times) <= 512
    assert quantile(seen.times, 104_000, 0.5) == pytest.approx(2000, abs=16)
    assert quantile(seen.times, 104_000, 0.99) == pytest.approx(3960, abs=16)
