"""A column and its layers: what becomes of one column on its way to a feature."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow import keras

from tfhybrid.data.samples.strings import string_keys
from tfhybrid.errors import ConfigError
from tfhybrid.features.list_layers import SplitText, Truncate
from tfhybrid.features.number_layers import Buckets, Clip, Default
from tfhybrid.values.column import Column

_OF_LISTS = (SplitText, Truncate)
_BEFORE_BUCKETS = (Default, Clip, *_OF_LISTS)
_REPLACED = {
    keras.layers.Discretization: "tfhybrid.features.Buckets, which gives NaN a key of its own",
    keras.layers.HashedCrossing: "tfhybrid.features.Cross, which takes lists too",
}
# Arguments without which a layer of Keras would wait for `adapt`.
_CONSTANTS = {
    keras.layers.Normalization: "mean",
    keras.layers.StringLookup: "vocabulary",
    keras.layers.IntegerLookup: "vocabulary",
}
_REFUSALS = (
    TypeError,
    ValueError,
    tf.errors.InvalidArgumentError,
    tf.errors.UnimplementedError,
)


class ColumnLayers:
    """A feature of one column: applies layers, and returns keys or numbers.

    Args:
        feature: Name of the feature, for errors.
        column: Column of the feature.
        layers: Layers to apply, in order.

    Attributes:
        column: Column of the feature.
        layers: Layers to apply, in order.
        dtype: Dtype of the feature: int64 for keys, float32 for numbers.

    Raises:
        ConfigError: The column is a label, or does not suit requests; a layer lacks its constants,
            cuts buckets of other numbers than those of the data, has a replacement in
            `tfhybrid.features`, or cannot take what it gets.
    """

    def __init__(self, feature: str, column: Column, layers: Sequence[Any]) -> None:
        self._feature = feature
        self.column = column
        self.layers = list(layers)
        self._check_column()
        for position, layer in enumerate(self.layers):
            self._check_layer(layer, self.layers[:position])
        # Layers are built here, because what they create in a graph cannot leave it.
        with tf.init_scope():
            self.dtype: tf.DType = self(self._no_rows()).dtype

    def __call__(self, values: Any) -> Any:
        """Returns the feature: keys, int64, or numbers, float32.

        Args:
            values: Values of the column, `[batch]` or `[batch, length]`, dense or ragged.

        Raises:
            ConfigError: The values have another dtype than the column or are sparse, or a layer
                cannot take them.
        """
        values = self._entered(values)
        for layer in self.layers:
            try:
                values = _applied(layer, values)
            except _REFUSALS as error:
                raise ConfigError(
                    f"{self._at} The layer {layer.name!r} cannot take {values.dtype.name} of shape "
                    f"{values.shape}. Received: {error}"
                ) from error
        if values.dtype == tf.string:
            return string_keys(values)
        if values.dtype.is_integer:
            return tf.cast(values, tf.int64)
        if values.dtype.is_floating:
            return tf.cast(values, tf.float32)
        raise ConfigError(f"{self._at} It must be keys or numbers. Received: {values.dtype.name}")

    @property
    def splits(self) -> bool:
        """Whether the texts of a row come as one, which a layer splits."""
        return bool(self.layers) and isinstance(self.layers[0], SplitText)

    @property
    def _at(self) -> str:
        return f"Feature {self._feature!r} of column {self.column.name!r}:"

    def _entered(self, values: Any) -> Any:
        """Returns the values of the column as layers take them, `[batch, length]`."""
        column, role = self.column, self.column.role
        if isinstance(values, tf.SparseTensor):
            raise ConfigError(
                f"{self._at} Lists must be ragged, tf.RaggedTensor.from_sparse(values), or dense. "
                "Received: a SparseTensor"
            )
        if not isinstance(values, tf.RaggedTensor):
            values = tf.convert_to_tensor(values)
            values = values[:, tf.newaxis] if values.shape.rank == 1 else values
        dtype = values.dtype
        if role == "number" and (dtype.is_floating or dtype.is_integer):
            return _filled(tf.cast(values, column.dtype), column.missing)
        if role != "number" and dtype in (tf.int32, tf.int64) and not self._needs_texts:
            return tf.cast(values, tf.int64)
        if role == "string" and dtype == tf.string:
            is_replaced = column.empty == "missing" and column.missing is not None
            return tf.where(values == "", column.missing, values) if is_replaced else values
        if role == "string" and dtype in (tf.int32, tf.int64):
            raise ConfigError(
                f"{self._at} Its layers need texts, and readers of tfhybrid.data have hashed them. "
                "Leave out the layers, because any int64 is a key, or read texts with tf.data. "
                f"Received: {dtype.name}"
            )
        kinds = {"number": "numbers", "string": "texts, or their keys"}
        expected = kinds.get(role, "int32 or int64")
        raise ConfigError(f"{self._at} Expected {expected}. Received: {dtype.name}")

    @property
    def _needs_texts(self) -> bool:
        """Whether keys of texts are not enough, because a layer reads the texts."""
        others = [layer for layer in self.layers if not isinstance(layer, _OF_LISTS)]
        return self.column.role == "string" and bool(others)

    def _no_rows(self) -> Any:
        """Returns the values of no rows, as a request has them."""
        column = self.column
        dtype = tf.string if column.role == "string" else tf.as_dtype(column.dtype)
        length = 1 if self.splits else column.length
        if length is not None:
            return tf.constant([], dtype, shape=[0, length])
        return tf.RaggedTensor.from_row_splits(tf.constant([], dtype), tf.constant([0], tf.int64))

    def _check_column(self) -> None:
        column = self.column
        if column.role == "label" or (column.role == "number" and column.whole):
            raise ConfigError(
                f"{self._at} Its role must be 'key', 'string' or 'time', or 'number' with a dtype "
                f"of floats. Received: {column}"
            )
        if column.empty == "missing" and not isinstance(column.missing, str | None):
            raise ConfigError(
                f"{self._at} With empty='missing', missing must be a text, which replaces an empty "
                f"one in requests too. Received: missing={column.missing!r}"
            )

    def _check_layer(self, layer: Any, before: list[Any]) -> None:
        if not isinstance(layer, keras.layers.Layer):
            raise ConfigError(f"{self._at} Expected a column, then layers. Received: {layer!r}")
        for kind, replacement in _REPLACED.items():
            if isinstance(layer, kind):
                raise ConfigError(
                    f"{self._at} Use {replacement}. Received: keras.layers.{kind.__name__}"
                )
        for kind, argument in _CONSTANTS.items():
            if isinstance(layer, kind) and layer.get_config().get(argument) is None:
                raise ConfigError(
                    f"{self._at} keras.layers.{kind.__name__} needs {argument}=, a constant: "
                    "adapt would compute another one on each rank. Received: None"
                )
        if layer.compute_dtype in ("float16", "bfloat16"):
            raise ConfigError(
                f"{self._at} The layer {layer.name!r} would round what it gets to 16 bits: give it "
                f"dtype='float32'. Received: {layer.compute_dtype}"
            )
        if isinstance(layer, SplitText):
            column = self.column
            if before or column.role != "string" or column.length is not None:
                raise ConfigError(
                    f"{self._at} SplitText must be the first layer, and make lists of a column of "
                    f"strings with length=None. Received: {column}, {[e.name for e in before]}"
                )
        others = [each.name for each in before if not isinstance(each, _BEFORE_BUCKETS)]
        if isinstance(layer, Buckets) and others:
            raise ConfigError(
                f"{self._at} Buckets are cut on the numbers of the data; only Default, Clip, "
                "SplitText and Truncate may stand before them. Convert the boundaries instead. "
                f"Received: {others}"
            )


def _applied(layer: Any, values: Any) -> Any:
    """Applies a layer; of a ragged tensor, to its values as a column `[values, 1]`."""
    if isinstance(layer, _OF_LISTS) or not isinstance(values, tf.RaggedTensor):
        return layer(values)
    results = layer(values.flat_values[:, tf.newaxis])
    if results.shape[1:] != [1]:
        raise ConfigError(
            "In lists, a layer must return one value for each. "
            f"Received: shape {results.shape} for {values.flat_values.shape}"
        )
    return values.with_flat_values(results[:, 0])


def _filled(numbers: Any, missing: Any) -> Any:
    """Replaces NaN by the number for a missing one, if there is any."""
    if missing is None or math.isnan(missing):
        return numbers
    if isinstance(numbers, tf.RaggedTensor):
        return numbers.with_flat_values(_filled(numbers.flat_values, missing))
    return tf.where(tf.math.is_nan(numbers), tf.constant(missing, numbers.dtype), numbers)
