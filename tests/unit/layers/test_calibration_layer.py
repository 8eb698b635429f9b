"""Calibration against NumPy: pool adjacent violators, Newton's method, and stock TensorFlow."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.support.calibration import corners, isotonic_reference, platt_reference, samples
from tfhybrid.errors import ConfigError, DataError
from tfhybrid.layers import Calibration
from tfhybrid.layers.calibration_curves import isotonic_curve, platt_line, scored_classes

pytestmark = pytest.mark.usefixtures("job")

EPSILON = float(np.finfo(np.float32).eps)


def model() -> keras.Model:
    logit = keras.Input((1,), name="logit")
    return keras.Model({"logit": logit}, keras.layers.Identity()(logit))


def batches(columns: np.ndarray) -> Iterable[tuple]:
    for part in np.array_split(columns, 3):
        labels, logits, weights = part.T
        yield {"logit": logits[:, np.newaxis]}, labels, weights


def logit_of(probabilities: np.ndarray) -> np.ndarray:
    kept = np.clip(probabilities, EPSILON, 1 - EPSILON)
    return np.log(kept / (1 - kept))


@pytest.mark.parametrize("weighted", [False, True], ids=["counts", "weights"])
@pytest.mark.parametrize("ties", [False, True], ids=["different logits", "ties"])
def test_an_isotonic_fit_pools_adjacent_violators(ties, weighted) -> None:
    columns = samples(ties=ties, weighted=weighted)
    points, probabilities = isotonic_curve(scored_classes(columns))
    expected_points, expected = corners(*isotonic_reference(columns))
    np.testing.assert_array_equal(points, expected_points)
    np.testing.assert_allclose(probabilities, expected, rtol=1e-12 if weighted else 0)
    layer = Calibration.fitted(model(), batches(columns), "isotonic")
    logits = np.linspace(-12, 12, 999, dtype=np.float32)
    served = logit_of(np.interp(logits.astype(np.float64), expected_points, expected))
    np.testing.assert_allclose(layer(logits), served, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("weighted", [False, True], ids=["counts", "weights"])
def test_a_line_of_platt_is_the_minimum_of_the_log_loss(weighted) -> None:
    columns = samples(ties=False, weighted=weighted)
    line = platt_line(scored_classes(columns))
    np.testing.assert_allclose(line, platt_reference(columns), rtol=1e-9)
    layer = Calibration.fitted(model(), batches(columns), "platt")
    logits = np.linspace(-12, 12, 99, dtype=np.float32)
    np.testing.assert_allclose(layer(logits), line[0] * logits + line[1], rtol=1e-6, atol=1e-6)


def test_a_line_that_separates_the_classes_is_finite() -> None:
    columns = np.float32([[0, -1, 1], [0, -3, 1], [1, 2, 1], [1, 1e6, 1]])
    line = platt_line(scored_classes(columns))
    labels, logits, _ = columns.T.astype(np.float64)
    targets = np.where(labels == 1, 3 / 4, 1 / 4)
    errors = 1 / (1 + np.exp(-(line[0] * logits + line[1]))) - targets
    assert abs(errors.sum()) < 1e-9
    assert abs((errors * logits).sum()) < 1e-3  # of logits up to a million


def test_equal_logits_are_shifted_to_the_rate_of_positives() -> None:
    columns = np.float32([[1, 3, 1], [0, 3, 1], [0, 3, 1], [0, 3, 1]])
    slope, intercept = platt_line(scored_classes(columns))
    rate = (2 / 3 + 3 / 5) / 4  # of Platt's targets
    assert slope == 1
    assert slope * 3 + intercept == pytest.approx(math.log(rate / (1 - rate)))
    layer = Calibration.fitted(model(), batches(columns), "isotonic")
    np.testing.assert_allclose(tf.sigmoid(layer(np.float32([-50, 3, 50]))), 0.25, rtol=1e-6)
    assert np.isnan(layer(np.float32([np.nan])))[0]


def test_a_pool_of_one_class_has_a_finite_logit() -> None:
    columns = np.float32([[0, -1, 1], [1, 1, 1]])
    layer = Calibration.fitted(model(), batches(columns), "isotonic")
    ends = layer(np.float32([-np.inf, -1, 0, 1, np.inf]))
    np.testing.assert_allclose(ends, logit_of(np.array([0, 0, 0.5, 1, 1])), atol=1e-6)
    assert np.isnan(layer(np.float32([np.nan])))[0]


@pytest.mark.parametrize("method", ["isotonic", "platt"])
def test_the_order_of_samples_changes_no_bit(method) -> None:
    columns = samples(ties=True, weighted=True)
    shuffled = np.random.default_rng(7).permutation(columns)
    one, other = (
        Calibration.fitted(model(), batches(each), method).get_config()
        for each in (columns, shuffled)
    )
    assert {**one, "name": ""} == {**other, "name": ""}


def test_samples_without_weight_do_not_count() -> None:
    columns = samples(ties=True, weighted=False)
    more = np.float32([[1, -30, 0], [0, 30, 0]])
    for fit in (isotonic_curve, platt_line):
        np.testing.assert_array_equal(
            np.asarray(fit(scored_classes(columns))),
            np.asarray(fit(scored_classes(np.concatenate([columns, more])))),
        )


@pytest.mark.parametrize("method", ["isotonic", "platt"])
def test_the_rate_of_negatives_moves_odds(method) -> None:
    """A tenth of the negatives, and then ten times as many: the odds are those of all."""
    columns = samples(ties=True, weighted=False)
    logits = np.linspace(-5, 5, 33, dtype=np.float32)
    plain = Calibration.fitted(model(), batches(columns), method)(logits)
    corrected = Calibration.fitted(model(), batches(columns), method, negative_rate=0.1)(logits)
    np.testing.assert_allclose(corrected, plain + math.log(0.1), atol=1e-6)
    if method == "isotonic":
        columns[:, 2] = np.where(columns[:, 0] == 0, 10, 1)
        everything = Calibration.fitted(model(), batches(columns), method)(logits)
        inside = np.abs(plain) < 10  # a pool of one class has no odds
        np.testing.assert_array_equal(np.sign(plain[~inside]), np.sign(everything[~inside]))
        pooled = np.isin(logits, scored_classes(columns).logits) & inside
        np.testing.assert_allclose(corrected[pooled], everything[pooled], atol=1e-5)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (np.empty((0, 3)), "Received: weight 0 of label 0 and 0 of label 1"),
        ([[1, 0.5, 1]], "Received: weight 0 of label 0 and 1 of label 1"),
        ([[0, 0.5, 1], [0, 1, 3], [1, 2, 0]], "Received: weight 4 of label 0 and 0 of label 1"),
        ([[0, np.nan, 1], [1, 1, 1]], "Predictions must be finite"),
        ([[0, np.inf, 1], [1, 1, 1]], "Predictions must be finite"),
        ([[0.5, 1, 1], [1, 1, 1]], "Labels must be 0 or 1"),
        ([[0, 1, -1], [1, 1, 1]], "Weights must be finite and not negative"),
    ],
    ids=["none", "one", "one class", "nan", "inf", "label", "weight"],
)
@pytest.mark.parametrize("method", ["isotonic", "platt"])
def test_samples_that_cannot_be_fitted_are_refused(columns, message, method) -> None:
    with pytest.raises(DataError, match=message):
        Calibration.fitted(model(), batches(np.float32(columns)), method)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"negative_rate": 0}, "negative_rate must be a fraction"),
        ({"negative_rate": 1.5}, "negative_rate must be a fraction"),
        ({"slope": math.nan}, "must be finite"),
        ({"intercept": math.inf}, "must be finite"),
        ({"curve": ([0, 0], [0.1, 0.2])}, "ascending logits"),
        ({"curve": ([0, 1], [0.2, 0.1])}, "ascending logits"),
        ({"curve": ([0, 1], [0.2, 1.1])}, "ascending logits"),
        ({"curve": ([], [])}, "ascending logits"),
        ({"curve": ([0, 1], [0.2])}, "ascending logits"),
    ],
)
def test_numbers_that_make_no_calibration_are_refused(options, message) -> None:
    with pytest.raises(ConfigError, match=message):
        Calibration(**options)


def test_a_model_of_several_outputs_and_unknown_methods_are_refused() -> None:
    logit = keras.Input((1,), name="logit")
    heads = {name: keras.layers.Identity(name=name)(logit) for name in ("click", "buy")}
    data = [({"logit": np.zeros((2, 1))}, {"click": np.eye(2, 1), "buy": np.eye(2, 1)})]
    with pytest.raises(DataError, match=r"one output.*Received: labels of the outputs \['click'"):
        Calibration.fitted(keras.Model({"logit": logit}, heads), data, "platt")
    with pytest.raises(ConfigError, match=r"'isotonic' or 'platt'\. Received: 'beta'"):
        Calibration.fitted(model(), data, "beta")
    with pytest.raises(ConfigError, match="negative_rate must be"):
        Calibration.fitted(model(), data, "platt", negative_rate=2)


def test_keras_copies_it() -> None:
    layer = Calibration(2, 1, curve=([-1, 0, 4], [0.1, 0.1, 0.5]), negative_rate=0.5, name="mine")
    copy = Calibration.from_config(layer.get_config())
    logits = tf.random.stateless_normal([7, 1], [1, 2])
    assert copy.name == "mine"
    np.testing.assert_array_equal(layer(logits), copy(logits))


@pytest.mark.parametrize("method", ["isotonic", "platt"])
def test_stock_tensorflow_serves_the_calibrated_model(method, tmp_path) -> None:
    table = tfhybrid.TableConfig(dim=4, initializer=tfhybrid.initializers.Uniform(-1, 1))
    trained = tfhybrid.models.deepfm(["user", "item"], table=table, hidden=(8,))
    trained.compile(
        tfhybrid.DistributedOptimizer(keras.optimizers.Adam(0.01)),
        keras.losses.BinaryCrossentropy(from_logits=True),
    )
    random = np.random.default_rng(1)
    keys = {name: random.integers(0, 40, (256, 1)) for name in ("user", "item")}
    labels = ((keys["user"] + keys["item"]) % 3 == 0).astype(np.float32)
    trained.fit(keys, labels, batch_size=64, epochs=8, verbose=0)
    layer = Calibration.fitted(trained, [(keys, labels)], method, negative_rate=0.25)
    calibrated = keras.Model(trained.input, layer(trained.output))
    plain, served = (
        tf.saved_model.load(
            str(tfhybrid.export.saved_model(each, tmp_path / each.name))
        ).signatures["serving_default"](**{name: tf.constant(rows) for name, rows in keys.items()})
        for each in (trained, calibrated)
    )
    # A curve may be steep: one that is fed with other last bits may return other digits.
    np.testing.assert_allclose(served["output_0"], layer(plain["output_0"]), atol=1e-6)
    assert np.ptp(served["output_0"]) > 1
