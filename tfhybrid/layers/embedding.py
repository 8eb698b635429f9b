"""Embeddings of one feature."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow import keras
from typing_extensions import override

from tfhybrid.config import TableConfig
from tfhybrid.errors import ConfigError
from tfhybrid.layers.embedding_collection import EmbeddingCollection
from tfhybrid.store import Table

# Replacements of the arguments of `keras.layers.Embedding`.
_OF_KERAS = {
    "input_dim": "there is no size: any int64 is a key",
    "input_length": "lengths may vary",
    "output_dim": "TableConfig(dim=...)",
    "embeddings_initializer": "TableConfig(initializer=...)",
    "embeddings_regularizer": "TableConfig(regularizer=...)",
    "embeddings_constraint": "rows have no constraint",
    "mask_zero": "key 0 is an ordinary key; use ragged lists instead of padding",
    "weights": "layer.table.load(tfhybrid.checkpoint.ArrayRows(keys, embeddings))",
}


@keras.utils.register_keras_serializable(package="tfhybrid")
class Embedding(EmbeddingCollection):
    """Turns keys into embeddings, like `keras.layers.Embedding` but without a vocabulary size.

    Args:
        config: The table's settings.
        name: Name of the layer. It may be left out if `table` is given.
        table: Name of the table, unique within the job. Defaults to the layer's name. Layer names,
            including inputs, are unique in a model: with `keras.Input(name="user")`, only the table
            can be called "user".
        **kwargs: Arguments of `keras.layers.Layer`.

    Raises:
        ConfigError: An argument of Keras's layer is given, or neither `name` nor `table`.

    Input shape: Integer keys of any shape, usually `[batch, length]`: a tensor, a `tf.RaggedTensor`
    or, with a combiner, a `tf.SparseTensor`.

    Output shape: `keys.shape + [dim]`, ragged as the keys are; with a combiner `[batch, dim]`.

    Example:

    >>> import tensorflow as tf
    >>> import tfhybrid
    >>> tfhybrid.init()
    >>> layer = tfhybrid.layers.Embedding(tfhybrid.TableConfig(dim=4), name="doc_query")
    >>> layer(tf.constant([[3, -3, 0]])).shape
    TensorShape([1, 3, 4])
    """

    def __init__(
        self,
        config: TableConfig,
        *sizes: Any,
        name: str | None = None,
        table: str | None = None,
        **kwargs: Any,
    ) -> None:
        _refuse_arguments_of_keras(config, sizes, kwargs)
        feature = table or name
        if not feature:
            raise ConfigError(
                "An Embedding needs a name for its table: Embedding(config, table='user'), or "
                "name='user' for layer and table. Received: neither"
            )
        super().__init__({feature: config}, name=name, **kwargs)

    @property
    def table(self) -> Table:
        """The table with the layer's rows; `KeyError` before the layer is built."""
        return self.tables[self.features[0]]

    def call(self, inputs: Any, weights: Any = None, training: Any = None) -> tf.Tensor:
        """Looks up the keys, and combines embeddings if the settings have a combiner.

        Args:
            inputs: Keys, int32 or int64.
            weights: Weights of the keys for the combiner, of the same kind and shape as the keys.
            training: Whether the model trains, as in `EmbeddingCollection.call`.

        Raises:
            ConfigError: The keys are not int32 or int64, have the wrong shape for a combiner, or
                have weights without a combiner.
            tf.errors.OpError: When the lookup runs: the table is not open, an earlier update
                failed, or an owner of rows has died.
        """
        feature = self.features[0]
        of_keys = None if weights is None else {feature: weights}
        return super().call({feature: inputs}, of_keys, training)[feature]

    @override
    def compute_output_spec(self, inputs: Any, weights: Any = None, training: Any = None) -> Any:
        feature = self.features[0]
        return super().compute_output_spec({feature: inputs})[feature]

    @override
    def compute_output_shape(self, input_shape: Any) -> Any:
        feature = self.features[0]
        return super().compute_output_shape({feature: input_shape})[feature]


def _refuse_arguments_of_keras(config: Any, sizes: tuple[Any, ...], named: dict[str, Any]) -> None:
    refused = [name for name in _OF_KERAS if name in named]
    if isinstance(config, int) or sizes:
        dim = sizes[0] if sizes and isinstance(sizes[0], int) else config
        raise ConfigError(
            "An Embedding needs a TableConfig, not Keras's sizes: "
            f"Embedding(tfhybrid.TableConfig(dim={dim}), table='user'). Received: "
            f"{', '.join(map(repr, (config, *sizes)))}"
        )
    if refused:
        advice = ". ".join(f"{name}: {_OF_KERAS[name]}" for name in refused)
        raise ConfigError(
            "An Embedding does not support these arguments of keras.layers.Embedding. "
            f"{advice}. Received: {', '.join(refused)}"
        )
