"""Lists of keys as dense tensors with a mask, for Keras layers that take no ragged tensor."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow import keras

from tfhybrid.config import TableConfig
from tfhybrid.errors import ConfigError
from tfhybrid.layers import float_keys
from tfhybrid.layers.feature_inputs import as_keys, cut, in_order
from tfhybrid.ops.lookup import FeatureKeys


@dataclasses.dataclass(frozen=True)
class PaddedList:
    """Keys of a batch in a dense tensor, in which some places are masked.

    Args:
        keys: Keys, int64 `[batch, length]` or another shape; anything in masked places.
        mask: False in masked places; bool in the shape of the keys.
    """

    keys: tf.Tensor
    mask: tf.Tensor

    def present(self, samples: tf.Tensor | None = None) -> FeatureKeys:
        """Returns the keys that are not masked, in row-major order.

        Args:
            samples: Number of samples of the batch, int64. Default: the first axis of the keys.
        """
        if samples is None:
            samples = tf.shape(self.keys, tf.int64)[0]
        return FeatureKeys(tf.gather_nd(self.keys, tf.where(self.mask)), samples=samples)

    def spread(self, embeddings: tf.Tensor) -> tf.Tensor:
        """Returns embeddings in the places of their keys, and zeros in masked places.

        Args:
            embeddings: Embeddings of the keys of `present`, `[keys, dim]`.

        Returns:
            A tensor of shape `keys.shape + [dim]`.
        """
        shape = tf.concat([tf.shape(self.mask), tf.shape(embeddings)[1:]], axis=0)
        zeros = tf.zeros(shape, embeddings.dtype)
        spread = tf.tensor_scatter_nd_update(zeros, tf.where(self.mask), embeddings)
        return tf.ensure_shape(spread, [*self.mask.shape, embeddings.shape[1]])


def padded_list(feature: str, config: TableConfig, mask_key: int | None, inputs: Any) -> PaddedList:
    """Returns the keys of a feature in a dense tensor, with a mask.

    Padding of ragged lists and gaps of sparse ones are masked, and so is `mask_key` in lists of
    every kind. Without a `mask_key`, a ragged list is cut to the maximum length. In all other cases
    the keys beyond it are masked, so that every key keeps its place. Keys that are masked
    anyway do not count.

    Args:
        feature: Name of the feature, for errors.
        config: Settings of the feature.
        mask_key: Key that is masked wherever it occurs; `None` for no such key.
        inputs: Keys, int32 or int64: a tensor, `tf.RaggedTensor` or `tf.SparseTensor`.

    Raises:
        ConfigError: The keys are not int32 or int64, or have no axis for samples.
        tf.errors.InvalidArgumentError: When the op runs, keys that were fed as floats are too large
            for them.
    """
    with tf.control_dependencies(float_keys.checks_of(feature, inputs)):
        keys, mask = _densify(feature, config, inputs, cuts=mask_key is None)
    if not keys.shape.rank:
        raise ConfigError(
            f"Keys of feature '{feature}' must be [batch, ...] with padded=True. "
            f"Received: {keys.shape}"
        )
    if mask_key is not None:
        mask &= keys != mask_key
    if config.max_length is not None and keys.shape.rank > 1:
        counts = tf.cumsum(tf.cast(mask, tf.int32), axis=1, reverse=config.keep == "last")
        mask &= counts <= config.max_length
    return PaddedList(keys, mask)


def _densify(
    feature: str, config: TableConfig, inputs: Any, *, cuts: bool
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the keys as a dense tensor, and where it has keys of the inputs."""
    if isinstance(inputs, tf.RaggedTensor):
        ragged = cut(inputs, config) if cuts else inputs
        keys = as_keys(feature, ragged.flat_values)
        present = tf.ones_like(keys, tf.bool)
        return (
            ragged.with_flat_values(keys).to_tensor(),
            ragged.with_flat_values(present).to_tensor(),
        )
    if isinstance(inputs, tf.SparseTensor):
        sparse = in_order(inputs)
        keys = as_keys(feature, sparse.values)
        present = tf.ones_like(keys, tf.bool)
        return (
            tf.sparse.to_dense(sparse.with_values(keys)),
            tf.sparse.to_dense(sparse.with_values(present), default_value=False),
        )
    keys = as_keys(feature, inputs)
    return keys, tf.ones_like(keys, tf.bool)


class ListMask(keras.layers.Layer):
    """Layer that returns the mask of a list of keys.

    Layers that receive a mask in a functional model need to know where it comes from: Keras refuses
    a symbolic tensor that no layer has returned.

    Args:
        read: Function that returns the `PaddedList` of keys.
    """

    def __init__(self, read: Callable[[Any], PaddedList]) -> None:
        super().__init__()
        self.supports_jit = False
        self.autocast = False
        self._read = read

    def call(self, inputs: Any) -> tf.Tensor:
        """Returns the mask: True for keys that are looked up.

        Args:
            inputs: Keys of any kind and dtype that `read` takes.
        """
        return self._read(inputs).mask

    def compute_output_spec(self, inputs: Any) -> Any:
        """Returns shape and dtype of the output of `call`, as `keras.KerasTensor`."""
        return keras.KerasTensor(padded_shape(inputs), "bool")


def padded_shape(inputs: Any) -> tuple[int | None, ...]:
    """Returns the shape of symbolic keys once they are dense.

    Args:
        inputs: Keys, as `keras.KerasTensor`.
    """
    shape = tuple(inputs.shape)
    if getattr(inputs, "ragged", False):
        return (shape[0], *(None for _ in shape[1:]))
    return shape
