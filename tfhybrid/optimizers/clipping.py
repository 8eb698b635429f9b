"""Clipping of a step's gradients, including those of tables, by the Keras optimizer's options."""

from __future__ import annotations

from typing import NamedTuple

from tensorflow import keras


class Clipping(NamedTuple):
    """Rule by which a step's reduced gradients are clipped.

    Args:
        kind: Unit of clipping: `"none"`, `"value"` (each number), `"norm"` (each table and each
            dense variable on its own) or `"global_norm"` (all of them together).
        limit: Largest absolute value or norm; unused for `"none"`.
    """

    kind: str = "none"
    limit: float = 0.0


# Options of Keras optimizers, in the order in which Keras checks them.
_OPTIONS = {"clipnorm": "norm", "global_clipnorm": "global_norm", "clipvalue": "value"}


def clipping_of(optimizer: keras.optimizers.Optimizer) -> Clipping:
    """Returns the rule by which a Keras optimizer clips gradients.

    Example:

    >>> import keras
    >>> clipping_of(keras.optimizers.SGD(clipnorm=1.0))
    Clipping(kind='norm', limit=1.0)
    """
    for option, kind in _OPTIONS.items():
        limit = getattr(optimizer, option)
        if limit and limit > 0:
            return Clipping(kind, float(limit))
    return Clipping()
