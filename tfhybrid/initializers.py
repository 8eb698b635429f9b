"""Initial values of embeddings: pure functions of (job seed, table name, key, column).

A lookup of a key that was never updated computes its value on the fly, on every rank and host
alike, so nothing is stored or sent for it. The formulas: `custom_ops/core/compute/initializer.h`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

from tfhybrid.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Initializer:
    """Base of the initializers: a kind and at most two parameters, the fields of the class."""

    kind: ClassVar[int]  # InitializerKind of the core

    @property
    def native(self) -> tuple[int, float, float]:
        """The kind and its two parameters, as the core has them."""
        values = [float(getattr(self, field.name)) for field in dataclasses.fields(self)]
        a, b = (*values, 0.0, 0.0)[:2]
        return self.kind, a, b

    def __post_init__(self) -> None:
        _, a, b = self.native
        if not (math.isfinite(a) and math.isfinite(b)):
            raise ConfigError(f"An initializer's parameters are finite. Received: {self}")


@dataclasses.dataclass(frozen=True)
class Zeros(Initializer):
    """Every value is 0."""

    kind = 0


@dataclasses.dataclass(frozen=True)
class Constant(Initializer):
    """Every value is `value`."""

    value: float = 0.0

    kind = 1


@dataclasses.dataclass(frozen=True)
class Uniform(Initializer):
    """Uniform between `minval` and `maxval`; Keras's default for embeddings."""

    minval: float = -0.05
    maxval: float = 0.05

    kind = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.minval > self.maxval:
            raise ConfigError(f"Uniform wants minval <= maxval. Received: {self}")


@dataclasses.dataclass(frozen=True)
class Normal(Initializer):
    """Normal with `mean` and standard deviation `stddev`."""

    mean: float = 0.0
    stddev: float = 0.05

    kind = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stddev < 0:
            raise ConfigError(f"A normal distribution wants stddev >= 0. Received: {self}")


@dataclasses.dataclass(frozen=True)
class TruncatedNormal(Normal):
    """Normal with `mean` and `stddev`, restricted to two standard deviations around the mean."""

    kind = 4


_NAMES: dict[str, type[Initializer]] = {
    "zeros": Zeros,
    "uniform": Uniform,
    "normal": Normal,
    "truncated_normal": TruncatedNormal,
}


def get(initializer: Initializer | str) -> Initializer:
    """Returns an initializer given as an object or by name.

    Args:
        initializer: An `Initializer`, or one of `"zeros"`, `"uniform"`, `"normal"`,
            `"truncated_normal"`, with default parameters.

    Raises:
        ConfigError: No initializer has that name.

    Example:

    >>> get("uniform")
    Uniform(minval=-0.05, maxval=0.05)
    """
    if isinstance(initializer, Initializer):
        return initializer
    if initializer in _NAMES:
        return _NAMES[initializer]()
    raise ConfigError(
        f"initializer is an object of tfhybrid.initializers or one of {sorted(_NAMES)}. "
        f"Received: {initializer!r}"
    )
