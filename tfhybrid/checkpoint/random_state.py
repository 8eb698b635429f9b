"""States of a process's global random generators, Python's, NumPy's and TensorFlow's, as arrays.

The states of Keras's seed generators are among a model's variables.
"""

from __future__ import annotations

import dataclasses
import functools
import random
from typing import Any

import numpy as np
import tensorflow as tf

from tfhybrid.errors import CheckpointError

_MAX_WORD = 2**32 - 1
_NAMES = ("random/python", "random/numpy", "random/tensorflow")


def global_generator() -> tf.random.Generator:
    """Returns TensorFlow's global generator, or a stand-in if the program may not have one.

    With `tf.config.experimental.enable_op_determinism()` there is only a global generator that the
    program itself has set. Nothing draws from the stand-in, and `RandomState.assign` does not set
    it.
    """
    try:
        return tf.random.get_global_generator()
    except RuntimeError:
        return _stand_in()


@functools.cache
def _stand_in() -> tf.random.Generator:
    with tf.init_scope():
        return tf.random.Generator.from_state([0, 0, 0], alg="philox")


def gather() -> dict[str, np.ndarray]:
    """Returns the states of this process's random generators as arrays, by name.

    The generators are those of Python, NumPy and TensorFlow.
    """
    _, words, gauss = random.getstate()
    numpy = np.random.get_state(legacy=False)
    generator = global_generator()
    arrays = (
        # Doubles represent the 32-bit words exactly. The last number tells whether Python's
        # generator holds a spare Gaussian number.
        np.array([*words, gauss or 0.0, gauss is not None], np.float64),
        np.array(
            [*numpy["state"]["key"], numpy["state"]["pos"], numpy["has_gauss"], numpy["gauss"]],
            np.float64,
        ),
        np.array([generator.algorithm, *generator.state.numpy()], np.int64),
    )
    return dict(zip(_NAMES, arrays, strict=True))


@dataclasses.dataclass(frozen=True)
class RandomState:
    """Valid states of the generators, which `assign` sets.

    Args:
        python: State for `random.setstate`.
        numpy: State for `numpy.random.set_state`.
        tensorflow: Generator for `tf.random.set_global_generator`.
    """

    python: tuple[Any, ...]
    numpy: tuple[Any, ...]
    tensorflow: tf.random.Generator

    @classmethod
    def of(cls, arrays: dict[str, np.ndarray], prefix: str = "") -> RandomState:
        """Checks the arrays of `gather` and returns the states in them.

        Args:
            arrays: Arrays by name.
            prefix: Prefix of the names. Default: none.

        Raises:
            CheckpointError: An array is missing, or is not a generator's state.
        """
        try:
            python, numpy, tensorflow = (arrays[prefix + name] for name in _NAMES)
            gauss = float(python[-2]) if python[-1] else None
            words = tuple(int(word) for word in python[:-2])
            of_python = (random.getstate()[0], words, gauss)
            words_of_numpy, (position, has_gauss, kept) = numpy[:-3], numpy[-3:]
            if not np.all((words_of_numpy >= 0) & (words_of_numpy <= _MAX_WORD)):
                raise ValueError("NumPy's generator has words of 32 bits")
            if not 0 <= position <= len(words_of_numpy):  # NumPy checks nothing
                raise ValueError(f"NumPy's generator has no position {position}")
            key = words_of_numpy.astype(np.uint32)
            of_numpy = ("MT19937", key, int(position), int(has_gauss), float(kept))
            random.Random().setstate(of_python)
            np.random.RandomState().set_state(of_numpy)
            generator = tf.random.Generator.from_state(tensorflow[1:], int(tensorflow[0]))
        except (KeyError, ValueError, TypeError, IndexError, OverflowError) as error:
            raise CheckpointError(
                f"The state of the random generators is damaged: {error!r}"
            ) from error
        return cls(of_python, of_numpy, generator)

    def assign(self) -> None:
        """Sets this process's generators to these states."""
        random.setstate(self.python)
        np.random.set_state(self.numpy)
        if np.any(self.tensorflow.state.numpy()):
            tf.random.set_global_generator(self.tensorflow)
