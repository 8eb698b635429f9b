"""Rows of a query as a record of a queue."""

from __future__ import annotations

import decimal
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tfhybrid.stream.queues import rows
from tfhybrid.stream.queues.queue import Record

# Errors that pyarrow raises for Python values that have no common type.
_NO_TYPE = (ValueError, TypeError, OverflowError, pa.ArrowException)


def record_of(names: Sequence[str], query_rows: Sequence[Sequence[Any]]) -> Record:
    """Returns rows as a record, of which each row is good or bad by itself.

    The record is an Arrow stream if each column has values of one type, or else lines of JSON.

    Args:
        names: Names of the columns.
        query_rows: Values of each row; at least one row.
    """
    columns = [_array(values) for values in zip(*query_rows, strict=True)]
    if any(column is None for column in columns):
        lines = [dict(zip(names, row, strict=True)) for row in query_rows]
        return rows.of_lines([json.dumps(line, default=_plain).encode() for line in lines])
    return rows.encode(pa.RecordBatch.from_arrays(columns, names=list(names)))


def _array(values: Sequence[Any]) -> pa.Array | None:
    if len(set(map(type, values)) - {type(None)}) > 1:
        return None  # Arrow would convert integers beside floats to floats
    try:
        return pa.array(values)
    except _NO_TYPE:
        return None


def _plain(value: Any) -> Any:
    """Returns a value as JSON has it; bytes are text, as they are in an Arrow stream."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).decode(errors="surrogateescape")
    return float(value) if isinstance(value, decimal.Decimal) else str(value)
