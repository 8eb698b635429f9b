"""Embeddings of one feature."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow import keras

from tfhybrid.config import TableConfig
from tfhybrid.layers.embedding_collection import EmbeddingCollection
from tfhybrid.store import Table


@keras.utils.register_keras_serializable(package="tfhybrid")
class Embedding(EmbeddingCollection):
    """Turns keys into embeddings, as `keras.layers.Embedding`, without a vocabulary size.

    Args:
        config: The table's recipe.
        name: Name of the layer and of its table, unique within the job.
        **kwargs: Of `keras.layers.Layer`.

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

    def __init__(self, config: TableConfig, *, name: str, **kwargs: Any) -> None:
        super().__init__({name: config}, name=name, **kwargs)

    @property
    def table(self) -> Table:
        """The table; the layer must have been built."""
        return self.tables[self.features[0]]

    def call(self, inputs: Any, weights: Any = None) -> tf.Tensor:
        """Looks the keys up, and combines them where the recipe has a combiner.

        Args:
            inputs: Keys, int32 or int64.
            weights: Of the keys, of their kind and shape, for the combiner.
        """
        feature = self.features[0]
        of_keys = None if weights is None else {feature: weights}
        return super().call({feature: inputs}, of_keys)[feature]

    def compute_output_spec(self, inputs: Any, weights: Any = None) -> Any:
        """Returns what `call` would, as `keras.KerasTensor`."""
        feature = self.features[0]
        return super().compute_output_spec({feature: inputs})[feature]

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Returns the shape of the output for the shape of the input."""
        feature = self.features[0]
        return super().compute_output_shape({feature: input_shape})[feature]
