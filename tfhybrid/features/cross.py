"""Keys of combinations of features."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow import keras

from tfhybrid.errors import ConfigError

_KEYS = 2**63 - 1


@keras.utils.register_keras_serializable(package="tfhybrid")
class Cross(keras.layers.Layer):
    """Hashes each combination of the keys of several features to a key.

    Of features with one key in a row it is the key of `keras.layers.HashedCrossing` with the same
    number of bins. Unlike that layer, it takes lists: each element of one is combined with each
    element of the others, and an empty list makes an empty list.

    Args:
        features: Names of at least two features with keys.
        num_bins: Number of different keys. Default 2^63 - 1, at which different combinations
            practically never get the same key.
        **kwargs: Arguments of `keras.layers.Layer`.

    Raises:
        ConfigError: There are fewer than two names, or `num_bins` is no positive int64.

    Example:

    >>> import tensorflow as tf
    >>> keys = tf.constant([[3], [4]], tf.int64)
    >>> lists = tf.ragged.constant([[1, 2], []], tf.int64)
    >>> Cross(["user", "tags"], num_bins=1000)([keys, lists]).to_list()
    [[468, 211], []]
    """

    def __init__(self, features: Sequence[str], num_bins: int = _KEYS, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if isinstance(features, str) or len(features) < 2:
            raise ConfigError(
                f"A Cross needs the names of at least two features. Received: {features!r}"
            )
        if not isinstance(num_bins, int) or not 1 <= num_bins <= _KEYS:
            raise ConfigError(
                f"A Cross's num_bins must be a whole number, 1 to 2^63 - 1. Received: {num_bins!r}"
            )
        self.features = list(features)
        self.num_bins = num_bins

    def call(self, inputs: Sequence[Any]) -> Any:
        """Returns the keys of the combinations: dense if all inputs are, else ragged.

        Args:
            inputs: Keys `[batch, length]` of each feature, int64, dense or ragged.
        """
        crossed = tf.ragged.cross_hashed(inputs, num_buckets=self.num_bins)
        if any(isinstance(each, tf.RaggedTensor) for each in inputs):
            return crossed
        lengths = [each.shape[1] for each in inputs]
        length = tf.reduce_prod([tf.shape(each)[1] for each in inputs])
        keys = tf.reshape(crossed.values, [tf.shape(inputs[0])[0], length])
        return tf.ensure_shape(keys, [None, None if None in lengths else math.prod(lengths)])

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the layer."""
        config = {"features": self.features, "num_bins": self.num_bins}
        return {**super().get_config(), **config}
