"""Native optimizers for tables.

Each updates the rows that a step touches as the Keras optimizer of that name does with a dense
gradient. Keras 3 gives other results with `tf.IndexedSlices`, because it squares the gradients of a
repeated key one by one: they differ by 1e-2 after 5 steps of Adam.
"""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar, TypeAlias

from tensorflow import keras
from typing_extensions import override

from tfhybrid.core.native import OPTIMIZER_NUMBERS, OptimizerFlag, OptimizerKind
from tfhybrid.errors import ConfigError

Regularizer: TypeAlias = keras.regularizers.Regularizer


@dataclasses.dataclass(frozen=True)
class RateFactor:
    """A table's learning rate as a multiple of the Keras optimizer's rate.

    Tables often need another rate than dense weights. With a factor, anything that sets the Keras
    optimizer's rate (a schedule, `ReduceLROnPlateau`, a checkpoint) also sets the table's rate.

    Args:
        factor: Multiplier of the Keras optimizer's rate, above 0.

    Raises:
        ConfigError: The factor is not above 0, or is not finite.

    Example:

    ```python
    table = tfhybrid.TableConfig(
        dim=16, optimizer=tfhybrid.optimizers.Adagrad(tfhybrid.optimizers.RateFactor(10))
    )
    ```
    """

    factor: float

    def __post_init__(self) -> None:
        if not 0 < self.factor < math.inf:
            raise ConfigError(f"RateFactor needs a finite factor > 0. Received: {self.factor}.")


LearningRate: TypeAlias = float | keras.optimizers.schedules.LearningRateSchedule | RateFactor


def check_rate(rate: float, owner: str) -> None:
    """Checks a learning rate.

    Args:
        rate: Learning rate.
        owner: Owner of the rate, for the error: "a table" or "an optimizer".

    Raises:
        ConfigError: The rate is negative or not finite.
    """
    if not 0 <= rate < math.inf:
        raise ConfigError(
            f"The learning rate of {owner} must be finite and at least 0. Received: {rate}"
        )


@dataclasses.dataclass(frozen=True)
class SparseOptimizer:
    """Base class of the optimizers for tables.

    Args:
        learning_rate: A number, a Keras schedule over the optimizer's iterations, or a
            `RateFactor`. `None` (default) follows the learning rate of the Keras optimizer that
            `DistributedOptimizer` wraps.
        weight_decay: Decay of all embeddings (Loshchilov and Hutter, 2019). Every step shrinks them
            by the fraction `learning_rate * weight_decay`, independently of gradients. This
            includes rows that the step does not touch, and keys that have no row yet, at no extra
            cost. Default 0.

    Attributes:
        kind: Number of the optimizer in the core.

    Raises:
        ConfigError: The learning rate is negative or not finite.
    """

    learning_rate: LearningRate | None = None
    weight_decay: float = dataclasses.field(default=0.0, kw_only=True)

    kind: ClassVar[OptimizerKind]

    def __post_init__(self) -> None:
        if isinstance(self.learning_rate, int | float):
            check_rate(self.learning_rate, "a table")

    @property
    def slots(self) -> int:
        """Number of vectors in a row's optimizer state."""
        return 0

    @property
    def flags(self) -> int:
        """Options of the optimizer for the core: a sum of `OptimizerFlag` values, or 0."""
        return 0

    def state_shape(self, dim: int) -> tuple[int, int]:
        """Returns the shape of a row's optimizer state: number of vectors, and floats in each.

        Args:
            dim: Length of an embedding of the table.
        """
        return (self.slots, dim)

    def native(
        self, regularizer: Regularizer | None = None, lazy: bool = True
    ) -> tuple[float, ...]:
        """Returns the optimizer as numbers for the core: its kind, then its `OPTIMIZER_NUMBERS`.

        Numbers that the optimizer does not have are 0.

        Args:
            regularizer: Regularizer of the table. Default: `None`, no penalties.
            lazy: `TableConfig.lazy` of the table. Default: true.

        Raises:
            ConfigError: The regularizer is not `L1`, `L2` or `L1L2` of Keras.
        """
        l1, l2 = penalties(regularizer)
        flags = self.flags | (0 if lazy else OptimizerFlag.EVERY_ROW)
        of_table = {"penalty_l1": l1, "penalty_l2": l2, "flags": flags}
        numbers = (of_table.get(name, getattr(self, name, 0.0)) for name in OPTIMIZER_NUMBERS)
        return (int(self.kind), *map(float, numbers))


@dataclasses.dataclass(frozen=True)
class SGD(SparseOptimizer):
    """Gradient descent, with or without momentum: `embedding -= learning_rate * gradient`.

    The momentum of a row decays only when it is touched.

    Args:
        learning_rate: A number, a Keras schedule, or a `RateFactor`. Default: `None`, the rate of
            the Keras optimizer.
        momentum: Decay of the sum of earlier steps; 0 for none.
        nesterov: Whether to use Nesterov momentum (Nesterov, 1983).
    """

    momentum: float = 0.0
    nesterov: bool = False

    kind = OptimizerKind.SGD

    @property
    @override
    def slots(self) -> int:
        return int(self.momentum > 0)

    @property
    @override
    def flags(self) -> int:
        return OptimizerFlag.NESTEROV * self.nesterov


@dataclasses.dataclass(frozen=True)
class Adagrad(SparseOptimizer):
    """Adagrad (Duchi et al., 2011).

    Args:
        learning_rate: A number, a Keras schedule, or a `RateFactor`. Default: `None`, the rate of
            the Keras optimizer.
        initial_accumulator_value: Initial sum of squares of a new row.
        epsilon: Constant that is added to the sum before taking the square root.
    """

    initial_accumulator_value: float = 0.1
    epsilon: float = 1e-7

    kind = OptimizerKind.ADAGRAD
    slots = 1


@dataclasses.dataclass(frozen=True)
class RowAdagrad(SparseOptimizer):
    """Adagrad with one accumulator per row: the sum of the mean squared gradients.

    A row's state takes 4 bytes, whatever the dim. FBGEMM and TorchRec call it exact row-wise
    Adagrad.

    Args:
        learning_rate: A number, a Keras schedule, or a `RateFactor`. Default: `None`, the rate of
            the Keras optimizer.
        initial_accumulator_value: Initial accumulator of a new row.
        epsilon: Constant that is added to the square root of the accumulator.
    """

    initial_accumulator_value: float = 0.1
    epsilon: float = 1e-7

    kind = OptimizerKind.ROW_ADAGRAD
    slots = 1

    @override
    def state_shape(self, dim: int) -> tuple[int, int]:
        return (1, 1)


@dataclasses.dataclass(frozen=True)
class Adam(SparseOptimizer):
    """Lazy Adam (Kingma and Ba, 2014): a row's moments decay only when the row is updated.

    Bias correction counts the table's updates, as Keras counts the optimizer's iterations.

    Args:
        learning_rate: A number, a Keras schedule, or a `RateFactor`. Default: `None`, the rate of
            the Keras optimizer.
        beta_1: Decay of the first moment.
        beta_2: Decay of the second moment.
        epsilon: Constant that is added to the square root of the second moment.
        amsgrad: Whether to divide by the largest second moment so far (Reddi et al., 2018).
    """

    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7
    amsgrad: bool = False

    kind = OptimizerKind.ADAM

    @property
    @override
    def slots(self) -> int:
        return 2 + self.amsgrad

    @property
    @override
    def flags(self) -> int:
        return OptimizerFlag.AMSGRAD * self.amsgrad


@dataclasses.dataclass(frozen=True)
class RMSprop(SparseOptimizer):
    """RMSprop (Hinton, 2012); a row's means change only when the row is updated.

    Args:
        learning_rate: A number, a Keras schedule, or a `RateFactor`. Default: `None`, the rate of
            the Keras optimizer.
        rho: Decay of the mean of squared gradients.
        momentum: Decay of the sum of earlier steps; 0 for none.
        epsilon: Constant that is added to the mean before taking the square root.
        centered: Whether to subtract the square of the mean gradient (Graves, 2013).
    """

    rho: float = 0.9
    momentum: float = 0.0
    epsilon: float = 1e-7
    centered: bool = False

    kind = OptimizerKind.RMSPROP

    @property
    @override
    def slots(self) -> int:
        return 1 + (self.momentum > 0) + self.centered

    @property
    @override
    def flags(self) -> int:
        return OptimizerFlag.CENTERED * self.centered


@dataclasses.dataclass(frozen=True)
class Ftrl(SparseOptimizer):
    """FTRL-Proximal (McMahan et al., 2013), with `learning_rate_power=-0.5`.

    An embedding becomes exactly zero where the L1 penalty dominates.

    Args:
        learning_rate: A number, a Keras schedule, or a `RateFactor`. Default: `None`, the rate of
            the Keras optimizer.
        initial_accumulator_value: Initial sum of squares of a new row.
        l1_regularization_strength: Strength of the L1 penalty.
        l2_regularization_strength: Strength of the L2 penalty.
        l2_shrinkage_regularization_strength: Strength of the L2 penalty that is added to the
            gradient only.
        beta: Constant that is added to the square root of the sum, as in the paper.
    """

    initial_accumulator_value: float = 0.1
    l1_regularization_strength: float = 0.0
    l2_regularization_strength: float = 0.0
    l2_shrinkage_regularization_strength: float = 0.0
    beta: float = 0.0

    kind = OptimizerKind.FTRL
    slots = 2

    @property
    def l1(self) -> float:
        """The value of `l1_regularization_strength`; `native` reads it by this shorter name."""
        return self.l1_regularization_strength

    @property
    def l2(self) -> float:
        """The value of `l2_regularization_strength`; `native` reads it by this shorter name."""
        return self.l2_regularization_strength

    @property
    def l2_shrinkage(self) -> float:
        """The value of `l2_shrinkage_regularization_strength`; see `l2`."""
        return self.l2_shrinkage_regularization_strength


@dataclasses.dataclass(frozen=True)
class AdamW(Adam):
    """`Adam` with the argument order and defaults of `keras.optimizers.AdamW`."""

    weight_decay: float = 0.004


_NAMES = {
    "sgd": SGD,
    "adagrad": Adagrad,
    "row_adagrad": RowAdagrad,
    "adam": Adam,
    "adamw": AdamW,
    "rmsprop": RMSprop,
    "ftrl": Ftrl,
}


def penalties(regularizer: Regularizer | str | None) -> tuple[float, float]:
    """Returns the L1 and L2 factors of a Keras regularizer.

    Args:
        regularizer: Object of `keras.regularizers`, or its name; `None` has factors of 0.

    Raises:
        ConfigError: The regularizer is not `L1`, `L2` or `L1L2`.

    Example:

    >>> import keras
    >>> penalties(keras.regularizers.L2(0.5))
    (0.0, 0.5)
    """
    try:
        resolved = keras.regularizers.get(regularizer)
    except ValueError:
        resolved = regularizer
    if resolved is None:
        return 0.0, 0.0
    if not isinstance(
        resolved, keras.regularizers.L1 | keras.regularizers.L2 | keras.regularizers.L1L2
    ):
        raise ConfigError(
            "A table's regularizer must be keras.regularizers.L1, L2 or L1L2, or the name of one. "
            f"Received: {regularizer!r}"
        )
    return float(getattr(resolved, "l1", 0.0)), float(getattr(resolved, "l2", 0.0))


def get(optimizer: SparseOptimizer | str) -> SparseOptimizer:
    """Returns a table optimizer, given as an object or by name.

    Args:
        optimizer: The optimizer, or its name in upper or lower case.

    Raises:
        ConfigError: No table optimizer has that name.

    Example:

    >>> get("adagrad").initial_accumulator_value
    0.1
    """
    if isinstance(optimizer, SparseOptimizer):
        return optimizer
    if isinstance(optimizer, str) and optimizer.lower() in _NAMES:
        return _NAMES[optimizer.lower()]()
    raise ConfigError(
        f"A table's optimizer must be an object of tfhybrid.optimizers or one of {sorted(_NAMES)}. "
        f"Received: {optimizer!r}"
    )
