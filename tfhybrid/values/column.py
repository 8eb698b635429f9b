"""Description of a column: which of its values are good, and what they become."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from tfhybrid.errors import ConfigError

Role = Literal["key", "number", "label", "string", "time"]
_DTYPES = {"key": "int64", "string": "int64", "time": "int64", "number": "float32"}
_EMPTY = ("string", "missing")


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of values, in a file, a stream or a request.

    Args:
        name: Name of the column.
        role: Use of the values. `"key"` (default): whole numbers. `"number"`: numbers.
            `"label"`: numbers or classes. `"string"`: texts, which are hashed to keys. `"time"`:
            times, which become microseconds since 1970 in UTC.
        dtype: NumPy dtype of the checked values: a signed integer, or a float for numbers and
            labels. Defaults to int64 for keys, strings, times and
            named classes, and to float32 for numbers and other labels.
        length: Number of values in a row: 1 (default), n, or `None` for any number (a bag).
        missing: Value that replaces a missing one: null, or NaN among numbers. A text replaces a
            missing string before it is hashed. By default a row without a value is bad. A bag
            that is null is an empty bag in any case.
        empty: Meaning of an empty text: `"string"` (default), a string as any other, or
            `"missing"`, a missing value.
        low: Smallest good value. Default: none.
        high: Largest good value. Default: none.
        finite: Whether infinite numbers are bad. Default true.
        classes: Good values of a label; or the names of classes, of which the index is read.
            Default: any.

    Raises:
        ConfigError: A setting has a wrong type, or contradicts another one.

    Example:

    >>> Column("user", missing=-1).dtype
    'int64'
    """

    name: str
    role: Role = "key"
    dtype: str = ""
    length: int | None = 1
    missing: int | float | str | None = None
    empty: Literal["string", "missing"] = "string"
    low: float | None = None
    high: float | None = None
    finite: bool = True
    classes: Sequence[float | str] = ()

    def __post_init__(self) -> None:
        if self.role not in get_args(Role) or self.empty not in _EMPTY:
            raise ConfigError(
                f"A Column's role must be one of {get_args(Role)}, and empty one of {_EMPTY}. "
                f"Received: {self}"
            )
        whole = isinstance(self.length, (int, np.integer)) and not isinstance(self.length, bool)
        if self.length is not None and not (whole and self.length >= 1):
            raise ConfigError(
                f"A Column's length must be a whole number, at least 1, or None. Received: {self}"
            )
        if not all(each is None or is_number(each) for each in (self.low, self.high)):
            raise ConfigError(
                "A Column's low and high must be numbers, for times microseconds since 1970. "
                f"Received: low={self.low!r}, high={self.high!r}"
            )
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ConfigError(f"A Column's low must not be above its high. Received: {self}")
        if self.classes and self.role != "label":
            raise ConfigError(f"Only a label has classes. Received: {self}")
        self._check_classes()
        object.__setattr__(self, "classes", tuple(self.classes))
        try:
            dtype = np.dtype(self.dtype or self._default_dtype())
        except TypeError as error:
            raise ConfigError(f"A Column's dtype must be one of NumPy. Received: {self}") from error
        object.__setattr__(self, "dtype", str(dtype))
        self._check_dtype()
        self._check_missing()

    @property
    def named(self) -> bool:
        """Whether the values are names of classes."""
        return any(isinstance(each, str) for each in self.classes)

    @property
    def whole(self) -> bool:
        """Whether the checked values are whole numbers."""
        return np.dtype(self.dtype).kind == "i"

    def _default_dtype(self) -> str:
        return _DTYPES.get(self.role, "int64" if self.named else "float32")

    def _check_classes(self) -> None:
        classes = self.classes
        if isinstance(classes, (list, tuple)):
            names = [isinstance(each, str) for each in classes]
            if all(names) or not any(names):
                return
        raise ConfigError(
            "A Column's classes must be a list, of numbers or of names alone. "
            f"Received: {classes!r}"
        )

    def _check_dtype(self) -> None:
        if self.role in ("string", "time"):
            fits = self.dtype == "int64"
        else:
            is_float = np.dtype(self.dtype).kind == "f" and self.role != "key"
            fits = self.whole or is_float
        if not fits:
            raise ConfigError(
                "A Column's dtype must be int64 for strings and times, a signed integer for keys, "
                f"and a signed integer or a float for numbers and labels. Received: {self}"
            )

    def _check_missing(self) -> None:
        missing = self.missing
        if missing is None or (isinstance(missing, str) and self.role == "string"):
            return
        number = is_number(missing)
        if number and not self.whole:
            with np.errstate(over="ignore"):
                held = np.array([missing]).astype(self.dtype)[0]
            number = bool(np.isfinite(held)) or not math.isfinite(missing)  # type: ignore[arg-type]
        elif number:
            limits = np.iinfo(self.dtype)
            number = math.isfinite(missing) and missing == int(missing)  # type: ignore[arg-type]
            number = number and limits.min <= int(missing) <= limits.max
        if not number:
            kind = "a whole number" if self.whole else "a number"
            raise ConfigError(
                f"The value for a missing one of column {self.name!r} must be {kind} that fits "
                f"{self.dtype}. Received: {missing!r}"
            )


def is_number(value: object) -> bool:
    """Returns whether a value is a number of Python or NumPy; `True` and `False` are none."""
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
