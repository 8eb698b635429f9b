"""Strings become keys inside the model, dense, ragged and sparse."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.support.keras_versions import needs_keras_3
from tfhybrid.data import string_keys
from tfhybrid.errors import ConfigError
from tfhybrid.layers import StringKeys

STRINGS = [["shoes", ""], ["schön", "shoes"]]


def test_keys_are_those_of_the_pipeline() -> None:
    dense = tf.constant(STRINGS)
    np.testing.assert_array_equal(StringKeys()(dense), string_keys(dense))
    ragged = tf.ragged.constant([["a"], [], ["b", "c"]])
    assert StringKeys()(ragged).to_list() == string_keys(ragged).to_list()
    sparse = tf.sparse.from_dense(dense)
    np.testing.assert_array_equal(StringKeys()(sparse).values, string_keys(sparse.values))


def test_in_a_functional_model() -> None:
    inputs = keras.Input((2,), dtype="string")
    keys = StringKeys()(inputs)
    assert (tuple(keys.shape), keys.dtype) == ((None, 2), "int64")
    model = keras.Model(inputs, keys)
    np.testing.assert_array_equal(model(tf.constant(STRINGS)), string_keys(STRINGS))
    data = tf.data.Dataset.from_tensor_slices(tf.constant(STRINGS)).batch(2)
    np.testing.assert_array_equal(model.predict(data, verbose=0), string_keys(STRINGS))


@needs_keras_3
def test_a_ragged_input() -> None:
    inputs = keras.Input((None,), dtype="string", ragged=True)
    layer = tfhybrid.layers.StringKeys()
    assert layer(inputs).ragged
    model = keras.Model(inputs, layer(inputs))
    ragged = tf.ragged.constant([["a"], [], ["b", "c"]])
    assert model(ragged).to_list() == string_keys(ragged).to_list()


def test_a_model_with_it_is_cloned() -> None:
    inputs = keras.Input((2,), dtype="string")
    copy = keras.models.clone_model(keras.Model(inputs, StringKeys(name="keys")(inputs)))
    np.testing.assert_array_equal(copy(tf.constant(STRINGS)), string_keys(STRINGS))


def test_numbers_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"needs strings\. Received: int64"):
        StringKeys()(tf.constant([1], tf.int64))


@needs_keras_3
def test_the_function_names_the_layer() -> None:
    with pytest.raises(ConfigError, match=r"tfhybrid\.layers\.StringKeys\(\)\(inputs\)"):
        string_keys(keras.Input((1,), dtype="string"))
