"""Common parts of all models: inputs, embeddings, first-order weights, pairs."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import tensorflow as tf
from tensorflow import keras

from tfhybrid.config import TableConfig
from tfhybrid.errors import ConfigError
from tfhybrid.layers import EmbeddingCollection

Inputs = dict[str, Any]
Tables: TypeAlias = TableConfig | Mapping[str, TableConfig]
"""Settings of all tables, or settings by feature; embeddings of equal length."""
NO_NUMBERS: Mapping[str, int] = MappingProxyType({})
"""Default of the argument `dense` of models."""


def recipes(features: Sequence[str], table: Tables, **changes: Any) -> dict[str, TableConfig]:
    """Returns the settings of each feature's table.

    Args:
        features: Names of the features.
        table: Settings of all tables, or settings by feature.
        **changes: Fields of `TableConfig` to replace in all settings.

    Raises:
        ConfigError: `features` is not a sequence of different names; or `table` lacks a feature or
            has others, or values of `dim` differ.

    Example:

    >>> recipes(["user", "item"], TableConfig(dim=4), dim=5)["item"].dim
    5
    """
    if isinstance(features, str) or not features or len(set(features)) < len(features):
        raise ConfigError(f"features must be one or more different names. Received: {features!r}")
    if isinstance(table, TableConfig):
        table = dict.fromkeys(features, table)
    configs = dict(table)
    if configs.keys() != set(features) or len({config.dim for config in configs.values()}) != 1:
        dims = {name: config.dim for name, config in configs.items()}
        raise ConfigError(
            f"table must be a TableConfig, or one for each of {list(features)}, with equal dims. "
            f"Received: dims {dims}"
        )
    return {name: dataclasses.replace(configs[name], **changes) for name in features}


def dim_of(table: Tables) -> int:
    """Returns the length of an embedding, `dim` of a table's settings.

    Args:
        table: Recipe of all tables, or recipes by feature, of which the first one counts.
    """
    return (table if isinstance(table, TableConfig) else next(iter(table.values()))).dim


def look_up(
    features: Sequence[str], table: Tables, dense: Mapping[str, int]
) -> tuple[Inputs, keras.KerasTensor, list[keras.KerasTensor]]:
    """Looks up features, each in the table with its name.

    Args:
        features: Names of the features.
        table: Recipe of the tables, or a recipe for each feature.
        dense: Width of each dense column, by name.

    Returns:
        Inputs, int64 `[batch, 1]` or lists, and float `[batch, width]` for dense columns;
        embeddings, float `[batch, features, table.dim]`; and the inputs of dense columns alone.

    Raises:
        ConfigError: `table` lacks a feature or has others, or dims differ; a dense column has the
            name of a feature, or no width.
        NotInitializedError: `tfhybrid.init()` was not called: the layer opens its tables here.
        NameTakenError: The job already has a table with the name of a feature.
    """
    configs = recipes(features, table)
    inputs, columns = key_inputs(configs), dense_inputs(dense, features)
    fields = as_fields(EmbeddingCollection(configs)(inputs), configs)
    return inputs | columns, fields, list(columns.values())


def key_inputs(configs: Mapping[str, TableConfig]) -> Inputs:
    """Returns the input of each feature: one key per sample, or a list with a combiner.

    Args:
        configs: Settings of each feature's table.
    """
    return {
        feature: list_input(feature)
        if config.combiner
        else keras.Input((1,), dtype="int64", name=feature)
        for feature, config in configs.items()
    }


def dense_inputs(dense: Mapping[str, int], features: Collection[str]) -> Inputs:
    """Returns the input of each dense column, float `[batch, width]`.

    Args:
        dense: Width of each dense column, by name.
        features: Names that dense columns cannot have.

    Raises:
        ConfigError: A dense column has the name of a feature, or no width.
    """
    if any(not isinstance(width, int) or width < 1 for width in dense.values()) or (
        dense.keys() & set(features)
    ):
        raise ConfigError(
            "dense must be numbers of values in a row, at least 1, by names that are no features. "
            f"Received: dense={dict(dense)}, features={list(features)}"
        )
    return {column: keras.Input((width,), name=column) for column, width in dense.items()}


def list_input(name: str) -> Any:
    """Returns an input of lists of keys, int64 `[batch, (length)]`."""
    return keras.Input((None,), dtype="int64", ragged=True, name=name)


def as_fields(
    rows: Mapping[str, keras.KerasTensor], configs: Mapping[str, TableConfig]
) -> keras.KerasTensor:
    """Returns one embedding per feature and sample, `[batch, features, dim]`.

    Args:
        rows: Embeddings by feature, `[batch, 1, dim]`, or `[batch, dim]` with a combiner.
        configs: Settings of each feature's table, in the order of the fields.
    """
    return side_by_side(
        [
            rows[feature][:, None] if config.combiner else rows[feature]
            for feature, config in configs.items()
        ]
    )


def look_up_with_weights(
    features: Sequence[str], table: Tables, dense: Mapping[str, int]
) -> tuple[Inputs, keras.KerasTensor, keras.KerasTensor, list[keras.KerasTensor]]:
    """Looks up embeddings and first-order weights.

    A weight is an additional column of the embedding's row, so that one lookup, one index entry and
    one gradient per key serve both. A separate table would double them.

    Returns:
        Inputs, embeddings `[batch, features, table.dim]`, the first-order term `[batch, 1]`, and
        the inputs of dense columns alone.

    Raises:
        ConfigError: `table` lacks a feature or has others, or dims differ; a dense column has the
            name of a feature, or no width.
        NotInitializedError: `tfhybrid.init()` was not called: the layer opens its tables here.
        NameTakenError: The job already has a table with the name of a feature.
    """
    with_weights = recipes(features, table, dim=dim_of(table) + 1)
    inputs, fields, numbers = look_up(features, with_weights, dense)
    return inputs, fields[..., :-1], first_order(fields[..., -1:], numbers), numbers


def first_order(weights: keras.KerasTensor, numbers: Sequence[keras.KerasTensor]) -> Any:
    """Returns the sum of the keys' weights, and of the numbers times weights, `[batch, 1]`.

    Args:
        weights: Weights of the keys, `[batch, features, 1]`.
        numbers: Dense columns, each `[batch, width]`; may be empty.
    """
    of_keys = Sum(name="first_order")(weights)
    if not numbers:
        return of_keys
    weigh = keras.layers.Dense(1, use_bias=False, name="first_order_of_numbers")
    return of_keys + weigh(side_by_side(numbers))


def flat(
    embeddings: keras.KerasTensor, numbers: Sequence[keras.KerasTensor] = ()
) -> keras.KerasTensor:
    """Returns embeddings and numbers of a sample as one vector, `[batch, features * dim + widths]`.

    Args:
        embeddings: Embeddings, `[batch, features, dim]`.
        numbers: Dense columns, each `[batch, width]`. Default: none.
    """
    return side_by_side([keras.layers.Flatten(name="embeddings")(embeddings), *numbers])


def side_by_side(parts: Sequence[keras.KerasTensor]) -> keras.KerasTensor:
    """Returns tensors concatenated along axis 1; a single one is returned unchanged."""
    return keras.layers.Concatenate(axis=1)(parts) if len(parts) > 1 else parts[0]


@keras.utils.register_keras_serializable(package="tfhybrid")
class Sum(keras.layers.Layer):
    """Sums over axis 1: `[batch, fields, dim]` -> `[batch, dim]`."""

    def call(self, inputs: Any) -> Any:
        """Returns the sums, `[batch, dim]`.

        Args:
            inputs: Fields, `[batch, fields, dim]`.
        """
        return tf.reduce_sum(inputs, axis=1)


@keras.utils.register_keras_serializable(package="tfhybrid")
class PairwiseInteractions(keras.layers.Layer):
    """Sums the inner products of all pairs of fields: `[batch, fields, dim]` -> `[batch, 1]`.

    The sum over pairs is half of (square of the sum - sum of the squares), which is linear in the
    number of fields; Rendle, "Factorization Machines", ICDM 2010.
    """

    def call(self, inputs: Any) -> Any:
        """Returns the sum of products of each sample, `[batch, 1]`.

        Args:
            inputs: Fields, `[batch, fields, dim]`.
        """
        square_of_sum = tf.square(tf.reduce_sum(inputs, axis=1))
        sum_of_squares = tf.reduce_sum(tf.square(inputs), axis=1)
        return 0.5 * tf.reduce_sum(square_of_sum - sum_of_squares, axis=1, keepdims=True)


@keras.utils.register_keras_serializable(package="tfhybrid")
class Bias(keras.layers.Layer):
    """Adds a trained number to each column, initially zero: `[batch, width]` -> the same."""

    def build(self, input_shape: Any) -> None:
        """Creates the bias."""
        self.bias = self.add_weight(shape=(input_shape[-1],), initializer="zeros", name="bias")

    def call(self, inputs: Any) -> Any:
        """Returns the inputs, `[batch, width]`, plus the bias of each column."""
        return inputs + self.bias
