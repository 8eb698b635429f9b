"""Embeddings of many features, read by one lookup."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

import tensorflow as tf
from tensorflow import keras

from tfhybrid import distributed
from tfhybrid._keras import IS_KERAS_3
from tfhybrid.config import TableConfig
from tfhybrid.config.placement import REPLICATED
from tfhybrid.errors import ConfigError, NameTakenError, UnsupportedError
from tfhybrid.job import current_job
from tfhybrid.layers import abandoned_tables, feature_inputs, table_lookup
from tfhybrid.layers.table_proxy import TableProxy, refuse_to_save
from tfhybrid.ops import lookup as lookup_op
from tfhybrid.ops.lookup import FeatureKeys, OutputForm
from tfhybrid.store import Table

_numbers = itertools.count(1)  # one for each layer of this process


@keras.utils.register_keras_serializable(package="tfhybrid")
class EmbeddingCollection(keras.layers.Layer):
    """Turns the keys of many features into embeddings, one table per feature.

    One op reads all features. Any int64 is a key. In training, a key that was never updated reads
    its initial value, and gets a row with its first update. In evaluation, a key without a row
    reads what `TableConfig.unseen` says, by default zeros.

    Args:
        configs: The settings of each feature's table, by feature name, which is also the table's
            name.
        shared: Tables that several features share: table name -> feature names. Their settings in
            `configs` must be equal, or given once under the table's name.
        concatenate: Whether the output is one tensor with all embeddings of a sample concatenated,
            in the order of `configs`. This avoids the copies of a `keras.layers.Concatenate` and of
            its gradient.
        prefix: Prefix of every table name, to distinguish the tables of two collections.
        **kwargs: Arguments of `keras.layers.Layer`. With `trainable=False` the tables are not
            updated.

    Raises:
        ConfigError: Settings are missing or contradict each other.

    Input shape: A dict, feature name -> integer keys of any shape, usually `[batch, length]`:
    tensors, `tf.RaggedTensor` or, for features with a combiner, `tf.SparseTensor`.

    Output shape: A dict, feature name -> `keys.shape + [dim]`, ragged if the keys are, or
    `[batch, dim]` with a combiner; with `concatenate=True` one tensor `[batch, sum of length *
    dim]`.

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
        # Keras may start to build a layer, stop at its first variable, and start again. A table
        # must be opened only once.
        self._opened: dict[str, Table] = {}
        self._proxies: dict[str, TableProxy] = {}
        self._device = ""  # that is current when the layer is built
        self._has_been_called = False
        self._is_abandoned = False
        self._number = next(_numbers)

    @property
    def features(self) -> list[str]:
        """Names of the layer's features."""
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
        """Opens the tables: the leader of each host creates them, its other ranks attach.

        Every rank must call it, with the same tables in the same order.

        Args:
            input_shape: Not used; Keras passes it.

        Raises:
            NotInitializedError: `tfhybrid.init()` was not called.
            UnsupportedError: The precision policy is mixed_float16.
            NameTakenError: The job already has a table of that name.
            StoreError: A table cannot be opened; see `tfhybrid.Table`.
            ConfigError: The leader created the table with another shape.
        """
        engine = current_job().engine.number
        if self.compute_dtype == "float16":
            raise UnsupportedError(
                "mixed_float16 scales the loss in a way that would scatter sparse gradients and "
                "branch on each rank alone. Use the policy 'mixed_bfloat16', or 'float32'."
            )
        for name, config in self._recipes.items():
            if name not in self._opened:
                self._opened[name] = abandoned_tables.take_or_open(
                    engine, self._prefix + name, config
                )
            self._proxies[name] = _proxy(self._opened[name], config.trainable)
            if IS_KERAS_3 and not self.trainable:
                # Variables created after `trainable=False` was set would stay trainable.
                self._proxies[name].trainable = False
        if any(config.gather_on == "device" for config in self._recipes.values()):
            with tf.init_scope():
                self._device = tf.zeros([]).device
        self.built = True

    # AutoGraph would inspect every line, although nothing needs a conversion.
    @tf.autograph.experimental.do_not_convert
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Builds the layer and calls `call`. Raises as they do.

        If the first call fails, the next layer with the same settings takes over the tables.
        """
        if self._has_been_called:
            return super().__call__(*args, **kwargs)
        if self._is_abandoned:
            if gone := abandoned_tables.take_back(self._opened):
                raise NameTakenError(
                    f"The first call of {self.name} failed, and another layer has taken over its "
                    f"tables {gone}: use that layer"
                )
            self._is_abandoned = False
        try:
            outputs = super().__call__(*args, **kwargs)
        except Exception:
            if self._opened:
                abandoned_tables.abandon(self._opened, self._recipes)
                self._is_abandoned = True
            raise
        self._has_been_called = True
        return outputs

    def call(
        self,
        inputs: Mapping[str, Any],
        weights: Mapping[str, Any] | None = None,
        training: Any = None,
    ) -> Any:
        """Looks up the keys, and combines embeddings.

        Args:
            inputs: Keys by feature name, int32 or int64; other features are ignored.
            weights: Weights of keys, by feature name, for features with a combiner, each of the
                same kind and shape as its keys. They are data: no gradient flows to them.
            training: Whether the model trains; Keras passes it. In a graph, it also trains if a
                gradient of the lookup is computed. `None` (default), if nobody says: in a graph,
                only then; otherwise it trains.

        Raises:
            ConfigError: A feature is missing, or its keys or weights have the wrong type or shape.
            tf.errors.OpError: When the lookup runs: an earlier update failed, or an owner of rows
                has died.
        """
        keys = self._feature_keys(inputs, weights or {})
        proxies = [self._proxies[table] for table in self._table_of.values()]
        if self._concatenate:
            self._refuse_ragged(inputs)
        embeddings = table_lookup.lookup(
            proxies,
            keys,
            form=OutputForm(self._concatenate, self.compute_dtype),
            device=self._device,
            training=training,
            collection=self._number,
        )
        if self._concatenate:
            return embeddings[0]
        return {
            feature: of_feature.reshape(embedding)
            for feature, of_feature, embedding in zip(self._table_of, keys, embeddings, strict=True)
        }

    def fetches_rows(self) -> bool:
        """Returns whether lookups fetch rows from other hosts."""
        several = len(set(distributed.hosts())) > 1
        return several and any(config.placement != REPLICATED for config in self._recipes.values())

    def number_ahead(self, inputs: Mapping[str, Any], batches: int) -> tf.Operation:
        """Numbers the keys of a batch before `call` looks them up, on a thread of a data set.

        Args:
            inputs: Keys by feature name, as for `call`.
            batches: Maximum number of batches that are kept for lookups; the oldest is dropped.

        Raises:
            ConfigError: A feature is missing, or its keys have the wrong type or shape.
        """
        return lookup_op.number_ahead(self._number, self._keys_of(inputs), batches)

    def _keys_of(self, inputs: Mapping[str, Any]) -> list[FeatureKeys]:
        """Returns what `call` looks up."""
        return self._feature_keys(inputs, {})

    def _feature_keys(
        self, inputs: Mapping[str, Any], weights: Mapping[str, Any]
    ) -> list[FeatureKeys]:
        missing = [feature for feature in self._table_of if feature not in inputs]
        if missing:
            raise ConfigError(
                f"{self.name} needs the features {self.features}; {missing} are missing. "
                f"Received: {sorted(inputs)}"
            )
        unknown = [feature for feature in weights if feature not in self._table_of]
        if unknown:
            raise ConfigError(
                f"Weights must belong to the features {self.features}. Received: {unknown}"
            )
        return [
            feature_inputs.feature_keys(feature, config, inputs[feature], weights.get(feature))
            for feature, config in self._configs.items()
        ]

    def compute_output_spec(
        self,
        inputs: Mapping[str, Any],
        weights: Mapping[str, Any] | None = None,
        training: Any = None,
    ) -> Any:
        """Returns shape and dtype of the output of `call`, as `keras.KerasTensor`.

        Args:
            inputs: Keys of each feature, as symbolic tensors of int32 or int64.
            weights: Not used: weights do not change the shape.
            training: Not used.

        Raises:
            ConfigError: Keys are not int32 or int64, or a ragged feature lacks a combiner with
                `concatenate=True`.
        """
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
        """Returns the shape of each feature's output, or of all features' if concatenated.

        Args:
            input_shape: Shape of each feature's keys, by name.
        """
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
                "With concatenate=True ragged features need a combiner: all samples must have the "
                f"same width. Received: {ragged} without one"
            )

    def get_config(self) -> NoReturn:
        """Raises `UnsupportedError`: saving and cloning would leave out the tables."""
        raise refuse_to_save(list(self._recipes))

    def save_own_variables(self, store: Any) -> None:
        """Raises `UnsupportedError`: use `tfhybrid.callbacks.Checkpoint` to save."""
        raise refuse_to_save(list(self._recipes))

    def load_own_variables(self, store: Any) -> None:
        """Raises `UnsupportedError`: use `tfhybrid.checkpoint.restore` to load."""
        raise refuse_to_save(list(self._recipes))


def _proxy(table: Table, trainable: bool) -> TableProxy:
    """Returns a table's variable, also while Keras 3 symbolically runs a model's `call`.

    Keras runs `call` of a subclassed model once in a scope in which variables are only initialized
    later, but a lookup needs its variable now. Scopes are per thread, so another thread creates it.
    """
    try:
        return TableProxy(table, trainable=trainable)
    except ValueError:
        with ThreadPoolExecutor(1) as outside:
            return outside.submit(TableProxy, table, trainable=trainable).result()


def _resolve(
    configs: dict[str, TableConfig], shared: dict[str, Sequence[str]]
) -> tuple[dict[str, str], dict[str, TableConfig]]:
    """Returns the table of each feature and the settings of each table."""
    for name, config in configs.items():
        if not isinstance(config, TableConfig):
            raise ConfigError(
                f"The settings of '{name}' must be a TableConfig. Received: {config!r}"
            )
    table_of = {feature: feature for feature in configs if feature not in shared}
    recipes: dict[str, TableConfig] = {}  # by table
    for table, features in shared.items():
        given = {name: configs[name] for name in [table, *features] if name in configs}
        if not given or len({_recipe(config) for config in given.values()}) > 1:
            raise ConfigError(
                f"The shared table '{table}' needs settings under its own name, or equal settings "
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
        raise ConfigError("A collection needs at least one feature. Received: none")
    return table_of, recipes


def _recipe(config: TableConfig) -> TableConfig:
    """Returns the table's settings without those that belong to a feature."""
    return dataclasses.replace(config, combiner=None, max_length=None, keep="first")


def _rows(keys: tuple[int | None, ...], config: TableConfig) -> tuple[int | None, ...]:
    """Returns the shape of a feature's embeddings, without the dim, from that of its keys."""
    if config.combiner is not None:
        return keys[:1]
    if config.max_length is None or len(keys) < 2 or keys[1] is None:
        return keys
    return (keys[0], min(keys[1], config.max_length), *keys[2:])
