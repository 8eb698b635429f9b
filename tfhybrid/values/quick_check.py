"""A quick check of Arrow arrays, whose answer is either that all rows are good, or to check them.

It looks at types, at counts of nulls, and at the floats of all columns together. So its cost hardly
grows with the number of columns and rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tfhybrid.values.column import Column


class ArrowColumn(NamedTuple):
    """A column of a known Arrow type.

    Attributes:
        column: Description of the good values.
        type: Arrow type of the values.
        nullable: Whether rows that are null count as good, and stay null. Default false.
    """

    column: Column
    type: pa.DataType
    nullable: bool = False


class QuickCheck:
    """Quick check of arrays, one for each column. Immutable, so any thread may use it.

    Args:
        columns: Columns in the order of the arrays.

    Example:

    >>> quick = QuickCheck([ArrowColumn(Column("price", "number"), pa.float32())])
    >>> quick.doubtful([pa.array([0.5], pa.float32())]), quick.doubtful([pa.array([1])])
    ([], [0])
    """

    def __init__(self, columns: Sequence[ArrowColumn]) -> None:
        self._types = [each.type for each in columns]
        self._undecided = {
            number for number, each in enumerate(columns) if not _keeps_values(*each[:2])
        }
        decided = [each for each in enumerate(columns) if each[0] not in self._undecided]
        self._without_nulls = [number for number, each in decided if not each.nullable]
        self._lists = [number for number, each in decided if each.column.length != 1]
        floats: dict[pa.DataType, list[int]] = {}
        for number, each in decided:
            if pa.types.is_floating(kind := _leaf(each.type)):
                floats.setdefault(kind, []).append(number)
        self._floats = list(floats.values())

    def doubtful(self, arrays: Sequence[pa.Array]) -> list[int]:
        """Returns the numbers of the arrays that may have bad rows, ascending.

        In the others `check` would find no bad row, and change no value.

        Args:
            arrays: Values of the rows of each column.
        """
        doubtful = set(self._undecided)
        types = [array.type for array in arrays]
        if types != self._types:
            pairs = enumerate(zip(types, self._types, strict=True))
            doubtful.update(number for number, (received, own) in pairs if received != own)
        doubtful.update(number for number in self._without_nulls if arrays[number].null_count)
        leaves = list(arrays)
        for number in self._lists:
            if number not in doubtful:
                leaves[number] = arrays[number].values  # also those outside of a slice
                if leaves[number].null_count:
                    doubtful.add(number)
        for group in self._floats:
            rest = [number for number in group if number not in doubtful]
            if not _are_finite([leaves[number] for number in rest]):
                doubtful.update(number for number in rest if not _are_finite([leaves[number]]))
        return sorted(doubtful)


def _leaf(kind: pa.DataType) -> pa.DataType:
    """Returns the type of single values."""
    nested = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return kind.value_type if any(is_of(kind) for is_of in nested) else kind


def _keeps_values(column: Column, kind: pa.DataType) -> bool:
    """Returns whether every value of a type is good and stays the same, if it is finite."""
    leaf = _leaf(kind)
    if pa.types.is_fixed_size_list(kind):
        of_length = column.length == kind.list_size and column.length != 1
    else:
        of_length = column.length == (1 if leaf is kind else None)
    if not of_length:
        return False
    if column.role == "string":
        text = pa.types.is_string(leaf) or pa.types.is_large_string(leaf)
        return text and column.empty == "string"
    if column.role == "time" or column.classes:
        return False
    if column.whole:
        return _within(column, leaf)
    unlimited = column.low is None and column.high is None
    return unlimited and pa.types.is_floating(leaf) and column.dtype == f"float{leaf.bit_width}"


def _within(column: Column, kind: pa.DataType) -> bool:
    """Returns whether a column accepts every integer, or true and false, of a type."""
    if pa.types.is_integer(kind):
        limits = np.iinfo(str(kind))
        lowest, highest = int(limits.min), int(limits.max)
    elif pa.types.is_boolean(kind) and column.role != "key":
        lowest, highest = 0, 1
    else:
        return False
    own = np.iinfo(column.dtype)
    fits = own.min <= lowest and highest <= own.max
    above = column.low is None or column.low <= lowest
    return fits and above and (column.high is None or highest <= column.high)


def _are_finite(arrays: list[pa.Array]) -> bool:
    """Returns whether all floats that are not null are finite, in arrays of one type."""
    if not arrays:
        return True
    # Together, because each call of NumPy costs more than the floats of a short column.
    whole = arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
    numbers = whole.drop_null() if whole.null_count else whole
    return bool(np.isfinite(numbers.to_numpy(zero_copy_only=False)).all())
