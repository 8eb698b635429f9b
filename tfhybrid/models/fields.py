"""What every model begins with: inputs, embeddings side by side, first-order weights, pairs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow import keras

from tfhybrid.config import TableConfig
from tfhybrid.layers import EmbeddingCollection

Inputs = dict[str, Any]


def look_up(features: Sequence[str], table: TableConfig) -> tuple[Inputs, keras.KerasTensor]:
    """Looks up one-valued features, each in a table of its name.

    Args:
        features: Their names.
        table: Recipe of the tables.

    Returns:
        Inputs, int64 `[batch, 1]` each, and embeddings, float `[batch, features, table.dim]`.
    """
    inputs = {feature: keras.Input((1,), dtype="int64", name=feature) for feature in features}
    rows = EmbeddingCollection(dict.fromkeys(features, table))(inputs)
    return inputs, side_by_side([rows[feature] for feature in features])


def look_up_with_weights(
    features: Sequence[str], table: TableConfig
) -> tuple[Inputs, keras.KerasTensor, keras.KerasTensor]:
    """Looks up embeddings and first-order weights.

    A weight is one more column of the embedding's row: one lookup, one index entry and one
    gradient per key serve both, where a table of its own would double them.

    Returns:
        Inputs, embeddings `[batch, features, table.dim]` and the sum of the weights, `[batch, 1]`.
    """
    inputs, fields = look_up(features, dataclasses.replace(table, dim=table.dim + 1))
    return inputs, fields[..., :-1], Sum(name="first_order")(fields[..., -1:])


def flat(embeddings: keras.KerasTensor) -> keras.KerasTensor:
    """Lays embeddings side by side: `[batch, features, dim]` -> `[batch, features * dim]`."""
    return keras.layers.Flatten(name="embeddings")(embeddings)


def side_by_side(parts: Sequence[keras.KerasTensor]) -> keras.KerasTensor:
    """Concatenates along the axis after the batch's; one part stays as it is."""
    return keras.layers.Concatenate(axis=1)(parts) if len(parts) > 1 else parts[0]


@keras.utils.register_keras_serializable(package="tfhybrid")
class Sum(keras.layers.Layer):
    """Sums over the axis after the batch's: `[batch, fields, dim]` -> `[batch, dim]`."""

    def call(self, inputs: Any) -> Any:
        """Sums."""
        return tf.reduce_sum(inputs, axis=1)


@keras.utils.register_keras_serializable(package="tfhybrid")
class PairwiseInteractions(keras.layers.Layer):
    """Sums the inner products of all pairs of fields: `[batch, fields, dim]` -> `[batch, 1]`.

    The sum over pairs is half of (square of the sum - sum of the squares), which is linear in the
    number of fields; Rendle, "Factorization Machines", ICDM 2010.
    """

    def call(self, inputs: Any) -> Any:
        """Sums the products."""
        square_of_sum = tf.square(tf.reduce_sum(inputs, axis=1))
        sum_of_squares = tf.reduce_sum(tf.square(inputs), axis=1)
        return 0.5 * tf.reduce_sum(square_of_sum - sum_of_squares, axis=1, keepdims=True)


@keras.utils.register_keras_serializable(package="tfhybrid")
class Bias(keras.layers.Layer):
    """Adds a trained number to each column, from zero on: `[batch, width]` -> the same."""

    def build(self, input_shape: Any) -> None:
        """Makes the numbers."""
        self.bias = self.add_weight(shape=(input_shape[-1],), initializer="zeros", name="bias")

    def call(self, inputs: Any) -> Any:
        """Adds them."""
        return inputs + self.bias
