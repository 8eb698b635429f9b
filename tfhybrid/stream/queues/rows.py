"""The encoding of rows in records: decodes JSON or Arrow to the declared columns.

A record's payload is a JSON object (a row), a JSON list of objects (rows), an Arrow IPC stream, or
lines of JSON objects, which `of_lines` makes.
"""

from __future__ import annotations

import functools
import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tfhybrid.stream.queues import checked_array
from tfhybrid.stream.queues.decoded_rows import BadRow, DecodedRows, selected, shown
from tfhybrid.stream.queues.queue import Record
from tfhybrid.stream.queues.row_columns import RowColumns

# Errors that json and pyarrow raise for a malformed payload.
_BAD = (ValueError, TypeError, KeyError, OverflowError, RecursionError, OSError, pa.ArrowException)

NO_ROWS = b"[]"  # payload of a record without rows
_END = b"\xff\xff\xff\xff\0\0\0\0"  # of an Arrow IPC stream
_FORMAT = "format"
_LINES = "lines"
# Text between lines that are parsed together. No line can have it, so a line that is malformed
# cannot make a whole with the next one.
_BETWEEN = json.dumps(secrets.token_hex(8))
_REGISTRY_BYTES = 5  # a zero and the number of the schema, before the value
_LONGEST_INTEGER = 4000  # digits; Python refuses to convert more than 4300


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


def of_lines(lines: Sequence[bytes]) -> Record:
    """Returns a record of lines, of which a malformed one is one bad row.

    Args:
        lines: Texts without line breaks, each of which should be a JSON object.
    """
    return Record(b"\n".join(lines), {_FORMAT: _LINES})


def decode(record: Record, columns: RowColumns) -> DecodedRows:
    """Decodes the rows of a record. Never raises for bad data: bad rows are listed in the result.

    Whether a row is bad depends on the row alone: a column has no value although it must have one,
    or a value that `tfhybrid.values.check` refuses. Columns that are not declared are dropped.

    Args:
        record: Record whose payload is JSON or an Arrow IPC stream.
        columns: The declared columns.

    Returns:
        The good rows, and the bad ones with their faults.

    Example:

    >>> columns = RowColumns.read({"item": "int64"})
    >>> rows = decode(Record(b'[{"item": 7}, {"item": "seven"}]'), columns)
    >>> rows.batch.to_pylist(), [row.number for row in rows.bad]
    ([{'item': 7}], [1])
    """
    payload = record.payload
    try:
        if record.attributes.get(_FORMAT) == _LINES:
            return _from_lines(payload.split(b"\n"), columns)
        if _is_json(payload):
            value = _parsed(payload)
            return _of_rows(value if isinstance(value, list) else [value], columns)
        return _from_arrow(payload, columns)
    except _BAD as error:
        batch = pa.RecordBatch.from_pylist([], schema=columns.schema)
        bad = BadRow(0, f"{type(error).__name__}: {error}", payload)
        return DecodedRows(batch, np.empty(0, np.int64), 1, (bad,))


def other_format(payload: bytes) -> str | None:
    """Returns why a payload is neither JSON nor Arrow; `None` if it is, even if it is malformed.

    Args:
        payload: Payload of a record.
    """
    if _is_json(payload):
        return None
    try:
        pa.ipc.open_stream(payload).close()
    except _BAD as error:
        return _other_format(payload, error)
    return None


def _is_json(payload: bytes) -> bool:
    return payload.lstrip()[:1] in (b"{", b"[")


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise
    except ValueError:  # an integer with more digits than Python converts, in one row
        return json.loads(text, parse_int=_integer)


def _integer(digits: str) -> float:
    return int(digits) if len(digits) < _LONGEST_INTEGER else float(digits)


def _from_lines(lines: list[bytes], columns: RowColumns) -> DecodedRows:
    """Returns the rows of lines, which are parsed one by one only if one is malformed."""
    faults: dict[int, str] = {}
    values = _parsed_together(lines)
    if values is None:
        values = []
        for number, line in enumerate(lines):
            try:
                values.append(_parsed(line))
            except _BAD as error:
                values.append(None)
                faults[number] = f"{type(error).__name__}: {error}"
    if not any(isinstance(value, dict) for value in values):  # one fault, not one of each line
        raise ValueError(
            f"Expected lines of JSON objects. Received: {len(lines)} lines, the first "
            f"{shown(lines[0][:40])}"
        )
    return _of_rows(values, columns, faults, lines)


def _parsed_together(lines: Sequence[bytes]) -> list[Any] | None:
    """Returns the value of each line; `None` if a line is malformed."""
    try:
        values = _parsed(b"[" + f",{_BETWEEN},".encode().join(lines) + b"]")
        whole = set(values[1::2]) <= {json.loads(_BETWEEN)}
    except _BAD:
        return None
    return values[::2] if whole and len(values) == 2 * len(lines) - 1 else None


def _of_rows(
    rows: list[Any],
    columns: RowColumns,
    faults: Mapping[int, str] | None = None,
    texts: Sequence[bytes] | None = None,
) -> DecodedRows:
    """Returns the rows of parsed JSON.

    Args:
        rows: Parsed rows; those that are no objects are bad.
        columns: The declared columns.
        faults: Reason for each row that could not be parsed, by number. Default none.
        texts: JSON texts of the rows, to tell the bad ones. By default they are written again.
    """
    objects, others = rows, None
    if set(map(type, rows)) - {dict}:
        others = np.fromiter((type(row) is not dict for row in rows), bool, len(rows))
        objects = [{} if bad else row for row, bad in zip(rows, others, strict=True)]
    checked = []
    for declared in columns.declared:
        name = declared.field.name
        checked.append(checked_array.of_python(declared, [row.get(name) for row in objects]))

    def other(number: int) -> str:
        kind = type(rows[number]).__name__
        fault = (faults or {}).get(number)
        return fault or f"A row must be a JSON object. Received: {kind}"

    return selected(
        columns,
        checked,
        len(rows),
        lambda declared, number: objects[number].get(declared.field.name),
        lambda number: texts[number] if texts else json.dumps(rows[number]).encode(),
        None if others is None else (others, other),
    )


def _from_arrow(payload: bytes, columns: RowColumns) -> DecodedRows:
    try:
        with pa.ipc.open_stream(payload) as reader:
            batches, names = [*reader], reader.schema.names
    except (OSError, ValueError) as error:
        raise ValueError(_other_format(payload, error)) from error
    places = {name: place for place, name in enumerate(names)}
    twice = len(places) < len(names)
    missing = [
        name for name in columns.names if name not in places or (twice and names.count(name) > 1)
    ]
    if missing:
        raise ValueError(f"Columns {missing} are missing or there twice. Received: {names}")
    # The payload is untrusted, and Arrow reads values without checks.
    chunks = [_valid_columns(batch, [places[name] for name in columns.names]) for batch in batches]
    arrays = [_joined(each) for each in zip(*chunks, strict=True)]
    if not arrays:
        arrays = [pa.nulls(0) for _ in columns.declared]

    return selected(
        columns,
        checked_array.of_record(columns, arrays),
        len(arrays[0]),
        lambda declared, number: arrays[columns.names.index(declared.field.name)][number].as_py(),
        _RowEncoder(arrays, columns.names),
    )


class _RowEncoder:
    """Encodes single rows of arrays as `encode` does, in a fraction of the time."""

    def __init__(self, arrays: list[pa.Array], names: Sequence[str]) -> None:
        self._arrays = arrays
        self._names = names

    def __call__(self, number: int) -> bytes:
        row = self._batch.slice(number, 1)
        if self._schema is None:
            return encode(row).payload
        return b"".join((self._schema, row.serialize(), _END))

    @functools.cached_property
    def _batch(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(self._arrays, names=list(self._names))

    @functools.cached_property
    def _schema(self) -> bytes | None:
        """Message of the schema; `None` if dictionaries, messages of their own, belong to it."""
        schema: pa.Schema = self._batch.schema
        if any("dictionary" in str(each) for each in schema.types):  # also in lists
            return None
        return bytes(schema.serialize())


def _other_format(payload: bytes, error: Exception) -> str:
    received = f"{shown(payload[:40])} ({error})"
    if payload[:1] == b"\0" and len(payload) > _REGISTRY_BYTES:
        number = int.from_bytes(payload[1:_REGISTRY_BYTES], "big")
        received = f"Avro, Protobuf or JSON of schema {number} of a registry, {received}"
    return f"Expected JSON objects or an Arrow IPC stream. Received: {received}"


def _valid_columns(batch: pa.RecordBatch, places: Sequence[int]) -> list[pa.Array]:
    """Returns columns of a batch; their texts are bytes if one is not UTF-8."""
    arrays = [batch.column(place) for place in places]
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid:
        return [_valid(array) for array in arrays]
    return arrays


def _valid(array: pa.Array) -> pa.Array:
    """Returns a valid array, or its texts as bytes."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        if _binary_type(array.type) == array.type:
            raise
        array = _of_bytes(array)
        array.validate(full=True)
    return array


def _of_bytes(array: pa.Array) -> pa.Array:
    """Returns an array whose texts are bytes, of which any are valid."""
    binary = _binary_type(array.type)
    if pa.types.is_dictionary(array.type):
        texts = array.dictionary.view(binary.value_type)
        return pa.DictionaryArray.from_arrays(array.indices, texts)
    return array.view(binary)


def _binary_type(kind: pa.DataType) -> pa.DataType:
    """Returns the type in which texts are bytes, also those in lists."""
    if pa.types.is_string(kind):
        return pa.binary()
    if pa.types.is_large_string(kind):
        return pa.large_binary()
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _binary_type(kind.value_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        of = pa.list_ if pa.types.is_list(kind) else pa.large_list
        return of(kind.value_field.with_type(_binary_type(kind.value_type)))
    return kind


def _joined(chunks: Sequence[pa.Array]) -> pa.Array:
    if len(chunks) == 1:
        return chunks[0]
    if len({chunk.type for chunk in chunks}) > 1:  # texts, of which some are not UTF-8
        chunks = [_of_bytes(chunk) for chunk in chunks]
    return pa.concat_arrays(chunks)


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
