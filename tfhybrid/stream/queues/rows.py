"""The encoding of rows in records: decodes JSON or Arrow to the declared columns.

A record's payload is a JSON object (a row), a JSON list of objects (rows), or an Arrow IPC stream.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tfhybrid.stream.queues.queue import Record

# Errors that json and pyarrow raise for a malformed payload.
_BAD = (ValueError, TypeError, KeyError, OverflowError, RecursionError, OSError, pa.ArrowException)


@dataclasses.dataclass(frozen=True)
class DecodedRows:
    """The rows of a record.

    Args:
        batch: Good rows, with the declared columns.
        numbers: Number in the record of each row of `batch`, int64, ascending.
        count: Number of rows in the record, good and bad. An unreadable record counts as one row.
        bad: Number of each bad row, and the description of its fault. Default none.
    """

    batch: pa.RecordBatch
    numbers: np.ndarray
    count: int
    bad: tuple[tuple[int, str], ...] = ()


def encode(batch: pa.RecordBatch, **attributes: str) -> Record:
    """Encodes a batch as a record.

    Args:
        batch: Rows to encode.
        **attributes: Attributes of the record.

    Returns:
        A record whose payload is an Arrow IPC stream.
    """
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return Record(sink.getvalue().to_pybytes(), attributes)


def decode(record: Record, schema: pa.Schema) -> DecodedRows:
    """Decodes the rows of a record. Never raises for bad data: bad rows are listed in the result.

    A row is bad if a column is missing, has another type, or is null although the schema does not
    allow it. Columns that are not in the schema are dropped.

    Args:
        record: Record whose payload is JSON or an Arrow IPC stream.
        schema: The declared columns.

    Returns:
        The good rows, and the numbers and faults of the bad ones.

    Example:

    >>> schema = pa.schema([pa.field("item", pa.int64(), nullable=False)])
    >>> rows = decode(Record(b'[{"item": 7}, {"item": "seven"}]'), schema)
    >>> rows.batch.to_pylist(), [number for number, _ in rows.bad]
    ([{'item': 7}], [1])
    """
    try:
        if record.payload.lstrip()[:1] in (b"{", b"["):
            return _from_json(json.loads(record.payload), schema)
        return _from_arrow(record.payload, schema)
    except _BAD as error:
        empty = pa.RecordBatch.from_pylist([], schema=schema)
        return DecodedRows(empty, np.empty(0, np.int64), 1, ((0, _reason(error)),))


def _from_json(value: Any, schema: pa.Schema) -> DecodedRows:
    rows = value if isinstance(value, list) else [value]
    try:
        return _checked(_batch(rows, schema))
    except _BAD:
        return _one_by_one(rows, schema)


def _one_by_one(rows: Sequence[Any], schema: pa.Schema) -> DecodedRows:
    good, bad = [], []
    for number, row in enumerate(rows):
        try:
            checked = _checked(_batch([row], schema))
        except _BAD as error:
            bad.append((number, _reason(error)))
            continue
        if checked.bad:
            bad.append((number, checked.bad[0][1]))
        else:
            good.append(number)
    batch = _batch([rows[number] for number in good], schema)
    return DecodedRows(batch, np.array(good, np.int64), len(rows), tuple(bad))


def _batch(rows: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    for row in rows:
        if not isinstance(row, dict):
            raise TypeError(f"A row must be a JSON object. Received: {type(row).__name__}")
    columns = [_column([row.get(field.name) for row in rows], field) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(values: list[Any], field: pa.Field) -> pa.Array:
    """Converts values to the declared type; rejects text as a number, and 1.5 as an integer."""
    column = pa.array(values)
    leaf, declared = _leaf(column.type), _leaf(field.type)
    if _is_text(leaf) != _is_text(declared) and not pa.types.is_null(leaf):
        raise TypeError(f"Column '{field.name}' must be {field.type}. Received: {column.type}")
    return column.cast(field.type)


def _leaf(dtype: pa.DataType) -> pa.DataType:
    while pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        dtype = dtype.value_type
    return dtype


def _is_text(dtype: pa.DataType) -> bool:
    return pa.types.is_string(dtype) or pa.types.is_large_string(dtype)


def _from_arrow(payload: bytes, schema: pa.Schema) -> DecodedRows:
    with pa.ipc.open_stream(payload) as reader:
        table = reader.read_all()
    missing = [name for name in schema.names if name not in table.column_names]
    if missing:
        raise ValueError(f"Columns {missing} are missing. Received: {table.column_names}")
    table.validate(full=True)  # the payload is untrusted, and Arrow reads values without checks
    columns = [_whole(table[field.name].cast(field.type)) for field in schema]
    return _checked(pa.RecordBatch.from_arrays(columns, schema=schema))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """Returns a column as one array. Does not copy a column that has one chunk."""
    if column.num_chunks == 1:
        return column.chunk(0)
    combined = column.combine_chunks()
    return combined.combine_chunks() if isinstance(combined, pa.ChunkedArray) else combined


def _checked(batch: pa.RecordBatch) -> DecodedRows:
    """Separates the rows that have a null in a column that does not allow it."""
    good = np.ones(batch.num_rows, bool)
    reasons: dict[int, str] = {}
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if not field.nullable and column.null_count:
            null = column.is_null().to_numpy(zero_copy_only=False)
            for number in np.flatnonzero(null & good).tolist():
                reasons[number] = f"Column '{field.name}' has no value"
            good &= ~null
    numbers = np.flatnonzero(good)
    kept = batch if good.all() else batch.take(pa.array(numbers))
    return DecodedRows(kept, numbers, batch.num_rows, tuple(sorted(reasons.items())))


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def batch_of(payload: bytes) -> pa.RecordBatch:
    """Decodes a payload written by `encode` in a process of the same job, without checks.

    Args:
        payload: Payload of a record from `encode`.

    Returns:
        The rows, with the columns that `encode` got.

    Raises:
        pyarrow.ArrowInvalid: The payload is not from `encode`.
    """
    with pa.ipc.open_stream(payload) as reader:
        return reader.read_next_batch()
