"""Check of rows that another program wrote: their keys, embeddings and optimizer states."""

from __future__ import annotations

import dataclasses
import math
import reprlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfhybrid.core.row_block import RowBlock
from tfhybrid.errors import DataError
from tfhybrid.values.cells import value_at
from tfhybrid.values.checking import Checked, check
from tfhybrid.values.column import Column
from tfhybrid.values.reasons import Reason, expected

_KEY = Column("key")
_NUMBER = Column("number", "number")


class RowCheck:
    """Check of the rows of one source, block after block. Not thread-safe.

    Args:
        places: Names of the source's keys, embeddings and optimizer states in errors, such as
            `"items.npz, array 'keys'"`.
        dim: Length of an embedding.
        state_shape: Shape of a row's optimizer state: vectors, and floats in each.
    """

    def __init__(self, places: Sequence[str], dim: int, state_shape: tuple[int, int]) -> None:
        self._places = places
        self._shapes = [(dim,), state_shape]
        self._first = 0

    def block(self, keys: Any, *parts: Any) -> RowBlock:
        """Returns the next rows of the source, converted.

        Args:
            keys: Keys: an Arrow array, a NumPy array `[n]` or a list.
            *parts: Embeddings and, if there are any, optimizer states: Arrow arrays of flat lists,
                NumPy arrays `[n, ...]` of the shape of a row, or lists of flat lists.

        Raises:
            DataError: A row is bad. The message names the first one of the block.
        """
        checked = [check(_KEY, keys)]
        for part, shape in zip(parts, self._shapes, strict=False):
            checked.append(_numbers(part, math.prod(shape)))
        if any(each.bad.any() for each in checked):
            raise self._first_fault(checked, [keys, *parts])
        self._first += len(checked[0].values)
        arrays = [
            each.values.reshape(len(part), *shape)
            for each, part, shape in zip(checked[1:], parts, self._shapes, strict=False)
        ]
        return RowBlock(checked[0].values, arrays[0], arrays[1] if len(arrays) > 1 else None)

    def _first_fault(self, checked: Sequence[Checked], values: Sequence[Any]) -> DataError:
        """Returns the error of the first bad row."""
        row, part = min(
            (int(np.argmax(each.bad)), part) for part, each in enumerate(checked) if each.bad.any()
        )
        value = value_at(values[part], row)
        if part:
            length = math.prod(self._shapes[part - 1])
            good_values = f"{length} finite number{'s' * (length > 1)} of float32"
            received = _received(value)
        else:
            good_values = expected(_KEY, Reason(checked[0].reasons[row]))
            received = reprlib.repr(value)
        return DataError(
            f"{self._places[part]}, row {self._first + row}: expected {good_values}. "
            f"Received: {received}."
        )


def _numbers(rows: Any, length: int) -> Checked:
    """Checks numbers of all rows, so many in each."""
    if not length:
        good = np.zeros(len(rows), np.uint8)
        return Checked(np.empty(0, np.float32), None, good != 0, good)
    if not isinstance(rows, np.ndarray):
        return _of_lists(length, rows)
    return check(dataclasses.replace(_NUMBER, length=length), rows.reshape(len(rows), length))


def _of_lists(length: int, rows: Any) -> Checked:
    """Checks rows of any lengths, so that each bad row is known."""
    bags = check(dataclasses.replace(_NUMBER, length=None), rows)
    assert bags.lengths is not None
    return bags.also_bad((bags.lengths != length) & ~bags.bad, Reason.LENGTH)


def _received(row: Any) -> str:
    """Returns the first bad number of a row and its index, or else the row."""
    if not isinstance(row, list):
        return reprlib.repr(row)
    bad = check(_NUMBER, row).bad
    if not bad.any():
        return f"{len(row)} numbers"
    index = int(np.argmax(bad))
    return f"{row[index]!r} at index {index}"
