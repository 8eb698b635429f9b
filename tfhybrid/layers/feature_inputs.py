"""What a feature may come as, dense, ragged or sparse, and the keys that this means."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfhybrid.config import TableConfig
from tfhybrid.errors import ConfigError
from tfhybrid.ops.lookup import FeatureKeys


def feature_keys(feature: str, config: TableConfig, inputs: Any, weights: Any) -> FeatureKeys:
    """Returns the keys of a feature, cut to the maximum length of its configuration.

    Args:
        feature: Its name, for errors.
        config: Its configuration.
        inputs: Integer keys: a tensor, `tf.RaggedTensor` or `tf.SparseTensor`.
        weights: Of the keys, of the same kind and shape, or `None`.

    Raises:
        ConfigError: The keys cannot be of this feature.
    """
    if config.combiner is None:
        return _one_by_one(feature, config, inputs, weights)
    keys = _cut(_as_bags(feature, inputs), config)
    if weights is not None:
        weights = tf.cast(_cut(_as_bags(feature, weights), config).values, tf.float32)
    splits = tf.cast(keys.row_splits, tf.int64)
    return FeatureKeys(_as_keys(feature, keys.values), config.combiner, splits, weights)


def _one_by_one(feature: str, config: TableConfig, inputs: Any, weights: Any) -> FeatureKeys:
    """Returns the keys of a feature without a combiner."""
    if weights is not None or isinstance(inputs, tf.SparseTensor):
        raise ConfigError(
            f"{'Weights' if weights is not None else 'A SparseTensor'} of feature '{feature}' "
            "want a combiner: TableConfig(combiner='sum', 'mean' or 'sqrtn'). Received: none"
        )
    if not isinstance(inputs, tf.RaggedTensor):
        return FeatureKeys(_cut(_as_keys(feature, inputs), config))
    ragged = _cut(inputs, config)
    return FeatureKeys(_as_keys(feature, ragged.flat_values), ragged=ragged)


def _as_bags(feature: str, inputs: Any) -> tf.RaggedTensor:
    """Returns `[batch, (length)]`."""
    if not isinstance(inputs, tf.RaggedTensor | tf.SparseTensor):
        inputs = tf.convert_to_tensor(inputs)
        inputs = inputs[:, tf.newaxis] if inputs.shape.rank == 1 else inputs
    if inputs.shape.rank != 2:
        raise ConfigError(
            f"Keys of feature '{feature}', which has a combiner, are [batch, length]. "
            f"Received: {inputs.shape}"
        )
    if isinstance(inputs, tf.RaggedTensor):
        return inputs
    if isinstance(inputs, tf.SparseTensor):
        rows = inputs.dense_shape[0]
        splits = tf.ragged.segment_ids_to_row_splits(inputs.indices[:, 0], rows, tf.int64)
        return tf.RaggedTensor.from_row_splits(inputs.values, splits, validate=False)
    batch, length = tf.unstack(tf.shape(inputs, tf.int64))
    splits = tf.range(batch + 1) * length
    return tf.RaggedTensor.from_row_splits(tf.reshape(inputs, [-1]), splits, validate=False)


def _cut(keys: Any, config: TableConfig) -> Any:
    """Returns at most `max_length` keys of each sample."""
    if config.max_length is None or keys.shape.rank == 1:
        return keys
    return keys[:, : config.max_length] if config.keep == "first" else keys[:, -config.max_length :]


def _as_keys(feature: str, keys: Any) -> tf.Tensor:
    tensor = tf.convert_to_tensor(keys)
    if tensor.dtype not in (tf.int32, tf.int64):
        raise ConfigError(
            f"Keys of feature '{feature}' are int64 or int32: give its Input dtype='int64', and "
            "make keys of strings with tfhybrid.data.string_keys. "
            f"Received: {tensor.dtype.name}"
        )
    return tf.cast(tensor, tf.int64)
