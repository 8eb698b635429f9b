"""Embeddings of many features, read by one fused lookup."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

import tensorflow as tf
from tensorflow import keras

from tfhybrid._keras import IS_KERAS_3
from tfhybrid.config import TableConfig
from tfhybrid.errors import ConfigError, UnsupportedError
from tfhybrid.job import current_job
from tfhybrid.layers import feature_inputs, table_lookup
from tfhybrid.layers.table_proxy import TableProxy, refuse_to_save
from tfhybrid.ops.device_lookup import DeviceRows
from tfhybrid.store import Table


@keras.utils.register_keras_serializable(package="tfhybrid")
class EmbeddingCollection(keras.layers.Layer):
    """Turns the keys of many features into embeddings, one table per feature.

    All features are read by one op. A key is any int64; one that was never updated reads its
    initial value, in training and evaluation alike, and gets a row with its first update.

    Args:
        configs: The recipe of each feature's table, by feature name. The table takes the name.
        shared: Tables that several features share: table name -> feature names. Their recipes in
            `configs` are equal, or the table's own name has the recipe.
        concatenate: Whether the output is one tensor, in which a sample's embeddings of all
            features lie side by side, in the order of `configs`. It saves the copies of a
            `keras.layers.Concatenate` and of its gradient.
        prefix: Put in front of every table name, to keep the names of two collections apart.
        **kwargs: Of `keras.layers.Layer`. With `trainable=False` the tables stay as they are.

    Raises:
        ConfigError: Recipes are missing or contradict each other.

    Input shape: A dict, feature name -> integer keys of any shape, usually `[batch, length]`:
    tensors, `tf.RaggedTensor` or, for features with a combiner, `tf.SparseTensor`.

    Output shape: A dict, feature name -> `keys.shape + [dim]`, ragged as the keys are, or
    `[batch, dim]` where the recipe has a combiner; with `concatenate=True` one tensor `[batch, sum
    of length * dim]`.

    Example:

    >>> import tensorflow as tf
    >>> import tfhybrid
    >>> tfhybrid.init()
    >>> table = tfhybrid.TableConfig(dim=8)
    >>> layer = tfhybrid.layers.EmbeddingCollection({"doc_user": table, "doc_shop": table})
    >>> embedded = layer({"doc_user": tf.constant([[1], [2]]), "doc_shop": tf.constant([[7], [7]])})
    >>> embedded["doc_shop"].shape
    TensorShape([2, 1, 8])
    >>> bags = tfhybrid.TableConfig(dim=8, combiner="mean")
    >>> layer = tfhybrid.layers.EmbeddingCollection({"doc_clicked": bags})
    >>> layer({"doc_clicked": tf.ragged.constant([[3, 7, 7], []])})["doc_clicked"].shape
    TensorShape([2, 8])
    """

    def __init__(
        self,
        configs: Mapping[str, TableConfig],
        *,
        shared: Mapping[str, Sequence[str]] | None = None,
        concatenate: bool = False,
        prefix: str = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.supports_jit = False
        self._prefix = prefix
        self._concatenate = concatenate
        self._table_of, self._recipes = _resolve(dict(configs), dict(shared or {}))
        self._configs = {
            feature: configs.get(feature, self._recipes[table])
            for feature, table in self._table_of.items()
        }
        # Kept apart: Keras may begin to build a layer, give up at its first variable, and begin
        # again; a table is opened once.
        self._opened: dict[str, Table] = {}
        self._proxies: dict[str, TableProxy] = {}
        self._on_device: DeviceRows | None = None

    @property
    def features(self) -> list[str]:
        """Names of the features that the layer wants."""
        return list(self._table_of)

    @property
    def tables(self) -> dict[str, Table]:
        """The tables by name, without the prefix; empty until the layer is built."""
        return {name: proxy.table for name, proxy in self._proxies.items()}

    @property
    def table_names(self) -> dict[str, str]:
        """The name of each feature's table, with the prefix; empty until the layer is built."""
        if not self.built:
            return {}
        return {feature: self._prefix + table for feature, table in self._table_of.items()}

    def build(self, input_shape: Any = None) -> None:
        """Opens the tables: the leader of each host creates them, its other ranks attach."""
        current_job()
        if self.compute_dtype == "float16":
            raise UnsupportedError(
                "mixed_float16 scales the loss in a way that would scatter sparse gradients and "
                "branch on each rank alone. Use the policy 'mixed_bfloat16', or 'float32'."
            )
        for name, config in self._recipes.items():
            if name not in self._opened:
                self._opened[name] = Table(self._prefix + name, config)
            self._proxies[name] = _proxy(self._opened[name], config.trainable)
            if IS_KERAS_3 and not self.trainable:
                # It leaves variables that are made after `trainable=False` was given trainable.
                self._proxies[name].trainable = False
        on_device = {
            self._prefix + name: config.dim
            for name, config in self._recipes.items()
            if config.fast_tier == "device"
        }
        if on_device and self._on_device is None:
            self._on_device = DeviceRows(on_device)
        self.built = True

    def call(self, inputs: Mapping[str, Any], weights: Mapping[str, Any] | None = None) -> Any:
        """Looks the keys up, and combines them.

        Args:
            inputs: Keys by feature name, int32 or int64; features of others are ignored.
            weights: Of the keys of features with a combiner, by feature name, each of the kind and
                shape of its keys. They are data: no gradient flows to them.
        """
        missing = [feature for feature in self._table_of if feature not in inputs]
        if missing:
            raise ConfigError(
                f"{self.name} wants the features {self.features}; {missing} are missing. "
                f"Received: {sorted(inputs)}"
            )
        weights = weights or {}
        unknown = [feature for feature in weights if feature not in self._table_of]
        if unknown:
            raise ConfigError(f"Weights are of features, {self.features}. Received: {unknown}")
        keys = [
            feature_inputs.feature_keys(feature, config, inputs[feature], weights.get(feature))
            for feature, config in self._configs.items()
        ]
        proxies = [self._proxies[table] for table in self._table_of.values()]
        if self._concatenate:
            self._refuse_ragged(inputs)
            embeddings = table_lookup.lookup(
                proxies, keys, side_by_side=True, on_device=self._on_device
            )
            return tf.cast(embeddings[0], self.compute_dtype)
        embeddings = table_lookup.lookup(proxies, keys, on_device=self._on_device)
        return {
            feature: of_feature.restore(tf.cast(embedding, self.compute_dtype))
            for feature, of_feature, embedding in zip(self._table_of, keys, embeddings, strict=True)
        }

    def compute_output_spec(
        self, inputs: Mapping[str, Any], weights: Mapping[str, Any] | None = None
    ) -> Any:
        """Returns what `call` would, as `keras.KerasTensor`."""
        for feature in self._table_of:
            feature_inputs.check_dtype(feature, inputs[feature].dtype)
        shapes = self._output_shapes({f: inputs[f].shape for f in self._table_of})
        if self._concatenate:
            self._refuse_ragged(inputs)
            return keras.KerasTensor(shapes, self.compute_dtype)
        return {
            feature: keras.KerasTensor(
                shape, self.compute_dtype, ragged=self._is_ragged(feature, inputs[feature])
            )
            for feature, shape in shapes.items()
        }

    def compute_output_shape(self, input_shape: Mapping[str, Any]) -> Any:
        """Returns the shapes of the output for the shapes of the input."""
        return self._output_shapes(input_shape)

    def _output_shapes(self, input_shape: Mapping[str, Any]) -> Any:
        shapes = {
            feature: (*_rows(tuple(input_shape[feature]), config), config.dim)
            for feature, config in self._configs.items()
        }
        if not self._concatenate:
            return shapes
        samples = [shape[1:] for shape in shapes.values()]
        unknown = any(axis is None for sample in samples for axis in sample)
        batch = next(iter(shapes.values()))[0]
        if unknown:
            return (batch, None)
        return (batch, sum(math.prod(axis or 0 for axis in sample) for sample in samples))

    def _is_ragged(self, feature: str, keys: Any) -> bool:
        is_ragged = isinstance(keys, tf.RaggedTensor) or getattr(keys, "ragged", False)
        return is_ragged and self._configs[feature].combiner is None

    def _refuse_ragged(self, inputs: Mapping[str, Any]) -> None:
        ragged = [f for f in self._table_of if self._is_ragged(f, inputs[f])]
        if ragged:
            raise ConfigError(
                "With concatenate=True ragged features want a combiner: samples side by side are "
                f"of one width. Received: {ragged} without one"
            )

    def get_config(self) -> NoReturn:
        """Refuses to be saved or cloned: the tables would not come along."""
        raise refuse_to_save(list(self._recipes))

    def save_own_variables(self, store: Any) -> None:
        """Refuses: the tables are saved by `tfhybrid.callbacks.Checkpoint`."""
        raise refuse_to_save(list(self._recipes))

    def load_own_variables(self, store: Any) -> None:
        """Refuses: the tables are restored by `tfhybrid.checkpoint.restore`."""
        raise refuse_to_save(list(self._recipes))


def _proxy(table: Table, trainable: bool) -> TableProxy:
    """Returns a table's variable, also where Keras 3 looks for what a model's `call` needs.

    It runs `call` of a subclassed model once in a scope in which no variable can be made but by an
    initializer, later; a lookup wants its variable now. Scopes are of a thread.
    """
    try:
        return TableProxy(table, trainable=trainable)
    except ValueError:
        with ThreadPoolExecutor(1) as outside:
            return outside.submit(TableProxy, table, trainable=trainable).result()


def _resolve(
    configs: dict[str, TableConfig], shared: dict[str, Sequence[str]]
) -> tuple[dict[str, str], dict[str, TableConfig]]:
    """Returns the table of each feature and the recipe of each table."""
    for name, config in configs.items():
        if not isinstance(config, TableConfig):
            raise ConfigError(f"The recipe of '{name}' is a TableConfig. Received: {config!r}")
    table_of = {feature: feature for feature in configs if feature not in shared}
    recipes: dict[str, TableConfig] = {}  # of tables
    for table, features in shared.items():
        given = {name: configs[name] for name in [table, *features] if name in configs}
        if not given or len({_recipe(config) for config in given.values()}) > 1:
            raise ConfigError(
                f"The shared table '{table}' wants one recipe, under its own name or equal ones "
                f"under {list(features)}. Received: {given}"
            )
        for feature in features:
            if table_of.get(feature, feature) != feature:
                raise ConfigError(
                    f"Feature '{feature}' is in two shared tables. Received: {shared}"
                )
            table_of[feature] = table
        recipes[table] = next(iter(given.values()))
    for feature, table in table_of.items():
        recipes.setdefault(table, configs.get(feature) or recipes[table])
    if not table_of:
        raise ConfigError("A collection wants at least one feature. Received: none")
    return table_of, recipes


def _recipe(config: TableConfig) -> TableConfig:
    """Returns what is the table's, without what each feature has of its own."""
    return dataclasses.replace(config, combiner=None, max_length=None, keep="first")


def _rows(keys: tuple[int | None, ...], config: TableConfig) -> tuple[int | None, ...]:
    """Returns the shape of a feature's embeddings, without the dim, for that of its keys."""
    if config.combiner is not None:
        return keys[:1]
    if config.max_length is None or len(keys) < 2 or keys[1] is None:
        return keys
    return (keys[0], min(keys[1], config.max_length), *keys[2:])
