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
        checked = check(_KEY, keys)
        if checked.bad.any():
            row = int(np.argmax(checked.bad))
            good_values = expected(_KEY, Reason(checked.reasons[row]))
            raise self._error(0, row, good_values, reprlib.repr(value_at(keys, row)))
        arrays = [
            self._numbers(number, part, shape)
            for number, (part, shape) in enumerate(zip(parts, self._shapes, strict=False), 1)
        ]
        self._first += len(checked.values)
        return RowBlock(checked.values, arrays[0], arrays[1] if len(arrays) > 1 else None)

    def _numbers(self, part: int, rows: Any, shape: tuple[int, ...]) -> np.ndarray:
        """Returns numbers of all rows, float32 `[n, *shape]`."""
        length = math.prod(shape)
        if not length:
            return np.empty((len(rows), *shape), np.float32)
        if isinstance(rows, np.ndarray):
            column = dataclasses.replace(_NUMBER, length=length)
            rows = rows.reshape(len(rows), length)
            checked = check(column, rows)
        else:
            checked = _of_lists(length, rows)
        if checked.bad.any():
            row = int(np.argmax(checked.bad))
            numbers = "1 finite number" if length == 1 else f"{length} finite numbers"
            raise self._error(part, row, f"{numbers} of float32", _received(value_at(rows, row)))
        return checked.values.reshape(-1, *shape)

    def _error(self, part: int, row: int, good_values: str, received: str) -> DataError:
        return DataError(
            f"{self._places[part]}, row {self._first + row}: expected {good_values}. "
            f"Received: {received}."
        )


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
