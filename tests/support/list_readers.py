"""Keras layers that read lists with a mask, with the same weights each time."""

from __future__ import annotations

from typing import Any

from tensorflow import keras

READERS = ("GRU", "LSTM", "MultiHeadAttention", "GlobalAveragePooling1D")


def read(name: str, embedded: Any) -> Any:
    """Returns one vector for each list, from the layer of that name.

    Args:
        name: One of `READERS`.
        embedded: Embeddings of lists, `[batch, length, dim]`.
    """
    seed = keras.initializers.GlorotUniform(3)
    if name in ("GRU", "LSTM"):
        layer = getattr(keras.layers, name)
        return layer(3, kernel_initializer=seed, recurrent_initializer=seed)(embedded)
    if name == "MultiHeadAttention":
        attention = keras.layers.MultiHeadAttention(2, 3, kernel_initializer=seed)
        embedded = attention(embedded, embedded)
    return keras.layers.GlobalAveragePooling1D()(embedded)
