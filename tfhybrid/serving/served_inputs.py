"""Inputs of a served model, as a client sends them: checked, and converted to tensors."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfhybrid.errors import DataError
from tfhybrid.values import Column, Reason, check, expected


def tensors_of(
    specs: Mapping[str, tf.TensorSpec], inputs: Mapping[str, Any], *, finite: bool
) -> dict[str, tf.Tensor]:
    """Returns the inputs of a request as tensors.

    Args:
        specs: Specifications of the model's inputs, by name.
        inputs: Arrays or lists, by the same names.
        finite: Whether NaN and infinite numbers are bad.

    Raises:
        DataError: A value is bad; the message names the input and the first bad value.
    """
    return {name: _tensor(name, specs[name].dtype, inputs[name], finite) for name in inputs}


def _tensor(name: str, dtype: tf.DType, value: Any, finite: bool) -> tf.Tensor:
    column = _column(name, dtype, finite)
    if column is None:
        try:
            return tf.convert_to_tensor(value, dtype)
        except (TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
            raise DataError(
                f"Input {name!r}: expected values of {dtype.name}. Received: {error}"
            ) from error
    # The type of an array of lists is decided value by value: [1, True] has no key True.
    array = np.asarray(value, object if isinstance(value, (list, tuple)) else None)
    if isinstance(value, np.ma.MaskedArray):
        array = value  # a masked value is missing
    if array.dtype == object and any(isinstance(each, (list, tuple)) for each in array.flat):
        raise DataError(
            f"Input {name!r}: expected lists of one length. Received: {reprlib.repr(value)}"
        )
    checked = check(column, array.reshape(-1))
    if checked.bad.any():
        number = int(np.argmax(checked.bad))
        index = [int(each) for each in np.unravel_index(number, array.shape)]
        received = reprlib.repr(array.reshape(-1)[number])
        raise DataError(
            f"Input {name!r}, index {index}: expected "
            f"{_words(column, Reason(checked.reasons[number]))}. Received: {received}"
        )
    return tf.constant(checked.values.reshape(array.shape), dtype)


def _column(name: str, dtype: tf.DType, finite: bool) -> Column | None:
    """Returns the column of an input; `None` for types that no column has."""
    if dtype == tf.string:
        return Column(name, "string")
    kind = np.dtype(dtype.as_numpy_dtype).kind
    if kind == "i":
        return Column(name, dtype=dtype.name)
    if kind == "f":
        missing = None if finite else float("nan")
        return Column(name, "number", dtype=dtype.name, finite=finite, missing=missing)
    return None


def _words(column: Column, reason: Reason) -> str:
    if column.role == "number":
        return f"a {'finite ' if column.finite else ''}number of {column.dtype}"
    if column.role == "key" and reason is not Reason.EXACT:
        return f"a whole number of {column.dtype}"
    return expected(column, reason)
