"""The layer that turns the columns of the data into the features of a model."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf
from tensorflow import keras
from typing_extensions import override

from tfhybrid._keras import IS_KERAS_3, VERSION
from tfhybrid.errors import ConfigError, UnsupportedError
from tfhybrid.features.column_layers import ColumnLayers
from tfhybrid.features.cross import Cross
from tfhybrid.values.column import Column

Feature: TypeAlias = Column | Sequence[Any] | Cross
"""A column; a column followed by layers; or a cross of features."""


@keras.utils.register_keras_serializable(package="tfhybrid")
class Features(keras.layers.Layer):
    """Turns columns of the data into features: keys, int64, or numbers, float32.

    It runs in `tf.data`, in a model and in an exported model, with the same results. Nothing is
    learned: means and boundaries are constants, such as those of `tfhybrid data statistics`.

    Args:
        features: Features by name. Each is a `tfhybrid.data.Column`; or a list of a column and the
            layers that are applied to it in turn, of Keras or of `tfhybrid.features`; or a `Cross`
            of others, of which crosses must stand before it.
        outputs: Names of the features to return, without those that only a cross needs. A
            functional model must get exactly its inputs, because Keras takes them in order.
            Default: all features.
        **kwargs: Arguments of `keras.layers.Layer`.

    Raises:
        ConfigError: A feature is described wrongly; the message names it.
        UnsupportedError: TensorFlow has Keras 2.

    Attributes:
        of_columns: Features of columns, by name.
        crosses: Crosses, by name.

    Input shape: Dictionary of columns, `[batch]` or `[batch, length]`, dense or ragged. Strings may
    come as texts, or as the keys that readers of `tfhybrid.data` make of them. Other columns are
    ignored.

    Output shape: Dictionary of features, `[batch, length]`, dense or ragged.

    Example:

    >>> import tensorflow as tf
    >>> from tensorflow import keras
    >>> from tfhybrid.data import Column
    >>> from tfhybrid.features import Buckets, Cross, Features, Log
    >>> price = Column("price", "number")
    >>> features = Features({
    ...     "user": Column("user"),
    ...     "price": [price, Log(), keras.layers.Normalization(mean=1.5, variance=4.0)],
    ...     "price_range": [price, Buckets([1, 10, 100])],
    ...     "user_price": Cross(["user", "price_range"], num_bins=1000),
    ... })
    >>> row = features({"user": tf.constant([[7]]), "price": tf.constant([[20.0]])})
    >>> {name: value.numpy().tolist() for name, value in row.items() if name != "price"}
    {'user': [[7]], 'price_range': [[2]], 'user_price': [[215]]}
    """

    def __init__(
        self,
        features: Mapping[str, Feature],
        *,
        outputs: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        if not IS_KERAS_3:
            raise UnsupportedError(
                "tfhybrid.features needs Keras 3, which comes with TensorFlow 2.16 and newer. "
                f"Received: Keras {VERSION}"
            )
        super().__init__(autocast=False, **kwargs)
        self.supports_jit = False
        if not isinstance(features, Mapping) or not features:
            raise ConfigError(
                f"Features needs a dictionary of features by name. Received: {features!r}"
            )
        self.of_columns = {
            name: _column_layers(name, feature)
            for name, feature in features.items()
            if not isinstance(feature, Cross)
        }
        self.crosses: dict[str, Cross] = {}
        for name, feature in features.items():
            if isinstance(feature, Cross):
                self._check_cross(name, feature)
                self.crosses[name] = feature
        names = [*self.of_columns, *self.crosses]
        self.outputs = names if outputs is None else list(outputs)
        if isinstance(outputs, str) or not set(self.outputs) <= set(names):
            raise ConfigError(f"outputs must be names of {names}. Received: {outputs!r}")
        self._columns = _columns(self.of_columns.values())
        # Keras tracks layers in lists.
        self._layers_of_columns = [
            layer for each in self.of_columns.values() for layer in each.layers
        ]
        # All layers have run once. Keras would run them again to build them, on dense strings.
        self.built = True

    @property
    def columns(self) -> dict[str, list[Column]]:
        """Columns of the data as arguments of a format: `Csv(**features.columns)`."""
        columns = self._columns.values()
        return {
            "features": [column for column in columns if column.role != "number"],
            "dense": [column for column in columns if column.role == "number"],
        }

    def call(self, columns: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the features, by name.

        Args:
            columns: Values of the columns, by name. Other columns are ignored.

        Raises:
            ConfigError: A column is absent, has another dtype than its description or is sparse.
        """
        if absent := sorted(self._columns.keys() - columns.keys()):
            raise ConfigError(
                f"Features need the columns {sorted(self._columns)}. Received: none of {absent}"
            )
        features = {name: each(columns[each.column.name]) for name, each in self.of_columns.items()}
        for name, cross in self.crosses.items():
            features[name] = cross([features[each] for each in cross.features])
        return {name: features[name] for name in self.outputs}

    def inputs(self, *, hashed: bool = False) -> dict[str, keras.KerasTensor]:
        """Returns a `keras.Input` for each column, by name.

        Args:
            hashed: Whether strings come as keys, as from readers of `tfhybrid.data`. Default: as
                texts, as in a request.
        """
        split = {each.column.name for each in self.of_columns.values() if each.splits}
        return {
            name: _input(column, hashed, split=name in split)
            for name, column in self._columns.items()
        }

    def in_front_of(self, model: keras.Model, *, hashed: bool = False) -> keras.Model:
        """Returns a model of the columns: this layer, then a model of the features.

        Both models share their weights and tables, so one can be trained and the other exported.

        Args:
            model: Functional model, whose inputs have the names of features.
            hashed: Whether strings come as keys, as from readers of `tfhybrid.data`. Default: as
                texts, as in a request.

        Raises:
            ConfigError: The inputs of the model have no names, or other names than the features.
        """
        names = model.input.keys() if isinstance(model.input, Mapping) else set()
        if not names or not names <= set(self.outputs):
            raise ConfigError(
                f"The model's inputs must be a dictionary with names of {sorted(self.outputs)}. "
                f"Received: {sorted(names) or model.input}"
            )
        columns = self.inputs(hashed=hashed)
        values = self(columns)
        outputs = model({name: values[name] for name in names})
        return keras.Model(columns, outputs, name=f"{model.name}_of_columns")

    @override
    def compute_output_spec(self, columns: Mapping[str, Any]) -> dict[str, keras.KerasTensor]:
        specs = {name: _spec(columns[name]) for name in self._columns.keys() & columns.keys()}
        # What layers create for their weights is made before, so nothing leaves this graph.
        traced = tf.function(self.call, autograph=False).get_concrete_function(specs)
        return {name: _symbolic(each) for name, each in traced.structured_outputs.items()}

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the layer, from which `from_config` makes it again."""
        serialize = keras.utils.serialize_keras_object
        features: dict[str, Any] = {
            name: [dataclasses.asdict(each.column), *map(serialize, each.layers)]
            for name, each in self.of_columns.items()
        }
        features |= {name: serialize(cross) for name, cross in self.crosses.items()}
        return {**super().get_config(), "features": features, "outputs": self.outputs}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Features:
        """Returns the layer of a configuration.

        Args:
            config: Result of `get_config`.
        """
        deserialize = keras.utils.deserialize_keras_object
        features = {
            name: [Column(**each[0]), *map(deserialize, each[1:])]
            if isinstance(each, list)
            else deserialize(each)
            for name, each in config["features"].items()
        }
        return cls(**{**config, "features": features})

    def _check_cross(self, name: str, cross: Cross) -> None:
        keys = {each for each, layers in self.of_columns.items() if layers.dtype == tf.int64}
        keys |= self.crosses.keys()
        if others := sorted(set(cross.features) - keys):
            raise ConfigError(
                f"Feature {name!r}: a Cross takes features of keys, and crosses that stand before "
                f"it: {sorted(keys)}. Received: {others}"
            )


def features_of(model: keras.Model) -> Iterator[Features]:
    """Yields the layers `Features` of a model, at any depth.

    Args:
        model: Model.
    """
    for layer in model.layers:
        if isinstance(layer, Features):
            yield layer
        elif isinstance(layer, keras.Model):
            yield from features_of(layer)


def _column_layers(name: str, feature: Any) -> ColumnLayers:
    column, *layers = [feature] if isinstance(feature, Column) else feature or [None]
    if not isinstance(column, Column):
        raise ConfigError(
            f"Feature {name!r} must be a Column, a list of a Column and layers, or a Cross. "
            f"Received: {feature!r}"
        )
    return ColumnLayers(name, column, layers)


def _columns(features: Iterable[ColumnLayers]) -> dict[str, Column]:
    """Returns the columns of features, each once."""
    firsts: dict[str, ColumnLayers] = {}
    for each in features:
        first = firsts.setdefault(each.column.name, each)
        # As texts, in which NaN equals NaN.
        if (f"{first.column}", first.splits) != (f"{each.column}", each.splits):
            raise ConfigError(
                "A column has one description in all features, and SplitText in all or none. "
                f"Received: {first.column} and {each.column}"
            )
    return {name: first.column for name, first in firsts.items()}


def _input(column: Column, hashed: bool, *, split: bool) -> keras.KerasTensor:
    """Returns the input of a column, of which a layer may split the texts."""
    if column.role == "string" and not hashed:
        length = 1 if split else column.length
        return keras.Input((length,), dtype="string", name=column.name, ragged=length is None)
    ragged = column.length is None
    return keras.Input((column.length,), dtype=column.dtype, name=column.name, ragged=ragged)


def _spec(tensor: Any) -> Any:
    """Returns the specification of a symbolic tensor of Keras."""
    if getattr(tensor, "ragged", False):
        return tf.RaggedTensorSpec(tensor.shape, tensor.dtype, row_splits_dtype=tf.int64)
    if getattr(tensor, "sparse", False):
        return tf.SparseTensorSpec(tensor.shape, tensor.dtype)
    return tf.TensorSpec(tensor.shape, tensor.dtype)


def _symbolic(tensor: Any) -> keras.KerasTensor:
    ragged = isinstance(tensor, tf.RaggedTensor)
    return keras.KerasTensor(tensor.shape, tensor.dtype.name, ragged=ragged)
