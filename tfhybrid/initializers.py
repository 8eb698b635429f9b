"""Initial values of embeddings: pure functions of (job seed, table name, key, column).

A lookup of a key that was never updated computes its value on the fly, on every rank and host
alike, so nothing is stored or sent for it. The formulas are in `custom_ops/core/compute/initializer.h`.
"""

from __future__ import annotations

import dataclasses
import math

from tfhybrid.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Initializer:
    """Base of the initializers: what the native function wants to know."""

    @property
    def native(self) -> tuple[int, float, float]:
        """The kind's number and its two parameters."""
        raise NotImplementedError

    def __post_init__(self) -> None:
        kind, a, b = self.native
        if not (math.isfinite(a) and math.isfinite(b)):
            raise ConfigError(f"An initializer's parameters are finite. Received: {self}")
        if (kind == 2 and a > b) or (kind in (3, 4) and b < 0):
            raise ConfigError(
                f"An initializer wants minval <= maxval and stddev >= 0. Received: {self}"
            )


@dataclasses.dataclass(frozen=True)
class Zeros(Initializer):
    """Every value is 0."""

    @property
    def native(self) -> tuple[int, float, float]:
        return 0, 0.0, 0.0


@dataclasses.dataclass(frozen=True)
class Constant(Initializer):
    """Every value is `value`."""

    value: float = 0.0

    @property
    def native(self) -> tuple[int, float, float]:
        return 1, float(self.value), 0.0


@dataclasses.dataclass(frozen=True)
class Uniform(Initializer):
    """Uniform between `minval` and `maxval`; Keras's default for embeddings."""

    minval: float = -0.05
    maxval: float = 0.05

    @property
    def native(self) -> tuple[int, float, float]:
        return 2, float(self.minval), float(self.maxval)


@dataclasses.dataclass(frozen=True)
class Normal(Initializer):
    """Normal with `mean` and standard deviation `stddev`."""

    mean: float = 0.0
    stddev: float = 0.05

    @property
    def native(self) -> tuple[int, float, float]:
        return 3, float(self.mean), float(self.stddev)


@dataclasses.dataclass(frozen=True)
class TruncatedNormal(Initializer):
    """Normal with `mean` and `stddev`, restricted to two standard deviations around the mean."""

    mean: float = 0.0
    stddev: float = 0.05

    @property
    def native(self) -> tuple[int, float, float]:
        return 4, float(self.mean), float(self.stddev)


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
