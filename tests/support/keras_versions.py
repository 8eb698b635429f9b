"""What tests need to run with Keras 2, too (TensorFlow 2.15)."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf
from tensorflow import keras

from tfhybrid._keras import IS_KERAS_3

needs_keras_3 = pytest.mark.skipif(not IS_KERAS_3, reason="Keras 2 does not have it")


def variable(value: Any) -> Any:
    """Returns a variable as a layer makes it, which an optimizer takes."""
    return keras.Variable(value) if IS_KERAS_3 else tf.Variable(value)


def dropout(rate: float, seed: int | None = None) -> keras.layers.Layer:
    """Returns dropout that can be resumed; that of Keras 2 draws of what nobody can save."""
    return keras.layers.Dropout(rate, seed=seed) if IS_KERAS_3 else keras.layers.Activation(None)
