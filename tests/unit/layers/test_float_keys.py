"""Keys that are fed as floats to an Input of integers."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tfhybrid.layers import float_keys

pytestmark = pytest.mark.usefixtures("job")


def model_of(**kind) -> keras.Model:
    inputs = keras.Input((2,), dtype="int64", name="item", **kind)
    layer = tfhybrid.layers.Embedding(tfhybrid.TableConfig(2, combiner="sum"), table="items")
    model = keras.Model(inputs, keras.layers.Dense(1)(layer(inputs)))
    model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.SGD(0.1)), "mse")
    return model


def keys_of(model: keras.Model) -> set[int]:
    (layer,) = (layer for layer in model.layers if isinstance(layer, tfhybrid.layers.Embedding))
    return {int(key) for block in layer.table.blocks() for key in block.keys}


def test_small_keys_are_trained_with_a_warning(caplog, monkeypatch) -> None:
    monkeypatch.setattr(float_keys, "_warned", set())
    model = model_of()
    model.fit(np.array([[1.0, 2.0**24 - 1]]), np.ones((1, 1)), epochs=2, verbose=0)
    assert keys_of(model) == {1, 2**24 - 1}
    warnings = [record.getMessage() for record in caplog.records if "fed as" in record.message]
    assert len(warnings) == 1
    assert "'items' are fed as float32, which holds only integers below 2**24" in warnings[0]


@pytest.mark.parametrize("key", [2.0**24 + 1, -(2.0**24), np.nan, np.inf])
def test_keys_that_floats_round_are_refused(key) -> None:
    model = model_of()
    batch = np.array([[1.0, key]])
    refused = pytest.raises(tf.errors.InvalidArgumentError, match="must be integers below 2")
    with refused:
        model.fit(batch, np.ones((1, 1)), verbose=0)
    with refused:
        model.predict(batch, verbose=0)
    assert keys_of(model) == set()


def test_float64_of_a_dataset_is_exact_up_to_its_own_limit() -> None:
    model = model_of()
    batch = (np.array([[2.0**53 - 1, 2.0**40 + 1]]), np.ones((1, 1)))
    model.fit(tf.data.Dataset.from_tensors(batch), verbose=0)
    assert keys_of(model) == {2**53 - 1, 2**40 + 1}


def test_integers_and_keys_computed_from_floats_are_not_checked(caplog, monkeypatch) -> None:
    monkeypatch.setattr(float_keys, "_warned", set())
    model = model_of()
    model.fit(np.array([[1, 2**60 + 1]]), np.ones((1, 1)), verbose=0)
    assert keys_of(model) == {1, 2**60 + 1}
    layer = tfhybrid.layers.Embedding(tfhybrid.TableConfig(2, combiner="sum"), table="buckets")
    bucket = tf.function(lambda price: layer(tf.cast(tf.floor(price * 10.0), tf.int64)))
    bucket(tf.constant([[1e9]]))
    assert not [record for record in caplog.records if "fed as" in record.message]
