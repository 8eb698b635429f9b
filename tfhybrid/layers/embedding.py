"""Embeddings of one feature."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from tfhybrid.config import TableConfig
from tfhybrid.layers.embedding_collection import EmbeddingCollection
from tfhybrid.store import Table


@keras.saving.register_keras_serializable(package="tfhybrid")
class Embedding(EmbeddingCollection):
    """Turns keys into embeddings, as `keras.layers.Embedding`, without a vocabulary size.

    Args:
        config: The table's recipe.
        name: Name of the layer and of its table, unique within the job.
        **kwargs: Of `keras.layers.Layer`.

    Input shape: Integer keys of any shape, usually `[batch, length]`.

    Output shape: `keys.shape + [dim]`.

    Example:

    >>> import tensorflow as tf
    >>> import tfhybrid
    >>> tfhybrid.init()
    >>> layer = tfhybrid.layers.Embedding(tfhybrid.TableConfig(dim=4), name="doc_query")
    >>> layer(tf.constant([[3, -3, 0]])).shape
    TensorShape([1, 3, 4])
    """

    def __init__(self, config: TableConfig, *, name: str, **kwargs: Any) -> None:
        super().__init__({name: config}, name=name, **kwargs)

    @property
    def table(self) -> Table:
        """The table; the layer must have been built."""
        return self.tables[self.features[0]]

    def call(self, inputs: Any) -> tf.Tensor:
        """Looks the keys up."""
        feature = self.features[0]
        return super().call({feature: inputs})[feature]

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Returns the shape of the output for the shape of the input."""
        feature = self.features[0]
        return super().compute_output_shape({feature: input_shape})[feature]
