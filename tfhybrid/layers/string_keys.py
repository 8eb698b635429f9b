"""Conversion of strings to keys inside a model."""

from __future__ import annotations

from typing import Any

from tensorflow import keras

from tfhybrid.data.samples.strings import string_keys


@keras.utils.register_keras_serializable(package="tfhybrid")
class StringKeys(keras.layers.Layer):
    """Turns strings into keys, as `tfhybrid.data.string_keys` does in a data pipeline.

    As a part of the model it is exported too, so that clients of the SavedModel send raw strings.
    There is no vocabulary: every string has a key.

    Args:
        **kwargs: Arguments of `keras.layers.Layer`.

    Input shape: Strings of any shape: a tensor, a `tf.RaggedTensor` or a `tf.SparseTensor`.

    Output shape: The same, int64.

    Example:

    >>> from tensorflow import keras
    >>> import tfhybrid
    >>> city = keras.Input((1,), dtype="string", name="city")
    >>> keys = tfhybrid.layers.StringKeys()(city)
    >>> keys.shape
    (None, 1)
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_jit = False

    def call(self, inputs: Any) -> Any:
        """Returns the keys of strings, int64 of the same kind and shape.

        Args:
            inputs: Strings: a tensor, or a ragged or sparse tensor.

        Raises:
            ConfigError: The inputs are not strings.
        """
        return string_keys(inputs)

    def compute_output_spec(self, inputs: Any) -> Any:
        """Returns shape and dtype of the output of `call`, as `keras.KerasTensor`."""
        kinds = {"sparse": bool(getattr(inputs, "sparse", False))}
        if getattr(inputs, "ragged", False):
            kinds = {"ragged": True}
        return keras.KerasTensor(inputs.shape, "int64", **kinds)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Returns the shape of the input."""
        return input_shape
