"""Layers over numbers. Each number is computed alone, so batches change no bit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import keras

from tfhybrid.errors import ConfigError
from tfhybrid.values.column import is_number


class ElementLayer(keras.layers.Layer):
    """Base class of layers that compute each element alone, in the dtype that comes.

    Args:
        **kwargs: Arguments of `keras.layers.Layer`.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Returns the shape of the input."""
        return input_shape


@keras.utils.register_keras_serializable(package="tfhybrid")
class Default(ElementLayer):
    """Replaces NaN, a missing number, by a value. Infinite numbers stay.

    Args:
        value: Number in place of NaN.
        **kwargs: Arguments of `keras.layers.Layer`.

    Raises:
        ConfigError: `value` is not a finite number.

    Example:

    >>> import tensorflow as tf
    >>> Default(0.5)(tf.constant([[float("nan"), 2.0]])).numpy().tolist()
    [[0.5, 2.0]]
    """

    def __init__(self, value: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.value = _number("Default's value", value)

    def call(self, inputs: Any) -> Any:
        """Returns the numbers without NaN.

        Args:
            inputs: Floats of any shape.
        """
        value = tf.constant(self.value, inputs.dtype)
        return tf.where(tf.math.is_nan(inputs), value, inputs)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the layer."""
        return {**super().get_config(), "value": self.value}


@keras.utils.register_keras_serializable(package="tfhybrid")
class Clip(ElementLayer):
    """Raises smaller numbers to `low` and lowers larger ones to `high`. NaN stays NaN.

    Whole numbers get the next whole limits within `low` and `high`.

    Args:
        low: Smallest number of the output. Default: no limit.
        high: Largest number of the output. Default: no limit.
        **kwargs: Arguments of `keras.layers.Layer`.

    Raises:
        ConfigError: A limit is not a finite number, both are missing, or `low` is above `high`.

    Example:

    >>> import tensorflow as tf
    >>> Clip(0, 10)(tf.constant([[-3.0, 5.0, 12.0]])).numpy().tolist()
    [[0.0, 5.0, 10.0]]
    """

    def __init__(self, low: float | None = None, high: float | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.low = None if low is None else _number("Clip's low", low)
        self.high = None if high is None else _number("Clip's high", high)
        limits = [each for each in (self.low, self.high) if each is not None]
        if not limits or limits != sorted(limits):
            raise ConfigError(
                "Clip needs low, high, or both, and low must not be above high. "
                f"Received: low={low}, high={high}"
            )

    def call(self, inputs: Any) -> Any:
        """Returns the numbers within the limits.

        Args:
            inputs: Numbers of any shape.
        """
        if self.low is not None:
            low = _limit(self.low, math.ceil, inputs.dtype)
            inputs = tf.where(inputs < low, low, inputs)
        if self.high is not None:
            high = _limit(self.high, math.floor, inputs.dtype)
            inputs = tf.where(inputs > high, high, inputs)
        return inputs

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the layer."""
        return {**super().get_config(), "low": self.low, "high": self.high}


@keras.utils.register_keras_serializable(package="tfhybrid")
class Log(ElementLayer):
    """Computes `log(1 + max(x, 0))`, as `tfhybrid.data.Criteo` does. NaN stays NaN.

    It is computed in float64 and rounded once, because the float32 logarithm of TensorFlow has
    other last bits for one row than for a batch.

    Args:
        **kwargs: Arguments of `keras.layers.Layer`.

    Example:

    >>> import tensorflow as tf
    >>> Log()(tf.constant([[-2.0, 0.0, 1.0]])).numpy().tolist()
    [[0.0, 0.0, 0.6931471824645996]]
    """

    def call(self, inputs: Any) -> Any:
        """Returns the logarithms, in the dtype of the input.

        Args:
            inputs: Floats of any shape.
        """
        if not inputs.dtype.is_floating:
            raise ConfigError(f"Log needs numbers, not keys. Received: {inputs.dtype.name}")
        wide = tf.cast(inputs, tf.float64)
        wide = tf.where(wide < 0, tf.zeros((), tf.float64), wide)
        return tf.cast(tf.math.log1p(wide), inputs.dtype)


@keras.utils.register_keras_serializable(package="tfhybrid")
class Buckets(ElementLayer):
    """Turns numbers into keys 0 to n: the number of boundaries that are not above the number.

    It equals `keras.layers.Discretization` for float32. Unlike that layer, it compares float64 and
    int64 exactly, and NaN becomes -1, a key that no number has.

    Args:
        boundaries: Numbers in ascending order, which are rounded to the dtype of the input.
        **kwargs: Arguments of `keras.layers.Layer`.

    Raises:
        ConfigError: There are no boundaries, or they are not finite and ascending.

    Example:

    >>> import tensorflow as tf
    >>> Buckets([0, 10])(tf.constant([[-1.0, 0.0, 99.0, float("nan")]])).numpy().tolist()
    [[0, 1, 2, -1]]
    """

    def __init__(self, boundaries: Sequence[float], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.boundaries = [_number("A boundary of Buckets", each) for each in boundaries]
        if not self.boundaries or sorted(set(self.boundaries)) != self.boundaries:
            raise ConfigError(
                "Buckets need boundaries, each above the one before. "
                f"Received: {self.boundaries[:10]}"
            )

    def call(self, inputs: Any) -> Any:
        """Returns the bucket of each number, int64.

        Args:
            inputs: Numbers of any shape.
        """
        boundaries = self._as(inputs.dtype)
        flat = tf.reshape(inputs, [-1])
        buckets = tf.searchsorted(boundaries, flat, side="right", out_type=tf.int64)
        if inputs.dtype.is_floating:
            buckets = tf.where(tf.math.is_nan(flat), tf.constant(-1, tf.int64), buckets)
        return tf.reshape(buckets, tf.shape(inputs))

    def _as(self, dtype: tf.DType) -> tf.Tensor:
        """Returns the boundaries in the dtype of numbers to compare with."""
        if dtype.is_floating:
            return tf.cast(tf.constant(self.boundaries, tf.float64), dtype)
        # A whole number reaches a boundary if it reaches the next whole number.
        whole = [math.ceil(each) for each in self.boundaries]
        reachable = [max(each, dtype.min) for each in whole if each <= dtype.max]
        return tf.constant(reachable, dtype, shape=[len(reachable)])

    def compute_output_spec(self, inputs: Any) -> Any:
        """Returns shape and dtype of the output of `call`, as `keras.KerasTensor`."""
        return keras.KerasTensor(inputs.shape, "int64")

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the layer."""
        return {**super().get_config(), "boundaries": self.boundaries}


def _limit(number: float, rounded: Callable[[float], int], dtype: tf.DType) -> tf.Tensor:
    """Returns a limit in the dtype of numbers."""
    if dtype.is_floating:
        return tf.constant(number, dtype)
    return tf.constant(min(max(rounded(number), dtype.min), dtype.max), dtype)


def _number(what: str, value: Any) -> float:
    """Returns a number of Python; whole numbers stay whole."""
    if not is_number(value) or not math.isfinite(value):
        raise ConfigError(f"{what} must be a finite number. Received: {value!r}")
    return value.item() if isinstance(value, np.number) else value
