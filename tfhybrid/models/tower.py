"""The multilayer perceptron of the deep models."""

from __future__ import annotations

from collections.abc import Sequence

from tensorflow import keras

from tfhybrid.errors import ConfigError


def tower(
    inputs: keras.KerasTensor, *, hidden: Sequence[int], dropout: float, batch_norm: bool
) -> keras.KerasTensor:
    """Stacks dense layers, each followed by batch normalization, ReLU and dropout.

    Args:
        inputs: Inputs of the first layer, float `[batch, width]`.
        hidden: Units of each layer, first to last.
        dropout: Fraction of a layer's activations that is dropped in training, in `[0, 1)`.
        batch_norm: Whether to normalize before the ReLU. Each rank's moving averages are those of
            its own samples.

    Returns:
        float `[batch, hidden[-1]]`.

    Raises:
        ConfigError: A layer has no units, or `dropout` is out of range.

    Example:

    ```python
    inputs = keras.Input((32,))
    outputs = tower(inputs, hidden=(64, 16), dropout=0.1, batch_norm=False)
    ```
    """
    if any(units < 1 for units in hidden) or not 0 <= dropout < 1:
        raise ConfigError(
            "hidden must be numbers of units, each at least 1, and dropout must be in [0, 1). "
            f"Received: hidden={list(hidden)}, dropout={dropout}"
        )
    outputs = inputs
    for index, units in enumerate(hidden, start=1):
        outputs = keras.layers.Dense(units, name=f"dense_{index}")(outputs)
        if batch_norm:
            # Keras's default momentum, 0.99, lags hundreds of steps behind, which can be epochs.
            # Its default epsilon, 1e-3, would hide the signal of small, penalized embeddings.
            normalize = keras.layers.BatchNormalization(
                momentum=0.9, epsilon=1e-5, name=f"batch_norm_{index}"
            )
            outputs = normalize(outputs)
        outputs = keras.layers.ReLU(name=f"relu_{index}")(outputs)
        if dropout:
            outputs = keras.layers.Dropout(dropout, name=f"dropout_{index}")(outputs)
    return outputs
