"""The rows of a decoded record, good and bad."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tfhybrid.stream.queues.checked_array import CheckedArray
from tfhybrid.stream.queues.row_columns import RowColumn, RowColumns
from tfhybrid.values import Reason, expected

_SHOWN = 200  # characters of a value in a reason
_FEW = 8  # bad rows; up to here, what lies between them is not copied


class BadRow(NamedTuple):
    """A row that is left out.

    Attributes:
        number: Number of the row in its record.
        reason: Description of its fault.
        payload: The row alone, as a record's payload; the whole payload of an unreadable record.
    """

    number: int
    reason: str
    payload: bytes


@dataclasses.dataclass(frozen=True)
class DecodedRows:
    """The rows of a record.

    Args:
        whole: All rows, with the declared columns. The values of bad rows mean nothing. Empty if
            the record is unreadable.
        numbers: Number in the record of each good row, int64, ascending.
        count: Number of rows in the record, good and bad. An unreadable record counts as one row.
        bad: Bad rows, by number. Default none.
    """

    whole: pa.RecordBatch
    numbers: np.ndarray
    count: int
    bad: tuple[BadRow, ...] = ()

    @functools.cached_property
    def batch(self) -> pa.RecordBatch:
        """Good rows."""
        parts = self.parts(0, len(self.numbers))
        if not parts:
            return self.whole.slice(0, 0)
        return parts[0] if len(parts) == 1 else pa.concat_batches(parts)

    def parts(self, first: int, count: int) -> list[pa.RecordBatch]:
        """Returns some of the good rows, in parts that need no copy if few rows are bad.

        Args:
            first: Number of the first row among the good ones.
            count: Number of rows.
        """
        numbers = self.numbers[first : first + count]
        if len(self.numbers) == self.whole.num_rows:
            return [self.whole.slice(first, count)]
        if len(self.bad) > _FEW:
            return [self.whole.take(pa.array(numbers))]
        ends = [*(np.flatnonzero(np.diff(numbers) > 1) + 1).tolist(), len(numbers)]
        firsts = [0, *ends[:-1]]
        return [
            self.whole.slice(int(numbers[begin]), end - begin)
            for begin, end in zip(firsts, ends, strict=True)
            if begin < end
        ]


def selected(
    columns: RowColumns,
    checked: list[CheckedArray],
    count: int,
    value_of: Callable[[RowColumn, int], Any],
    payload_of: Callable[[int], bytes],
    others: tuple[np.ndarray, Callable[[int], str]] | None = None,
) -> DecodedRows:
    """Returns the good rows of a record as a batch, and the bad ones with their reasons.

    Args:
        columns: The declared columns.
        checked: Array of each column.
        count: Number of rows.
        value_of: Function that returns a value by column and number of the row.
        payload_of: Function that returns a row as a payload.
        others: Mask of rows without any column, and a function that returns their reasons; `None`
            if there are none.
    """
    batch = pa.RecordBatch.from_arrays([each.array for each in checked], schema=columns.schema)
    faulty = [
        (declared, each.reasons)
        for declared, each in zip(columns.declared, checked, strict=True)
        if each.reasons is not None
    ]
    if not faulty and others is None:
        return DecodedRows(batch, np.arange(count), count)
    bad = np.zeros(count, bool) if others is None else others[0].copy()
    for _, reasons in faulty:
        bad |= reasons != 0

    def reason_of(number: int) -> str:
        if others is not None and others[0][number]:
            return others[1](number)
        declared, reasons = next(each for each in faulty if each[1][number])
        return _reason(declared, reasons[number], value_of(declared, number))

    bad_numbers, numbers = np.flatnonzero(bad).tolist(), np.flatnonzero(~bad)
    bad_rows = tuple(BadRow(each, reason_of(each), payload_of(each)) for each in bad_numbers)
    return DecodedRows(batch, numbers, count, bad_rows)


def _reason(declared: RowColumn, code: int, value: Any) -> str:
    name = declared.field.name
    if value is None:
        return f"Column '{name}' has no value"
    return (
        f"Column '{name}' ({declared.type}): expected {expected(declared.column, Reason(code))}. "
        f"Received: {shown(value)}"
    )


def shown(value: Any) -> str:
    """Returns a value as text for a message, cut off if it is long.

    Args:
        value: Value of any type.
    """
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
