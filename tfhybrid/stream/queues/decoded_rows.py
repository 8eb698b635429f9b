"""The rows of a decoded record, good and bad."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tfhybrid.stream.queues.checked_array import CheckedArray
from tfhybrid.stream.queues.row_columns import RowColumn, RowColumns
from tfhybrid.values import Reason, expected

_SHOWN = 200  # characters of a value in a reason
_FEW = 8  # bad rows; up to here, a copy of what lies between them takes less time than `take`


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
        batch: Good rows, with the declared columns.
        numbers: Number in the record of each row of `batch`, int64, ascending.
        count: Number of rows in the record, good and bad. An unreadable record counts as one row.
        bad: Bad rows, by number. Default none.
    """

    batch: pa.RecordBatch
    numbers: np.ndarray
    count: int
    bad: tuple[BadRow, ...] = ()


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
        return _reason(declared, Reason(reasons[number]), value_of(declared, number))

    bad_numbers, numbers = np.flatnonzero(bad).tolist(), np.flatnonzero(~bad)
    bad_rows = tuple(BadRow(each, reason_of(each), payload_of(each)) for each in bad_numbers)
    return DecodedRows(_good(batch, numbers, bad_numbers), numbers, count, bad_rows)


def _good(batch: pa.RecordBatch, good: np.ndarray, bad: list[int]) -> pa.RecordBatch:
    """Returns the good rows of a batch, by the numbers of good and bad ones."""
    if len(bad) > _FEW:
        return batch.take(pa.array(good))
    firsts, ends = [0, *(number + 1 for number in bad)], [*bad, batch.num_rows]
    parts = [batch.slice(first, end - first) for first, end in zip(firsts, ends, strict=True)]
    return pa.concat_batches(parts)


def _reason(declared: RowColumn, reason: Reason, value: Any) -> str:
    name = declared.field.name
    if value is None:
        return f"Column '{name}' has no value"
    return (
        f"Column '{name}' ({declared.type}): expected {expected(declared.column, reason)}. "
        f"Received: {shown(value)}"
    )


def shown(value: Any) -> str:
    """Returns a value as text for a message, cut off if it is long.

    Args:
        value: Value of any type.
    """
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
