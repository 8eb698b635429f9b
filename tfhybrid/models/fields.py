"""What every model begins with: inputs, embeddings side by side, first-order weights, pairs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from tfhybrid.config import TableConfig
from tfhybrid.layers import EmbeddingCollection

Inputs = dict[str, keras.KerasTensor]


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
    return inputs, ops.concatenate([rows[feature] for feature in features], axis=1)


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
    return inputs, fields[..., :-1], ops.sum(fields[..., -1], axis=1, keepdims=True)


def flat(embeddings: keras.KerasTensor) -> keras.KerasTensor:
    """Lays embeddings side by side: `[batch, features, dim]` -> `[batch, features * dim]`."""
    return keras.layers.Flatten(name="embeddings")(embeddings)


def pairwise_interactions(embeddings: keras.KerasTensor) -> keras.KerasTensor:
    """Sums the inner products of all pairs of fields: `[batch, fields, dim]` -> `[batch, 1]`.

    The sum over pairs is half of (square of the sum - sum of the squares), which is linear in the
    number of fields; Rendle, "Factorization Machines", ICDM 2010.
    """
    square_of_sum = ops.square(ops.sum(embeddings, axis=1))
    sum_of_squares = ops.sum(ops.square(embeddings), axis=1)
    return 0.5 * ops.sum(square_of_sum - sum_of_squares, axis=1, keepdims=True)


@keras.saving.register_keras_serializable(package="tfhybrid")
class Bias(keras.layers.Layer):
    """Adds a trained number to each column, from zero on: `[batch, width]` -> the same."""

    def build(self, input_shape: Any) -> None:
        """Makes the numbers."""
        self.bias = self.add_weight(shape=(input_shape[-1],), initializer="zeros", name="bias")

    def call(self, inputs: Any) -> Any:
        """Adds them."""
        return inputs + self.bias
