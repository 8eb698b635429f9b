"""What a feature may come as, dense, ragged or sparse, and the keys that this means."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfhybrid.config import TableConfig
from tfhybrid.errors import ConfigError
from tfhybrid.ops.feature_keys import FeatureKeys


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
    if config.combiner is None and (weights is not None or isinstance(inputs, tf.SparseTensor)):
        raise ConfigError(
            f"{'Weights' if weights is not None else 'A SparseTensor'} of feature '{feature}' "
            "want a combiner: TableConfig(combiner='sum', 'mean' or 'sqrtn'). Received: none"
        )
    ragged = _as_ragged(feature, inputs, config)
    if ragged is None:
        return FeatureKeys(_cut(_as_keys(feature, inputs), config))
    keys = _cut(ragged, config)
    if config.combiner is None:
        return FeatureKeys(_as_keys(feature, keys.flat_values))
    weighted = None
    if weights is not None:
        of_keys = _as_ragged(feature, weights, config)
        if of_keys is None:
            raise ConfigError(f"Weights of feature '{feature}' are [batch, length], as its keys")
        weighted = tf.cast(_cut(of_keys, config).flat_values, tf.float32)
    return FeatureKeys(
        _as_keys(feature, keys.flat_values),
        config.combiner,
        tf.cast(keys.row_splits, tf.int64),
        weighted,
    )


def restore(inputs: Any, config: TableConfig, embeddings: tf.Tensor) -> Any:
    """Returns the embeddings of the keys of a ragged feature without a combiner as ragged."""
    if config.combiner is not None or not isinstance(inputs, tf.RaggedTensor):
        return embeddings
    return _cut(inputs, config).with_flat_values(embeddings)


def _as_ragged(feature: str, inputs: Any, config: TableConfig) -> tf.RaggedTensor | None:
    """Returns `[batch, (length)]`, or `None` for a dense tensor that has no bags."""
    if isinstance(inputs, tf.RaggedTensor):
        if inputs.shape.rank != 2 and config.combiner is not None:
            raise _wrong_rank(feature, inputs.shape)
        return inputs
    if isinstance(inputs, tf.SparseTensor):
        if inputs.shape.rank != 2:
            raise _wrong_rank(feature, inputs.shape)
        rows = inputs.dense_shape[0]
        splits = tf.ragged.segment_ids_to_row_splits(inputs.indices[:, 0], rows, tf.int64)
        return tf.RaggedTensor.from_row_splits(inputs.values, splits, validate=False)
    if config.combiner is None:
        return None
    dense = tf.convert_to_tensor(inputs)
    if dense.shape.rank == 1:
        dense = dense[:, tf.newaxis]
    if dense.shape.rank != 2:
        raise _wrong_rank(feature, dense.shape)
    batch, length = tf.unstack(tf.shape(dense, tf.int64))
    splits = tf.range(batch + 1) * length
    return tf.RaggedTensor.from_row_splits(tf.reshape(dense, [-1]), splits, validate=False)


def _cut(keys: Any, config: TableConfig) -> Any:
    """Returns at most `max_length` keys of each sample."""
    if config.max_length is None or keys.shape.rank == 1:
        return keys
    return keys[:, : config.max_length] if config.keep == "first" else keys[:, -config.max_length :]


def _wrong_rank(feature: str, shape: tf.TensorShape) -> ConfigError:
    return ConfigError(
        f"Keys of feature '{feature}', which has a combiner, are [batch, length]. Received: {shape}"
    )


def _as_keys(feature: str, keys: Any) -> tf.Tensor:
    tensor = tf.convert_to_tensor(keys)
    if tensor.dtype not in (tf.int32, tf.int64):
        raise ConfigError(
            f"Keys of feature '{feature}' are int64 or int32: give its Input dtype='int64', and "
            "make keys of strings with tfhybrid.data.string_keys. "
            f"Received: {tensor.dtype.name}"
        )
    return tf.cast(tensor, tf.int64)
