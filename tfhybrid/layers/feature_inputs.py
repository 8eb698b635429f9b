"""Conversion of a feature's input, dense, ragged or sparse, to keys."""

from __future__ import annotations

import logging
from typing import Any

import tensorflow as tf

from tfhybrid.config import TableConfig
from tfhybrid.errors import ConfigError
from tfhybrid.layers import float_keys
from tfhybrid.ops.lookup import FeatureKeys

_log = logging.getLogger("tfhybrid.layers")
_warned: set[str] = set()


def feature_keys(feature: str, config: TableConfig, inputs: Any, weights: Any) -> FeatureKeys:
    """Returns the keys of a feature, cut to the maximum length of its configuration.

    Args:
        feature: Name of the feature, for errors.
        config: Settings of the feature.
        inputs: Integer keys: a tensor, `tf.RaggedTensor` or `tf.SparseTensor`.
        weights: Weights of the keys, of the same kind and shape, or `None`.

    Raises:
        ConfigError: The keys are not int32 or int64, have the wrong shape for the combiner, or
            there are weights or sparse keys without a combiner.
        tf.errors.InvalidArgumentError: When the op runs, a sample does not have as many weights as
            keys, or keys that were fed as floats are too large for them.
    """
    with tf.control_dependencies(float_keys.checks_of(feature, inputs)):
        if config.combiner is None:
            return _one_by_one(feature, config, inputs, weights)
        return _in_bags(feature, config, inputs, weights)


def _in_bags(feature: str, config: TableConfig, inputs: Any, weights: Any) -> FeatureKeys:
    """Returns the keys of a feature with a combiner."""
    assert config.combiner is not None
    inputs, weights = in_order(inputs), in_order(weights)
    bags = _as_bags(feature, inputs)
    keys = cut(bags, config)
    splits = tf.cast(keys.row_splits, tf.int64)
    if weights is not None:
        of_keys = _as_bags(feature, weights)
        with tf.control_dependencies(_check_weights(feature, bags, of_keys)):
            checks = _check_columns(feature, inputs, weights)
        with tf.control_dependencies(checks):
            weights = tf.cast(cut(of_keys, config).values, tf.float32)
    return FeatureKeys(as_keys(feature, keys.values), config.combiner, splits, weights)


def in_order(inputs: Any) -> Any:
    """Returns a sparse tensor with its values in the order of rows and columns.

    TensorFlow does not demand an order, and a client of a SavedModel may send any.

    Args:
        inputs: Tensor of any kind; other kinds are returned unchanged.
    """
    # Only sorts what is out of order.
    return tf.sparse.reorder(inputs) if isinstance(inputs, tf.SparseTensor) else inputs


def _one_by_one(feature: str, config: TableConfig, inputs: Any, weights: Any) -> FeatureKeys:
    """Returns the keys of a feature without a combiner."""
    if weights is not None or isinstance(inputs, tf.SparseTensor):
        raise ConfigError(
            f"{'Weights' if weights is not None else 'A SparseTensor'} of feature '{feature}' "
            "need a combiner: TableConfig(combiner='sum', 'mean' or 'sqrtn'). Received: none"
        )
    if not isinstance(inputs, tf.RaggedTensor):
        return FeatureKeys(cut(as_keys(feature, inputs), config))
    ragged = cut(inputs, config)
    samples = ragged.nrows(tf.int64)
    return FeatureKeys(as_keys(feature, ragged.flat_values), ragged=ragged, samples=samples)


def _as_bags(feature: str, inputs: Any) -> tf.RaggedTensor:
    """Converts keys or weights to a ragged tensor, `[batch, (length)]`."""
    if not isinstance(inputs, tf.RaggedTensor | tf.SparseTensor):
        inputs = tf.convert_to_tensor(inputs)
        inputs = inputs[:, tf.newaxis] if inputs.shape.rank == 1 else inputs
    if inputs.shape.rank != 2:
        raise ConfigError(
            f"Keys of feature '{feature}', which has a combiner, must be [batch, length]. "
            f"Received: {inputs.shape}"
        )
    if isinstance(inputs, tf.RaggedTensor):
        return inputs
    if isinstance(inputs, tf.SparseTensor):
        # Not segment_ids_to_row_splits, which has no deterministic form on GPUs.
        row_numbers = tf.range(inputs.dense_shape[0] + 1)
        splits = tf.searchsorted(inputs.indices[:, 0], row_numbers, out_type=tf.int64)
        return tf.RaggedTensor.from_row_splits(inputs.values, splits, validate=False)
    batch, length = tf.unstack(tf.shape(inputs, tf.int64))
    splits = tf.range(batch + 1) * length
    return tf.RaggedTensor.from_row_splits(tf.reshape(inputs, [-1]), splits, validate=False)


def _check_weights(
    feature: str, keys: tf.RaggedTensor, weights: tf.RaggedTensor
) -> list[tf.Operation]:
    """Returns assertions that fail if a sample does not have as many weights as keys."""
    message = f"Feature '{feature}' must have one weight per key in every sample."
    splits = tf.cast(weights.row_splits, keys.row_splits.dtype)
    check = tf.debugging.assert_equal(keys.row_splits, splits, f"{message} Received: row splits of")
    return [] if check is None else [check]


def _check_columns(feature: str, keys: Any, weights: Any) -> list[tf.Operation]:
    """Returns assertions that fail if sparse weights have other positions than sparse keys."""
    if not (isinstance(keys, tf.SparseTensor) and isinstance(weights, tf.SparseTensor)):
        return []
    message = f"The weights of feature '{feature}' must have the indices of its keys. Received:"
    check = tf.debugging.assert_equal(keys.indices, weights.indices, message)
    return [] if check is None else [check]


def check_dtype(feature: str, dtype: str) -> None:
    """Refuses model inputs that cannot hold keys, and warns about those that truncate keys.

    Raises:
        ConfigError: The dtype is neither int64 nor int32.
    """
    if dtype not in ("int64", "int32"):
        raise _not_keys(feature, dtype)
    if dtype == "int32" and feature not in _warned:
        _warned.add(feature)
        _log.warning(
            "The Input of feature '%s' is int32: Keras silently truncates the keys of the data to "
            "32 bits. Use dtype='int64' unless all keys are smaller",
            feature,
        )


def _not_keys(feature: str, dtype: str) -> ConfigError:
    return ConfigError(
        f"Keys of feature '{feature}' must be int64 or int32: give its Input dtype='int64', "
        "convert strings with tfhybrid.data.string_keys, and call keras.ops.cast(keys, 'int64') on "
        f"what a Lambda or a layer of your own returns. Received: {dtype}"
    )


def cut(keys: Any, config: TableConfig) -> Any:
    """Returns at most `max_length` keys of each sample.

    Args:
        keys: Keys of the batch, a tensor or `tf.RaggedTensor`.
        config: Settings of the feature.
    """
    if config.max_length is None or keys.shape.rank == 1:
        return keys
    return keys[:, : config.max_length] if config.keep == "first" else keys[:, -config.max_length :]


def as_keys(feature: str, keys: Any) -> tf.Tensor:
    """Returns keys as an int64 tensor.

    Args:
        feature: Name of the feature, for errors.
        keys: Tensor or array.

    Raises:
        ConfigError: The keys are not int32 or int64.
    """
    tensor = tf.convert_to_tensor(keys)
    if tensor.dtype not in (tf.int32, tf.int64):
        raise _not_keys(feature, tensor.dtype.name)
    return tf.cast(tensor, tf.int64)
