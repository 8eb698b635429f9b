"""The check of a column's values: one table of rules behind three entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tfhybrid.values.cells import CellRows, Kind, rows_of
from tfhybrid.values.column import Column
from tfhybrid.values.reasons import Reason
from tfhybrid.values.rules import HashStrings, Ruled, apply


class Checked(NamedTuple):
    """The values of a column, and the rows that are bad.

    Attributes:
        values: Converted values: `[n]` if rows have one value, `[n, length]` if they have a fixed
            number, `[m]` for bags. Those of bad rows mean nothing.
        lengths: Number of values of each row of a bag, int64 `[n]`; else `None`.
        bad: Mask of the bad rows, `[n]`.
        reasons: `Reason` of each row, uint8 `[n]`; 0 if the row is good.
    """

    values: np.ndarray
    lengths: np.ndarray | None
    bad: np.ndarray
    reasons: np.ndarray

    def also_bad(self, rows: np.ndarray | None, reason: Reason = Reason.SPELLING) -> Checked:
        """Returns the same values with more rows that are bad.

        Args:
            rows: Mask of rows, `[n]`; `None` if there are none.
            reason: Reason for these rows. Default: their texts are malformed.
        """
        if rows is None or not rows.any():
            return self
        reasons = np.where(rows, reason, self.reasons).astype(np.uint8)
        return self._replace(bad=reasons != 0, reasons=reasons)


def check(
    column: Column,
    values: pa.Array | pa.ChunkedArray | np.ndarray | Sequence[Any],
    *,
    lengths: np.ndarray | None = None,
    hash_strings: HashStrings | None = None,
) -> Checked:
    """Checks and converts the values of a column. Never raises because of the values.

    Whether a row is good depends only on the row and the column, not on other rows, nor on whether
    the values come from Arrow, NumPy or Python. Any thread may call it.

    Args:
        column: Description of the column.
        values: Values of the rows: an Arrow array, a NumPy array `[n]` or `[n, length]`, or a
            list of Python values.
        lengths: Number of values of each row, `[n]`, for a flat array with the values of all rows.
            A row of a column of length 1 may then have no value, which is a missing one. By
            default each element of `values` is a row.
        hash_strings: Function that hashes distinct texts, an array of str or bytes objects, to
            int64 keys. By default strings are not hashed: their values are objects.

    Example:

    >>> checked = check(Column("user", missing=-1), [7, 8.0, None, True, 7.5])
    >>> checked.values[:3], checked.bad.tolist()
    (array([ 7,  8, -1]), [False, False, False, True, True])
    """
    lists = column.length != 1
    rows = rows_of(values, lists=lists, lengths=lengths, fill=_fill(column))
    if not lists and rows.lengths is not None:
        single = lengths is not None or _is_single(values)
        other = _single if single else _other_shape
        return other(column, rows, hash_strings)
    if lists and rows.lengths is None:
        return _other_shape(column, rows, hash_strings)
    ruled = _ruled(column, rows, hash_strings)
    if rows.lengths is None:
        if ruled.codes is None and rows.odd is None:
            return _all_good(ruled.values, rows.size)
        return _checked(ruled.values, None, _row_codes(rows, ruled.codes))
    codes = _row_codes(rows, _by_row(rows, ruled.codes))
    if column.length is None:
        return _checked(ruled.values, rows.lengths, codes)
    return _of_fixed_length(column.length, rows, ruled.values, codes)


def _fill(column: Column) -> int | None:
    """Returns the value that a null may get before the check, because it passes the check."""
    unbounded = column.length == 1 and column.low is None and column.high is None
    whole = column.role in ("key", "number") and column.dtype == "int64"
    return column.missing if unbounded and whole else None  # type: ignore[return-value]


def _is_single(values: Any) -> bool:
    """Returns whether all rows are lists of one value by their type."""
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return pa.types.is_fixed_size_list(values.type) and values.type.list_size == 1
    return isinstance(values, np.ndarray) and values.ndim == 2 and values.shape[1] == 1


def _ruled(column: Column, rows: CellRows, hash_strings: HashStrings | None) -> Ruled:
    """Applies the rules to values of all kinds."""
    if len(rows.parts) == 1 and rows.parts[0].where is None:
        return apply(column, rows.parts[0], hash_strings)
    count = sum(part.size for part in rows.parts)
    ruled = [apply(column, part, hash_strings) for part in rows.parts]
    objects = any(each.values.dtype == object for each in ruled)
    values = np.zeros(count, object if objects else column.dtype)
    codes = np.zeros(count, np.uint8)
    for part, each in zip(rows.parts, ruled, strict=True):
        values[part.where] = each.values
        if each.codes is not None:
            codes[part.where] = each.codes
    return Ruled(values, codes if codes.any() else None)


def _by_row(rows: CellRows, codes: np.ndarray | None) -> np.ndarray | None:
    """Returns the reason of each row: that of its first bad value."""
    if codes is None or rows.lengths is None:
        return codes
    bad = np.flatnonzero(codes)
    of_row = np.searchsorted(np.cumsum(rows.lengths), bad, "right")
    by_row = np.zeros(rows.size, np.uint8)
    by_row[of_row[::-1]] = codes[bad[::-1]]
    return by_row


def _row_codes(rows: CellRows, codes: np.ndarray | None) -> np.ndarray:
    if codes is None:
        codes = np.zeros(rows.size, np.uint8)
    if rows.odd is not None:
        codes = np.where(rows.odd, Reason.KIND, codes).astype(np.uint8)
    return codes


def _all_good(values: np.ndarray, size: int) -> Checked:
    """Returns the result of good rows of one value, in which mask and reasons are one array."""
    codes = np.zeros(size, np.uint8)
    return Checked(values, None, codes.view(np.bool_), codes)


def _checked(values: np.ndarray, lengths: np.ndarray | None, codes: np.ndarray) -> Checked:
    return Checked(values, lengths, codes != 0, codes)


def _other_shape(column: Column, rows: CellRows, hash_strings: HashStrings | None) -> Checked:
    """Returns the result where rows are lists by their type and should be values, or reversely.

    Only a null can be good then: as a missing value, or as an empty bag.
    """
    nulls = rows.absent if rows.lengths is not None else rows.parts[0].nulls
    if rows.lengths is None and rows.parts[0].kind is Kind.NULL:
        nulls = np.ones(rows.size, bool)
    if column.length == 1:
        missing = check(column, pa.nulls(rows.size), hash_strings=hash_strings)
        return missing.also_bad(np.ones(rows.size, bool) if nulls is None else ~nulls, Reason.KIND)
    codes = np.full(rows.size, Reason.KIND, np.uint8)
    if nulls is not None:
        codes[nulls] = Reason.LENGTH if column.length else Reason.NONE
    if column.length:
        return _checked(np.zeros((rows.size, column.length), column.dtype), None, codes)
    return _checked(np.zeros(0, column.dtype), np.zeros(rows.size, np.int64), codes)


def _single(column: Column, rows: CellRows, hash_strings: HashStrings | None) -> Checked:
    """Returns one value of each row that has one or none; other rows are bad."""
    assert rows.lengths is not None
    if (rows.lengths == 1).all():
        ruled = _ruled(column, rows, hash_strings)
        return _checked(ruled.values, None, _row_codes(rows, ruled.codes))
    ruled = _ruled(column, rows, hash_strings)
    missing = check(column, pa.nulls(rows.size), hash_strings=hash_strings)
    values, codes = missing.values, missing.reasons
    one = rows.lengths == 1
    places = (np.cumsum(rows.lengths) - rows.lengths)[one]
    values[one] = ruled.values[places]
    codes[one] = 0 if ruled.codes is None else ruled.codes[places]
    codes[rows.lengths > 1] = Reason.LENGTH
    return _checked(values, None, codes)


def _of_fixed_length(length: int, rows: CellRows, values: np.ndarray, codes: np.ndarray) -> Checked:
    """Returns values `[n, length]`; rows of another length are bad."""
    assert rows.lengths is not None
    fits = rows.lengths == length
    if fits.all():
        return _checked(values.reshape(-1, length), None, codes)
    matrix = np.zeros((rows.size, length), values.dtype)
    matrix[fits] = values[np.repeat(fits, rows.lengths)].reshape(-1, length)
    codes = np.where(fits | (codes != 0), codes, Reason.LENGTH).astype(np.uint8)
    return _checked(matrix, None, codes)
