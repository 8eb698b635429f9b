"""Version of `tf.keras`: Keras 3, or 2 with TensorFlow 2.15 and with TF_USE_LEGACY_KERAS=1."""

from __future__ import annotations

from importlib import metadata
from typing import Any

import tensorflow as tf
from tensorflow import keras

IS_KERAS_3 = hasattr(keras, "Variable")
# The package behind tf.keras: keras, or tf_keras, which is Keras 2 installed beside a newer one.
VERSION = metadata.version(keras.Model.__module__.partition(".")[0])


def state_of(optimizer: Any) -> list[Any]:
    """Returns an optimizer's variables: step count, learning rate, then moments and the like.

    With a learning-rate schedule, there is no variable of the learning rate.
    """
    if IS_KERAS_3 or schedule_of(optimizer) is not None:
        return list(optimizer.variables)
    step, *others = optimizer.variables
    return [step, optimizer.learning_rate, *others]


def schedule_of(optimizer: Any) -> Any:
    """Returns the schedule of an optimizer's learning rate, or `None`. Works in graphs too."""
    with tf.init_scope():
        rate = optimizer.get_config()["learning_rate"]
    return keras.optimizers.schedules.deserialize(rate) if isinstance(rate, dict) else None


def path_of(variable: Any) -> str:
    """Returns a variable's name for messages, such as "model/layer/kernel"."""
    return variable.path if IS_KERAS_3 else variable.name.removesuffix(":0")
