"""Normalized entropy and calibration against their definitions."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.reference.ranking import plain_log_loss
from tfhybrid.errors import DataError
from tfhybrid.metrics import calibration, normalized_entropy

LABELS = np.array([0, 1, 0, 0, 1, 0])
PROBABILITIES = np.array([0.1, 0.6, 0.3, 0.05, 0.9, 0.2])
WEIGHTS = np.array([1.0, 2, 0, 3, 1, 1])


def test_the_base_rate_itself_has_entropy_one_and_is_calibrated() -> None:
    rate = np.full(6, LABELS.mean())
    assert normalized_entropy(LABELS, rate) == pytest.approx(1)
    assert calibration(LABELS, rate) == pytest.approx(1)


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_they_are_what_their_definitions_say(weights) -> None:
    rate = np.full(6, np.average(LABELS, weights=weights))
    base = plain_log_loss(LABELS, rate, weights)
    loss = plain_log_loss(LABELS, PROBABILITIES, weights)
    found = normalized_entropy(LABELS, PROBABILITIES, weights)
    assert found == pytest.approx(loss / base, rel=1e-9)
    mass = np.ones(6) if weights is None else weights
    expected = (mass * PROBABILITIES).sum() / (mass * LABELS).sum()
    assert calibration(LABELS, PROBABILITIES, weights) == pytest.approx(expected)


@pytest.mark.parametrize("metric", [normalized_entropy, calibration])
def test_without_a_click_they_are_undefined(metric) -> None:
    with pytest.warns(RuntimeWarning, match="undefined"):
        assert np.isnan(metric([0, 0], [0.5, 0.5]))


@pytest.mark.parametrize("metric", [normalized_entropy, calibration])
def test_samples_are_checked(metric) -> None:
    with pytest.raises(DataError, match=r"Labels must be 0 or 1. Received: 2"):
        metric([0, 2], [0.5, 0.5])
