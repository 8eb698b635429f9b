"""The state that a Keras optimizer keeps of dense weights, in the order of its native twin's."""

from __future__ import annotations

from typing import Any

from tensorflow import keras

from tfhybrid._keras import IS_KERAS_3
from tfhybrid.optimizers.twin import twin

# What Keras 3 and Keras 2 call the vectors, in the order of a row's state in the engine.
_NAMES: dict[type, tuple[tuple[str, str], ...]] = {
    keras.optimizers.SGD: (("momentum", "m"),),
    keras.optimizers.Adagrad: (("accumulator", "accumulator"),),
    keras.optimizers.Adam: (("momentum", "m"), ("velocity", "v"), ("velocity_hat", "vhat")),
    keras.optimizers.RMSprop: (
        ("velocity", "velocity"),
        ("momentum", "momentum"),
        ("average_gradient", "average_gradient"),
    ),
    keras.optimizers.Ftrl: (("accumulator", "accumulator"), ("linear", "linear")),
}


def dense_states(optimizer: Any) -> list[list[Any]]:
    """Returns an optimizer's state of its dense weights.

    Args:
        optimizer: A Keras optimizer with a native counterpart (`twin`), built.

    Returns:
        As many lists as a row of its twin has vectors of state, in their order. Each has a variable
        for each dense weight, in the order in which the optimizer was built.

    Raises:
        UnsupportedError: It has no counterpart.
    """
    slots = twin(optimizer).slots
    of_kind = next(names for kind, names in _NAMES.items() if isinstance(optimizer, kind))
    found = [_named(optimizer, *names) for names in of_kind]
    # An optimizer lacks the vectors that its settings do not need.
    return [variables for variables in found if variables][:slots]


def _named(optimizer: Any, name: str, name_in_keras_2: str) -> list[Any]:
    if IS_KERAS_3:
        return [each for each in optimizer.variables if each.name.endswith(f"_{name}")]
    return [each for each in optimizer.variables if each.name.startswith(f"{name_in_keras_2}/")]
