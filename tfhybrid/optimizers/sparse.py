"""The native optimizers of tables; each equals its Keras namesake on the rows a step touches."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, TypeAlias

import keras

from tfhybrid.errors import ConfigError
from tfhybrid.store.native import OptimizerKind

LearningRate: TypeAlias = float | keras.optimizers.schedules.LearningRateSchedule


@dataclasses.dataclass(frozen=True)
class SparseOptimizer:
    """Base of the optimizers of tables.

    Args:
        learning_rate: A number, or a Keras schedule over the optimizer's iterations. `None` follows
            the learning rate of the Keras optimizer that `DistributedOptimizer` wraps.
    """

    learning_rate: LearningRate | None = None

    kind: ClassVar[OptimizerKind]
    slots: ClassVar[int]  # vectors of dim floats in a row's state

    @property
    def native(self) -> tuple[int, float, float, float, float]:
        """Kind, initial accumulator value, beta_1, beta_2 and epsilon, 0 where it has none."""
        accumulator, beta_1, beta_2, epsilon = (
            float(getattr(self, name, 0.0))
            for name in ("initial_accumulator_value", "beta_1", "beta_2", "epsilon")
        )
        return int(self.kind), accumulator, beta_1, beta_2, epsilon


@dataclasses.dataclass(frozen=True)
class SGD(SparseOptimizer):
    """`embedding -= learning_rate * gradient`."""

    kind = OptimizerKind.SGD
    slots = 0


@dataclasses.dataclass(frozen=True)
class Adagrad(SparseOptimizer):
    """Adagrad (Duchi et al., 2011).

    Args:
        learning_rate: See `SparseOptimizer`.
        initial_accumulator_value: What the sum of squares of a new row starts from.
        epsilon: Added to the sum before the root is taken.
    """

    initial_accumulator_value: float = 0.1
    epsilon: float = 1e-7

    kind = OptimizerKind.ADAGRAD
    slots = 1


@dataclasses.dataclass(frozen=True)
class Adam(SparseOptimizer):
    """Lazy Adam (Kingma and Ba, 2014): the moments of a row decay only when it is touched.

    Bias is corrected by the number of updates of the table, as Keras does by its iterations.

    Args:
        learning_rate: See `SparseOptimizer`.
        beta_1: Decay of the first moment.
        beta_2: Decay of the second moment.
        epsilon: Added to the root of the second moment.
    """

    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7

    kind = OptimizerKind.ADAM
    slots = 2


_NAMES = {"sgd": SGD, "adagrad": Adagrad, "adam": Adam}


def get(optimizer: SparseOptimizer | str) -> SparseOptimizer:
    """Returns an optimizer given as an object or by name, in any case.

    Raises:
        ConfigError: No optimizer of tables has that name.

    Example:

    >>> get("adagrad").initial_accumulator_value
    0.1
    """
    if isinstance(optimizer, SparseOptimizer):
        return optimizer
    if isinstance(optimizer, str) and optimizer.lower() in _NAMES:
        return _NAMES[optimizer.lower()]()
    raise ConfigError(
        f"A table's optimizer is an object of tfhybrid.optimizers or one of {sorted(_NAMES)}. "
        f"Received: {optimizer!r}"
    )
