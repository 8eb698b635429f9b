"""State of a Keras optimizer for dense weights, in the order of its native counterpart."""

from __future__ import annotations

from typing import Any

from tensorflow import keras

from tfhybrid._keras import IS_KERAS_3
from tfhybrid.optimizers.twin import twin

# Names of the state vectors in Keras 3 and in Keras 2, in the order of a row's state in the core.
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
    """Returns the variables in which an optimizer keeps the state of dense weights.

    Args:
        optimizer: Keras optimizer that is built and has a native counterpart (`twin`).

    Returns:
        A list per state vector of a row of the counterpart, in the same order. Each list has a
        variable per dense weight, in the order in which the optimizer was built.

    Raises:
        UnsupportedError: The optimizer has no native counterpart.
    """
    slots = twin(optimizer).slots
    of_kind = next(names for kind, names in _NAMES.items() if isinstance(optimizer, kind))
    vectors = [_named(optimizer, *names) for names in of_kind]
    # An optimizer lacks the vectors that its settings do not need.
    return [variables for variables in vectors if variables][:slots]


def _named(optimizer: Any, name: str, name_in_keras_2: str) -> list[Any]:
    if IS_KERAS_3:
        return [each for each in optimizer.variables if each.name.endswith(f"_{name}")]
    return [each for each in optimizer.variables if each.name.startswith(f"{name_in_keras_2}/")]
