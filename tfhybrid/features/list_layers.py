"""Layers over lists: texts become lists, and long lists are cut."""

from __future__ import annotations

from typing import Any, Literal

import tensorflow as tf
from tensorflow import keras

from tfhybrid.errors import ConfigError


@keras.utils.register_keras_serializable(package="tfhybrid")
class SplitText(keras.layers.Layer):
    """Splits texts at a separator: `"Crime|Drama"` becomes a list of two texts.

    An empty text becomes an empty list, as in `tfhybrid.data.Csv`. What is a list already stays as
    it is, such as the keys of a column that the reader has split. It is the first layer of a column
    of lists, whose rows a request sends as one text each.

    Args:
        separator: Text between the elements of a list. Default `"|"`.
        **kwargs: Arguments of `keras.layers.Layer`.

    Raises:
        ConfigError: The separator is empty.

    Example:

    >>> import tensorflow as tf
    >>> SplitText()(tf.constant([["Crime|Drama"], [""]])).to_list()
    [[b'Crime', b'Drama'], []]
    """

    def __init__(self, separator: str = "|", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not isinstance(separator, str) or not separator:
            raise ConfigError(
                f"SplitText's separator must be a text that is not empty. Received: {separator!r}"
            )
        self.separator = separator

    def call(self, inputs: Any) -> Any:
        """Returns the parts, a ragged tensor `[batch, (length)]`.

        Args:
            inputs: Texts `[batch, 1]`; or lists, a ragged tensor, which is returned unchanged.

        Raises:
            ConfigError: The inputs are neither.
        """
        if isinstance(inputs, tf.RaggedTensor):
            return inputs
        if inputs.dtype != tf.string or inputs.shape[1:] != [1]:
            raise ConfigError(
                "SplitText needs one text in a row, or a ragged tensor of what is split already. "
                f"Received: {inputs.dtype.name} of shape {inputs.shape}"
            )
        texts = tf.reshape(inputs, [-1])
        parts = tf.strings.split(texts, self.separator)
        is_part = tf.repeat(texts != "", parts.row_lengths())
        return tf.ragged.boolean_mask(parts, parts.with_values(is_part))

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the layer."""
        return {**super().get_config(), "separator": self.separator}


@keras.utils.register_keras_serializable(package="tfhybrid")
class Truncate(keras.layers.Layer):
    """Cuts lists to a maximum length. Shorter lists stay as they are.

    Args:
        length: Maximum number of values in a row.
        keep: Values that stay: the `"first"` ones (default) or the `"last"`.
        **kwargs: Arguments of `keras.layers.Layer`.

    Raises:
        ConfigError: `length` is not a positive whole number, or `keep` is another text.

    Example:

    >>> import tensorflow as tf
    >>> Truncate(2, "last")(tf.ragged.constant([[1, 2, 3], [4]])).to_list()
    [[2, 3], [4]]
    """

    def __init__(
        self, length: int, keep: Literal["first", "last"] = "first", **kwargs: Any
    ) -> None:
        super().__init__(autocast=False, **kwargs)
        if not isinstance(length, int) or isinstance(length, bool) or length < 1:
            raise ConfigError(
                f"Truncate's length must be a whole number, at least 1. Received: {length!r}"
            )
        if keep not in ("first", "last"):
            raise ConfigError(f"Truncate's keep must be 'first' or 'last'. Received: {keep!r}")
        self.length = length
        self.keep = keep

    def call(self, inputs: Any) -> Any:
        """Returns the values that stay.

        Args:
            inputs: Values `[batch, length]`, dense or ragged.
        """
        return inputs[:, : self.length] if self.keep == "first" else inputs[:, -self.length :]

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the layer."""
        return {**super().get_config(), "length": self.length, "keep": self.keep}
