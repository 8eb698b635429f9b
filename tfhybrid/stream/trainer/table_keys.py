"""The keys of a model's tables among the rows of a lease."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf
from tensorflow import keras

from tfhybrid.data.formats.format import hashed_strings
from tfhybrid.errors import ConfigError
from tfhybrid.features.preprocessing import Features, features_of
from tfhybrid.stream.trainer.leased_dataset import check_names, tensor_of
from tfhybrid.values import Column, check


class TableKeys:
    """The keys of a model's tables among the rows of a lease.

    Args:
        model: Model. Features that it computes from the rows, by a `tfhybrid.features.Features`,
            are computed for their keys, too.
        sources: Names of features of `Features`, or else of columns, by table: one name, or several
            of a table that several features share.
        schema: Columns of the stream.

    Raises:
        ConfigError: A table has no source; a source is no column, or has no integers or strings; or
            a feature has numbers, or needs a column that the stream does not have.
    """

    def __init__(
        self, model: keras.Model, sources: Mapping[str, str | Sequence[str]], schema: pa.Schema
    ) -> None:
        layers = {name: layer for layer in features_of(model) for name in layer.outputs}
        self._features: list[Features] = []
        self._of_features: dict[str, list[str]] = {table: [] for table in sources}
        self._of_columns: dict[str, list[Column]] = {table: [] for table in sources}
        for table, name in _pairs(sources):
            if name in layers:
                _check_feature(table, name, layers[name], schema)
                self._of_features[table].append(name)
                if layers[name] not in self._features:
                    self._features.append(layers[name])
            else:
                check_names(schema, [name], "The columns of tables")
                self._of_columns[table].append(key_column(table, schema.field(name)))

    def among(self, batch: pa.RecordBatch) -> dict[str, np.ndarray]:
        """Returns the distinct keys of each table, int64, ascending.

        Args:
            batch: Rows of a lease.

        Raises:
            ConfigError: A column has another dtype than its description in `Features`.
        """
        values: dict[str, Any] = {}
        for layer in self._features:
            values |= layer({name: tensor_of(batch[name]) for name in _columns_of(layer)})
        keys = {}
        for table, columns in self._of_columns.items():
            parts = [keys_of(column, batch[column.name]) for column in columns]
            parts += [_keys_in(values[name]) for name in self._of_features[table]]
            keys[table] = functools.reduce(np.union1d, parts)
        return keys


def _pairs(sources: Mapping[str, str | Sequence[str]]) -> Iterator[tuple[str, str]]:
    for table, names in sources.items():
        if not names:
            raise ConfigError(
                f"Table {table!r} needs the name of a column with its keys. Received: {names!r}"
            )
        for name in [names] if isinstance(names, str) else names:
            yield table, name


def _keys_in(feature: Any) -> np.ndarray:
    flat: tf.Tensor = feature.flat_values if isinstance(feature, tf.RaggedTensor) else feature
    return np.unique(flat.numpy())


def key_column(table: str, field: pa.Field) -> Column:
    """Returns the description of a column with the keys of a table.

    Args:
        table: Name of the table.
        field: Column of the stream.

    Raises:
        ConfigError: The column has neither integers nor strings nor lists of them.
    """
    dtype = field.type.value_type if pa.types.is_list(field.type) else field.type
    text = pa.types.is_string(dtype) or pa.types.is_large_string(dtype)
    if not (text or pa.types.is_integer(dtype)):
        raise ConfigError(
            f"The column with the keys of table {table!r} must have integers, strings, or lists of "
            f"them. Received: {field.name!r} of type {field.type}"
        )
    return Column(field.name, "string" if text else "key")


def keys_of(column: Column, values: pa.Array) -> np.ndarray:
    """Returns the distinct keys in a column, int64, ascending.

    Strings are hashed as `tfhybrid.layers.StringKeys` does.

    Args:
        column: Description of the column, from `key_column`.
        values: Values of the rows, or lists of them.
    """
    flat = values.flatten() if pa.types.is_list(values.type) else values
    distinct = pc.unique(flat.drop_null())  # hashing before sorting: far fewer keys than rows
    keys = check(column, distinct, hash_strings=hashed_strings).values
    return np.unique(keys) if column.role == "string" else np.sort(keys)


def _columns_of(layer: Features) -> list[str]:
    return [column.name for columns in layer.columns.values() for column in columns]


def _check_feature(table: str, name: str, layer: Features, schema: pa.Schema) -> None:
    check_names(schema, _columns_of(layer), "The columns of features")
    if name in layer.of_columns and layer.of_columns[name].dtype != tf.int64:
        raise ConfigError(
            f"The feature of table {table!r} must have keys. Received: {name!r}, which has numbers"
        )
