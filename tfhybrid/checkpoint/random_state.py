"""The random generators of a process, as arrays: Python's, NumPy's and TensorFlow's global ones.

What a model draws from Keras's seed generators is among its variables.
"""

from __future__ import annotations

import random

import numpy as np
import tensorflow as tf

from tfhybrid.errors import CheckpointError

_NAMES = ("random/python", "random/numpy", "random/tensorflow")


def gather() -> dict[str, np.ndarray]:
    """Returns the state of this process's generators by name."""
    _, words, gauss = random.getstate()
    numpy = np.random.get_state(legacy=False)
    generator = tf.random.get_global_generator()
    arrays = (
        # Doubles hold the words, which have 32 bits, exactly. Last: whether a number is kept back.
        np.array([*words, gauss or 0.0, gauss is not None], np.float64),
        np.array(
            [*numpy["state"]["key"], numpy["state"]["pos"], numpy["has_gauss"], numpy["gauss"]],
            np.float64,
        ),
        np.array([generator.algorithm, *generator.state.numpy()], np.int64),
    )
    return dict(zip(_NAMES, arrays, strict=True))


def assign(arrays: dict[str, np.ndarray], prefix: str) -> None:
    """Gives the generators the state that `gather` returned.

    Args:
        arrays: By name.
        prefix: What was put in front of the names.

    Raises:
        CheckpointError: An array is missing, or no state of a generator.
    """
    try:
        python, numpy, tensorflow = (arrays[prefix + name] for name in _NAMES)
        version = random.getstate()[0]
        gauss = float(python[-2]) if python[-1] else None
        random.setstate((version, tuple(int(word) for word in python[:-2]), gauss))
        np.random.set_state(
            ("MT19937", numpy[:-3].astype(np.uint32), int(numpy[-3]), int(numpy[-2]), numpy[-1])
        )
        generator = tf.random.Generator.from_state(tensorflow[1:], int(tensorflow[0]))
        tf.random.set_global_generator(generator)
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise CheckpointError(
            f"The state of the random generators is damaged: {error!r}"
        ) from error
