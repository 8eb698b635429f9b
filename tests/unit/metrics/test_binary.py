"""AUC and log loss against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.reference.ranking import pairwise_auc, plain_log_loss
from tfhybrid.errors import DataError
from tfhybrid.metrics.binary import auc, log_loss


@st.composite
def samples(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels of both classes, probabilities on a coarse grid (so that many tie), weights."""
    size = draw(st.integers(2, 60))
    labels = draw(st.lists(st.integers(0, 1), min_size=size, max_size=size))
    labels[:2] = [0, 1]
    grid = draw(st.sampled_from([1, 2, 10, 1000]))
    steps = draw(st.lists(st.integers(0, grid), min_size=size, max_size=size))
    weights = draw(st.lists(st.integers(1, 9), min_size=size, max_size=size))
    return np.array(labels), np.array(steps) / grid, np.array(weights, np.float64)


@settings(deadline=None, max_examples=50)
@given(samples())
def test_auc_is_the_share_of_pairs_in_order(
    data: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    labels, scores, weights = data
    assert auc(labels, scores) == pytest.approx(pairwise_auc(labels, scores), abs=1e-12)
    assert auc(labels, scores, weights) == pytest.approx(
        pairwise_auc(labels, scores, weights), abs=1e-12
    )


@settings(deadline=None, max_examples=50)
@given(samples(), st.sampled_from([np.float32, np.float64]))
def test_log_loss_is_defined_at_zero_and_one(
    data: tuple[np.ndarray, np.ndarray, np.ndarray], dtype: type
) -> None:
    labels, probabilities, weights = data
    probabilities = probabilities.astype(dtype)
    assert log_loss(labels, probabilities) == pytest.approx(
        plain_log_loss(labels, probabilities), rel=1e-6, abs=1e-6
    )
    assert log_loss(labels, probabilities, weights) == pytest.approx(
        plain_log_loss(labels, probabilities, weights), rel=1e-6, abs=1e-6
    )


def test_auc_of_many_float32_scores() -> None:
    random = np.random.default_rng(1)
    labels = random.random(20_000) < 0.01
    scores = (random.normal(size=20_000) + labels).round(3).astype(np.float32)
    assert auc(labels, scores) == pytest.approx(pairwise_auc(labels, scores), abs=1e-12)


def test_auc_is_one_half_when_all_scores_tie() -> None:
    assert auc([0, 1, 1], [3.0, 3.0, 3.0]) == 0.5


def test_auc_ignores_samples_without_weight() -> None:
    assert auc([0, 1, 1], [0.5, 0.9, 0.1], [1, 1, 0]) == 1.0


def test_columns_may_be_two_dimensional() -> None:
    assert auc([[0], [1]], [[0.1], [0.2]]) == 1.0


@pytest.mark.parametrize("label", [0, 1])
def test_auc_of_one_class_is_nan_with_a_warning(label: int) -> None:
    with pytest.warns(RuntimeWarning, match="one class"):
        assert np.isnan(auc([label, label], [0.1, 0.2]))


def test_log_loss_of_one_class_is_defined() -> None:
    assert log_loss([1, 1], [0.5, 0.5]) == pytest.approx(np.log(2))


def test_log_loss_without_weight_is_nan_with_a_warning() -> None:
    with pytest.warns(RuntimeWarning, match="without weight"):
        assert np.isnan(log_loss([0, 1], [0.1, 0.2], [0, 0]))


@pytest.mark.parametrize("metric", [auc, log_loss])
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (([], []), "at least one sample"),
        (([0, 1], [0.1]), r"one size\. Received: \(2, 1, 2\)"),
        (([0, 2], [0.1, 0.2]), r"0 or 1\. Received: 2\.0"),
        (([0, 1], [0.1, np.nan]), r"finite\. Received: 1 of 2 .* nan at sample 1"),
        (([0, 1], [np.inf, 0.1]), r"finite\. Received: 1 of 2 .* inf at sample 0"),
        (([0, 1], [0.1, 0.2], [1, -1]), "not negative"),
        (([0, 1], [0.1, 0.2], [1, np.nan]), "Weights must be finite"),
    ],
)
def test_bad_samples_are_named(metric, columns, message) -> None:
    with pytest.raises(DataError, match=message):
        metric(*columns)


def test_log_loss_refuses_logits() -> None:
    with pytest.raises(DataError, match=r"within \[0, 1\]\. Received: -1\.5"):
        log_loss([0, 1], [-1.5, 2.0])
