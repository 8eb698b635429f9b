"""Calibration over the samples of all ranks, whatever the share of each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.support.calibration import corners, isotonic_reference, platt_reference, samples
from tfhybrid.errors import DataError, StoreError
from tfhybrid.layers import Calibration
from tfhybrid.layers.calibration_curves import isotonic_curve, platt_line, scored_classes

pytestmark = [pytest.mark.usefixtures("job"), pytest.mark.world_size]


def model() -> keras.Model:
    logit = keras.Input((1,), name="logit")
    return keras.Model({"logit": logit}, keras.layers.Identity()(logit))


def share(columns: np.ndarray, first: int) -> Iterator[tuple]:
    """The first rank has `first` samples, none or all among them; the last has the rest."""
    rank, size = tfhybrid.rank(), tfhybrid.size()
    edges = [0, *([first] * (size - 1)), len(columns)]
    mine = columns[edges[rank] : edges[rank + 1]]
    for begin in range(0, len(mine), 128):
        labels, logits, weights = mine[begin : begin + 128].T
        yield {"logit": logits[:, np.newaxis]}, labels, weights


@pytest.mark.parametrize("first", [0, 611, 2000], ids=["none", "a part", "all"])
@pytest.mark.parametrize("weighted", [False, True], ids=["counts", "weights"])
def test_ranks_with_uneven_shares_fit_all_samples(first, weighted) -> None:
    """To the bit what one pass over all samples gives, and what a reference gives."""
    columns = samples(ties=True, weighted=weighted)
    curve = Calibration.fitted(model(), share(columns, first), "isotonic").get_config()["curve"]
    assert curve == [each.tolist() for each in isotonic_curve(scored_classes(columns))]
    np.testing.assert_allclose(curve, corners(*isotonic_reference(columns)), rtol=1e-12)
    line = Calibration.fitted(model(), share(columns, first), "platt").get_config()
    assert (line["slope"], line["intercept"]) == platt_line(scored_classes(columns))
    np.testing.assert_allclose(
        (line["slope"], line["intercept"]), platt_reference(columns), rtol=1e-9
    )


@pytest.mark.parametrize("method", ["isotonic", "platt"])
def test_a_class_that_no_rank_has_stops_all(method) -> None:
    columns = samples(ties=True, weighted=False)
    with pytest.raises(DataError, match="samples of both classes"):
        Calibration.fitted(model(), share(columns[columns[:, 0] == 0], 611), method)


def test_classes_may_be_on_different_ranks() -> None:
    columns = samples(ties=True, weighted=False)
    columns = columns[np.argsort(columns[:, 0], kind="stable")]
    negatives = int((columns[:, 0] == 0).sum())
    curve = Calibration.fitted(model(), share(columns, negatives), "isotonic").get_config()["curve"]
    np.testing.assert_array_equal(curve, corners(*isotonic_reference(columns)))


def test_a_rank_whose_data_fail_stops_all() -> None:
    def broken() -> Iterator[tuple]:
        if tfhybrid.rank() == 0:
            raise InterruptedError
        yield from share(samples(ties=True, weighted=False), 611)

    with pytest.raises(InterruptedError if tfhybrid.rank() == 0 else StoreError):
        Calibration.fitted(model(), broken(), "platt")


def test_a_model_that_ranks_have_trained_is_served_with_the_rates_of_all(directory: Path) -> None:
    """Stock TensorFlow predicts as many clicks as the held-out samples of all ranks have."""
    log = tfhybrid.data.ClickLog({"user": 50, "item": 20}, seed=1)
    table = tfhybrid.TableConfig(dim=4)
    trained = tfhybrid.models.deepfm(["user", "item"], table=table, hidden=(8,))
    trained.compile(
        tfhybrid.DistributedOptimizer(keras.optimizers.Adam(0.05)),
        keras.losses.BinaryCrossentropy(from_logits=True),
    )
    train = tfhybrid.data.Batches(log.clicks(0, 2048), 128, seed=1)
    trained.fit(
        train.dataset(epochs=None),
        epochs=2,
        steps_per_epoch=train.steps_per_epoch,
        shuffle=False,
        verbose=0,
        callbacks=[tfhybrid.callbacks.BroadcastVariables()],
    )
    held_out = tfhybrid.data.Batches(log.clicks(2048, 1025), 64, seed=1, shuffle=False)
    layer = Calibration.fitted(trained, held_out.dataset(), "isotonic")
    calibrated = keras.Model(trained.input, layer(trained.output))
    folder = tfhybrid.export.saved_model(calibrated, directory)
    samples = log.clicks(2048, 1025)
    served = tf.saved_model.load(str(folder)).signatures["serving_default"]
    logits = served(**{name: tf.constant(keys[:, None]) for name, keys in samples.features.items()})
    clicks = float(tf.reduce_sum(tf.sigmoid(logits["output_0"])))
    assert clicks == pytest.approx(float(samples.label.sum()), rel=1e-3)
