"""Initial values of embeddings: pure functions of (job seed, table name, key, column).

A lookup of a key that was never updated computes its value on the fly. The value is the same on
every rank and host, so nothing is stored or sent for it. Formulas:
`custom_ops/core/compute/initializer.h`.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Callable
from typing import Any, ClassVar

from tfhybrid.errors import ConfigError

# The standard deviation of a standard normal distribution that is truncated at -2 and 2.
_TRUNCATED_STDDEV = 0.87962566103423978


@dataclasses.dataclass(frozen=True)
class Initializer:
    """Base class of initializers: a kind, and at most two parameters as fields.

    Attributes:
        kind: `InitializerKind` of the core.

    Raises:
        ConfigError: A parameter is not finite.
    """

    kind: ClassVar[int]

    @property
    def native(self) -> tuple[int, float, float]:
        """The argument `initializer` of `Engine.open_table`: number of the kind, two parameters.

        Parameters that this kind does not have are 0.
        """
        values = [float(getattr(self, field.name)) for field in dataclasses.fields(self)]
        a, b = (*values, 0.0, 0.0)[:2]
        return self.kind, a, b

    def __post_init__(self) -> None:
        _, a, b = self.native
        if not (math.isfinite(a) and math.isfinite(b)):
            raise ConfigError(f"An initializer's parameters must be finite. Received: {self}")


@dataclasses.dataclass(frozen=True)
class Zeros(Initializer):
    """Initializer with zeros."""

    kind = 0


@dataclasses.dataclass(frozen=True)
class Constant(Initializer):
    """Initializer with a constant.

    Args:
        value: Every value of an embedding.

    Raises:
        ConfigError: `value` is not finite.
    """

    value: float = 0.0

    kind = 1


@dataclasses.dataclass(frozen=True)
class Uniform(Initializer):
    """Initializer with a uniform distribution, Keras's default for embeddings.

    Args:
        minval: Lower end of the distribution.
        maxval: Upper end of the distribution.

    Raises:
        ConfigError: `minval` is above `maxval`, or one of them is not finite.
    """

    minval: float = -0.05
    maxval: float = 0.05

    kind = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.minval > self.maxval:
            raise ConfigError(f"Uniform needs minval <= maxval. Received: {self}")


@dataclasses.dataclass(frozen=True)
class Normal(Initializer):
    """Initializer with a normal distribution.

    Args:
        mean: Mean of the distribution.
        stddev: Standard deviation, at least 0.

    Raises:
        ConfigError: `stddev` is below 0, or a parameter is not finite.
    """

    mean: float = 0.0
    stddev: float = 0.05

    kind = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stddev < 0:
            raise ConfigError(f"A normal distribution needs stddev >= 0. Received: {self}")


@dataclasses.dataclass(frozen=True)
class TruncatedNormal(Normal):
    """Initializer with a normal distribution, truncated at two standard deviations.

    Args:
        mean: Mean of the distribution.
        stddev: Standard deviation before the truncation, at least 0.

    Raises:
        ConfigError: `stddev` is below 0, or a parameter is not finite.
    """

    kind = 4


def VarianceScaling(  # noqa: N802 - named as in Keras
    dim: int, scale: float = 1.0, distribution: str = "truncated_normal"
) -> Initializer:
    """Returns an initializer whose values have the variance `scale / dim`.

    This is `keras.initializers.VarianceScaling` with `mode="fan_out"`, the only mode that makes
    sense when the number of keys is unbounded.

    Args:
        dim: Length of an embedding.
        scale: Variance times `dim`. Default 1.
        distribution: `"truncated_normal"` (default), `"untruncated_normal"` or `"uniform"`.

    Raises:
        ConfigError: The distribution is unknown, or `dim` or `scale` is not above 0.

    Example:

    >>> VarianceScaling(dim=16, distribution="untruncated_normal")
    Normal(mean=0.0, stddev=0.25)
    """
    if not (dim > 0 and scale > 0):
        raise ConfigError(f"VarianceScaling needs dim > 0 and scale > 0. Received: {dim}, {scale}")
    stddev = math.sqrt(scale / dim)
    match distribution:
        case "truncated_normal":
            return TruncatedNormal(0.0, stddev / _TRUNCATED_STDDEV)
        case "untruncated_normal":
            return Normal(0.0, stddev)
        case "uniform":
            return Uniform(-math.sqrt(3.0) * stddev, math.sqrt(3.0) * stddev)
    raise ConfigError(
        "distribution must be 'truncated_normal', 'untruncated_normal' or 'uniform'. "
        f"Received: {distribution!r}"
    )


_NAMES: dict[str, Callable[[], Initializer]] = {
    "zeros": Zeros,
    "ones": lambda: Constant(1.0),
    "uniform": Uniform,
    "random_uniform": Uniform,
    "normal": Normal,
    "random_normal": Normal,
    "truncated_normal": TruncatedNormal,
}


def get(initializer: Any, dim: int | None = None, *, keys: int | None = None) -> Initializer:
    """Returns an initializer given as an object or by name.

    Args:
        initializer: An `Initializer`; one of `"zeros"`, `"ones"`, `"uniform"`, `"random_uniform"`,
            `"normal"`, `"random_normal"`, `"truncated_normal"`, with default parameters; or an
            object of `keras.initializers`: `Zeros`, `Ones`, `Constant`, `RandomUniform`,
            `RandomNormal`, `TruncatedNormal`, or `VarianceScaling` with `mode="fan_out"`, without a
            seed.
        dim: Length of an embedding; needed for `VarianceScaling`.
        keys: Number of keys, as `keras.layers.Embedding` has it. With it, all objects of Keras's
            `VarianceScaling` are accepted, such as `GlorotUniform`, and seeds are ignored. Default:
            `None`, the number is unbounded.

    Raises:
        ConfigError: The initializer is none of these, a Keras initializer has a seed, an array of
            constants or parameters out of range, or `dim` is missing for `VarianceScaling`.

    Example:

    >>> get("uniform")
    Uniform(minval=-0.05, maxval=0.05)
    """
    if isinstance(initializer, Initializer):
        return initializer
    if isinstance(initializer, str) and initializer in _NAMES:
        return _NAMES[initializer]()
    counterpart = _of_keras(initializer, dim, keys)
    if counterpart is not None:
        return counterpart
    raise ConfigError(
        f"initializer must be one of tfhybrid.initializers, one of {sorted(_NAMES)}, or Zeros, "
        "Ones, Constant, RandomUniform, RandomNormal, TruncatedNormal or "
        "VarianceScaling(mode='fan_out') of keras.initializers. Others depend on the number of "
        "keys, which is unbounded. "
        f"Received: {initializer!r}"
    )


def _of_keras(initializer: Any, dim: int | None, keys: int | None) -> Initializer | None:
    """Returns the counterpart of an object of `keras.initializers`, without importing Keras."""
    if not (type(initializer).__module__ or "").startswith(("keras.", "tf_keras.")):
        return None
    config = initializer.get_config()
    if keys is None and config.get("seed") is not None:
        raise ConfigError(
            "A table's initial values depend on tfhybrid.init(seed=...) and the table's name, not "
            f"on another seed. Received: {type(initializer).__name__} with seed={config['seed']!r}"
        )
    if dim is not None and hasattr(initializer, "mode"):
        return _scaled(initializer, dim, keys)
    match type(initializer).__name__, config:
        case "Zeros", _:
            return Zeros()
        case "Ones", _:
            return Constant(1.0)
        case "Constant", {"value": value}:
            return _constant(value)
        case "RandomUniform", {"minval": minval, "maxval": maxval}:
            return Uniform(minval, maxval)
        case "RandomNormal", {"mean": mean, "stddev": stddev}:
            return Normal(mean, stddev)
        case "TruncatedNormal", {"mean": mean, "stddev": stddev}:
            return TruncatedNormal(mean, stddev)
    return None


def _scaled(initializer: Any, dim: int, keys: int | None) -> Initializer | None:
    """Returns the counterpart of Keras's `VarianceScaling` or a class that it is the base of."""
    fans = {"fan_out": 2 * dim}
    if keys is not None:
        fans |= {"fan_in": 2 * keys, "fan_avg": keys + dim}
    fan = fans.get(initializer.mode)
    if fan is None:
        return None
    return VarianceScaling(fan, 2 * initializer.scale, initializer.distribution)


def _constant(value: Any) -> Initializer:
    if not isinstance(value, numbers.Real):
        raise ConfigError(
            "An initializer is one constant for all keys. Load an array of rows when the layer is "
            "built: layer.table.load(tfhybrid.checkpoint.ArrayRows(keys, embeddings)). Received: "
            f"Constant with {type(value).__name__}"
        )
    return Constant(float(value))
