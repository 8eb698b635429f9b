"""Checked columns as Arrow arrays of the declared type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tfhybrid.stream.queues.row_columns import RowColumn, RowColumns
from tfhybrid.values import Checked, Reason, check

# Errors that pyarrow raises for Python values that have no common type.
_NO_TYPE = (ValueError, TypeError, OverflowError, RecursionError, pa.ArrowException)

_TEXTS = {pa.string(), pa.large_string(), pa.string_view()}


class CheckedArray(NamedTuple):
    """A column of rows in its declared type.

    Attributes:
        array: Values. Those of bad rows mean nothing.
        reasons: `Reason` of each row, uint8 `[n]`; `None` if all rows are good.
    """

    array: pa.Array
    reasons: np.ndarray | None = None


def of_python(declared: RowColumn, values: list[Any]) -> CheckedArray:
    """Checks and converts Python values, one for each row.

    Args:
        declared: Column of the values.
        values: Values as JSON has them; `None` for a missing one.
    """
    try:
        array = pa.array(values)
    except _NO_TYPE:
        return _converted(declared, values)
    if declared.column.whole and pa.types.is_floating(_leaf(array.type)):
        # Arrow has made floats of what may be integers, and of true and false.
        return _converted(declared, values)
    return of_arrow(declared, array)


def of_arrow(declared: RowColumn, array: pa.Array) -> CheckedArray:
    """Checks and converts an Arrow array; does not copy one that is as declared.

    Args:
        declared: Column of the values.
        array: Values, which `Array.validate` has found valid.
    """
    as_declared = array if array.type == declared.type else _cast(declared, array)
    if as_declared is None:
        return _converted(declared, array)
    if not declared.quick.doubtful([as_declared]):
        return CheckedArray(as_declared)
    if declared.refuses_nulls and not declared.present.doubtful([as_declared]):
        absent = as_declared.is_null().to_numpy(zero_copy_only=False)
        return CheckedArray(as_declared, absent * np.uint8(Reason.MISSING))
    return _converted(declared, array)


def of_record(columns: RowColumns, arrays: Sequence[pa.Array]) -> list[CheckedArray]:
    """Checks and converts the arrays of a record, most of them without a look at their values.

    Args:
        columns: Columns of the values.
        arrays: Values of each column, as `of_arrow` takes them.
    """
    checked = [CheckedArray(array) for array in arrays]
    for number in columns.quick.doubtful(arrays):
        checked[number] = of_arrow(columns.declared[number], arrays[number])
    return checked


def _cast(declared: RowColumn, array: pa.Array) -> pa.Array | None:
    """Returns what `check` would make of an array if no row is bad; `None` if that takes a check.

    A number that has no finite float is infinite in the result.
    """
    if {array.type, declared.type} <= _TEXTS:
        return array.cast(declared.type)
    of_numbers = pa.types.is_integer(array.type) or pa.types.is_floating(array.type)
    if of_numbers and pa.types.is_floating(declared.type):
        return array.cast(declared.type, safe=False)
    return None


def _leaf(dtype: pa.DataType) -> pa.DataType:
    return dtype.value_type if pa.types.is_list(dtype) else dtype


def _converted(declared: RowColumn, values: pa.Array | list[Any]) -> CheckedArray:
    """Checks all values, and makes an array of those of good rows."""
    checked = check(declared.column, values)
    absent = _absent(declared, values, checked)
    unset = checked.bad if absent is None else checked.bad | absent
    checked = checked.also_bad(absent, Reason.NONE if declared.nullable else Reason.MISSING)
    if declared.column.length == 1:
        array, malformed = _leaves(declared.type, checked.values, unset)
    else:
        array, malformed = _lists(declared, checked, unset, absent)
    checked = checked.also_bad(malformed)
    return CheckedArray(array, checked.reasons if checked.bad.any() else None)


def _absent(
    declared: RowColumn, values: pa.Array | list[Any], checked: Checked
) -> np.ndarray | None:
    """Returns the mask of rows without a value; `None` if there is none."""
    if declared.column.length == 1:
        absent = checked.reasons == Reason.MISSING
    elif isinstance(values, pa.Array):
        absent = values.is_null().to_numpy(zero_copy_only=False)
    else:
        absent = np.fromiter((value is None for value in values), bool, len(values))
    return absent if absent.any() else None


def _lists(
    declared: RowColumn, checked: Checked, unset: np.ndarray, absent: np.ndarray | None
) -> tuple[pa.Array, np.ndarray | None]:
    length = declared.column.length
    lengths = checked.lengths
    if lengths is None:
        assert length is not None
        lengths = np.full(len(unset), length, np.int64)
    of_items = np.repeat(unset, lengths)
    items, malformed = _leaves(declared.type.value_type, checked.values.reshape(-1), of_items)
    if malformed is not None:
        rows = np.arange(len(lengths))
        malformed = np.isin(rows, np.repeat(rows, lengths)[malformed])
    mask = None if absent is None else pa.array(absent)
    if length is not None:
        lists = pa.FixedSizeListArray.from_arrays(items, type=declared.type, mask=mask)
        return lists, malformed
    large = pa.types.is_large_list(declared.type)
    offsets = np.zeros(len(lengths) + 1, np.int64 if large else np.int32)
    np.cumsum(lengths, out=offsets[1:])
    kind = pa.LargeListArray if large else pa.ListArray
    return kind.from_arrays(pa.array(offsets), items, type=declared.type, mask=mask), malformed


def _leaves(
    dtype: pa.DataType, values: np.ndarray, unset: np.ndarray
) -> tuple[pa.Array, np.ndarray | None]:
    """Returns values as an array, null where they are unset, and the mask of malformed texts."""
    mask = unset if unset.any() else None
    if values.dtype != object:
        array = pa.array(values, mask=mask)
        return array if array.type == dtype else array.cast(dtype), None
    try:
        return pa.array(values, dtype, mask=mask), None
    except _NO_TYPE:  # a text is no UTF-8
        texts = [None if skip else _decoded(text) for text, skip in zip(values, unset, strict=True)]
        return pa.array(texts, dtype), ~unset & np.array([text is None for text in texts])


def _decoded(text: str | bytes) -> str | None:
    try:
        return text.decode() if isinstance(text, bytes) else text.encode().decode()
    except UnicodeError:
        return None
