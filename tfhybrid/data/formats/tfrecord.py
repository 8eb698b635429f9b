"""TFRecord format of `tf.train.Example`s."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import mmap
import os
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from typing_extensions import override

from tfhybrid.data.formats.format import Format, Unit, malformed
from tfhybrid.data.formats.label import Label, LabelSpec, gathered, labels_of
from tfhybrid.data.samples.clicks import Clicks
from tfhybrid.data.samples.ragged import Ragged
from tfhybrid.data.samples.strings import string_keys
from tfhybrid.errors import DataError

UNIT_RECORDS = 1 << 15
LOOKED_AT_FOR_TYPES = 100
_COMPRESSION = {".gz": "GZIP", ".zlib": "ZLIB"}
_TYPES = {"int64_list": tf.int64, "bytes_list": tf.string, "float_list": tf.float32}
_LENGTH = struct.Struct("<Q")
# Values of each feature, and their number per record; `None` if each record has one.
_Columns = dict[str, tuple[np.ndarray, np.ndarray | None]]
_OVERHEAD = 16  # bytes of a record in addition to its data: the length, and two checksums


@dataclasses.dataclass(frozen=True)
class TFRecord(Format):
    """TFRecord format of `tf.train.Example`s. Files may be compressed (`.gz`, `.zlib`).

    A unit is a run of 32,768 records.

    Args:
        features: Features with one integer, or with one string, whose key is `string_keys` of it.
        lists: Features with any number of integers or strings; they become `Ragged`.
        dense: Features with one number.
        label: Label feature, 0 or 1, an integer or a float; or a `Label` with other values; or
            several of them.
        positive: Threshold of clicks: a label is 1 if the feature is at least this. By default the
            feature must be 0 or 1.
        missing_key: Key for a feature that an example lacks. By default that is an error.
        missing_value: Number for a dense feature that an example lacks. By default that is an
            error.

    Raises:
        ConfigError: When the first file is read: there is no label, or two labels have the same
            column.

    Example:

    >>> import pathlib, tempfile
    >>> import tensorflow as tf
    >>> path = str(pathlib.Path(tempfile.mkdtemp(), "day_0.tfrecord"))
    >>> def integers(*values):
    ...     return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    >>> example = tf.train.Example(
    ...     features=tf.train.Features(feature={"label": integers(1), "tags": integers(5, 6)})
    ... )
    >>> with tf.io.TFRecordWriter(path) as writer:
    ...     writer.write(example.SerializeToString())
    >>> TFRecord([], lists=["tags"]).read(path).features["tags"].tolist()
    [[5, 6]]
    """

    features: Sequence[str]
    lists: Sequence[str] = ()
    dense: Sequence[str] = ()
    label: LabelSpec = "label"
    positive: float | None = None
    missing_key: int | None = None
    missing_value: float | None = None

    @override
    def units(self, path: Path) -> list[Unit]:
        begins, count = _begins_inside(path) if path.suffix in _COMPRESSION else _begins(path)
        firsts = range(0, max(count, 1), UNIT_RECORDS)
        return [
            Unit(path, begin, end, first, min(UNIT_RECORDS, count - first))
            for (begin, end), first in zip(itertools.pairwise(begins), firsts, strict=True)
        ]

    @override
    def head(self, unit: Unit) -> Clicks:
        return self.read_unit(unit._replace(rows=1))

    @override
    def read_unit(self, unit: Unit) -> Clicks:
        try:
            types = self._types(unit.path)
            try:
                return self._clicks(unit, _parsed(unit, self._columns(types)))
            except tf.errors.InvalidArgumentError:
                # Parse again, more slowly, to find the malformed record.
                columns = {name: tf.io.RaggedFeature(type_) for name, type_ in types.items()}
                return self._clicks(unit, _parsed(unit, columns))
        except tf.errors.OpError as error:
            raise DataError(
                f"{unit.path}, records {unit.first_row} to {unit.first_row + unit.rows}: expected "
                f"whole records, each a tf.train.Example. Received: {error.message}"
            ) from error

    def _columns(self, types: dict[str, tf.DType]) -> dict[str, Any]:
        """Returns the parser of each feature, with a variable length only if necessary."""
        columns: dict[str, Any] = {}
        absent: dict[str, float | None] = dict.fromkeys(self.features, self.missing_key)
        absent |= dict.fromkeys(self.dense, self.missing_value)
        for name, type_ in types.items():
            missing = absent.get(name)
            if name in self.lists or (type_ == tf.string and missing is not None):
                columns[name] = tf.io.RaggedFeature(type_)
            else:
                columns[name] = tf.io.FixedLenFeature([], type_, missing)
        return columns

    def _clicks(self, unit: Unit, columns: _Columns) -> Clicks:
        def one(name: str, missing: Any) -> np.ndarray:
            """Returns one value per record."""
            values, lengths = columns[name]
            if lengths is None:
                return values
            expected = "one value" if missing is None else "one value or none"
            odd = np.flatnonzero((lengths != 1) & ((lengths != 0) | (missing is None)))
            if len(odd):
                location = f"{unit.path}, feature {name!r}, record {unit.first_row + odd[0]}"
                raise malformed(location, expected, f"{lengths[odd[0]]} values")
            filled = np.full(len(lengths), missing or 0, values.dtype)
            filled[lengths == 1] = values
            return filled

        features: dict[str, np.ndarray | Ragged] = {}
        for name in self.features:
            features[name] = one(name, self.missing_key).astype(np.int64, copy=False)
        for name in self.lists:
            values, lengths = columns[name]
            assert lengths is not None  # `_columns` declares them so
            features[name] = Ragged.from_lengths(values, lengths)
        dense = {
            name: one(name, self.missing_value).astype(np.float32, copy=False)
            for name in self.dense
        }
        labels = gathered(
            self.label,
            self.positive,
            lambda label: _labels(unit, label, one(label.column, None)),
        )
        return Clicks(features, labels, dense)

    def _types(self, path: Path) -> dict[str, tf.DType]:
        """Returns the type of each feature, from the first examples of a file that have it."""
        labels = labels_of(self.label, self.positive)
        named = [label.column for label in labels if label.names]
        numeric = [label.column for label in labels if not label.names]
        numbers = dict.fromkeys((*self.dense, *numeric), tf.float32) | dict.fromkeys(
            named, tf.string
        )
        types = dict.fromkeys((*self.features, *self.lists), tf.int64) | numbers
        unknown = set(types)
        for record in _records(path).take(LOOKED_AT_FOR_TYPES):
            if not unknown:
                break
            features = tf.train.Example.FromString(record.numpy()).features.feature
            for name in [name for name in unknown if name in features]:
                if kind := features[name].WhichOneof("kind"):
                    types[name] = _TYPES[kind]
                    unknown.remove(name)
        keys = (*self.features, *self.lists)
        _refuse(path, named, types, {tf.int64, tf.float32}, "strings, names of classes", "numbers")
        _refuse(path, (*self.dense, *numeric), types, {tf.string}, "numbers", "strings")
        _refuse(path, keys, types, {tf.float32}, "integers or strings", "floats")
        return types


def _refuse(
    path: Path,
    names: Iterable[str],
    types: Mapping[str, tf.DType],
    refused: Collection[tf.DType],
    expected: str,
    received: str,
) -> None:
    """Raises `DataError` if one of the named features has a refused type."""
    for name in names:
        if types[name] in refused:
            raise malformed(f"{path}, feature {name!r}", expected, received)


def _labels(unit: Unit, label: Label, values: np.ndarray) -> np.ndarray:
    """Returns labels: float32, or int64 for classes.

    Args:
        unit: Unit of the labels, for the location in errors.
        label: Description of the labels.
        values: Values of the feature; the `string_keys` of strings.

    Raises:
        DataError: A value is not a label.
    """
    labels = values
    if label.names:
        keys = string_keys(list(label.names)).numpy()
        matches = values[:, np.newaxis] == keys
        odd, labels = ~matches.any(axis=1), matches.argmax(axis=1)
    elif label.kind == "class":
        odd = ~((values >= 0) & (values < 2**62) & (values % 1 == 0))
    elif label.kind == "number" or label.positive is not None:
        odd = ~np.isfinite(values)
    else:
        odd = ~np.isin(values, (0, 1))
    if len(rows := np.flatnonzero(odd)):
        location = f"{unit.path}, feature {label.column!r}, record {unit.first_row + rows[0]}"
        raise malformed(
            location, label.wanted, "another" if label.names else float(values[rows[0]])
        )
    if label.positive is not None:
        labels = values >= label.positive
    return labels.astype(np.int64 if label.kind == "class" else np.float32)


def _parsed(unit: Unit, columns: dict[str, Any]) -> _Columns:
    """Returns the values of each feature; strings are hashed by `string_keys`.

    One call parses a run of records, and TensorFlow divides it among its threads. A `map` of the
    dataset would be traced again for each run, which takes as long as parsing it.
    """
    with _run(unit) as records:
        serialized = next(iter(records.batch(max(unit.rows, 1))), None)
    if serialized is None:
        empty = np.empty(0, np.int64)
        return dict.fromkeys(columns, (empty, empty))
    parsed = tf.io.parse_example(serialized, columns)
    return {name: _arrays(parsed[name]) for name in columns}


def _arrays(parsed: tf.RaggedTensor | tf.Tensor) -> tuple[np.ndarray, np.ndarray | None]:
    ragged = isinstance(parsed, tf.RaggedTensor)
    values = parsed.values if ragged else parsed
    if values.dtype == tf.string:
        values = string_keys(values)
    return values.numpy(), parsed.row_lengths().numpy() if ragged else None


def _records(path: Path) -> tf.data.TFRecordDataset:
    return tf.data.TFRecordDataset(str(path), _COMPRESSION.get(path.suffix, ""), 1 << 20)


@contextlib.contextmanager
def _run(unit: Unit) -> Iterator[tf.data.Dataset]:
    """Context whose value is the dataset of a unit's records.

    TensorFlow reads a file from its beginning, so everything before a unit would be read again for
    each unit. The unit of an uncompressed file is therefore copied to a file in memory.
    """
    if unit.path.suffix in _COMPRESSION:
        yield _records(unit.path).skip(unit.begin).take(unit.rows)
        return
    copy = os.memfd_create("tfhybrid-records")
    try:
        with unit.path.open("rb") as file:
            position = unit.begin
            while position < unit.end:
                sent = os.sendfile(copy, file.fileno(), position, unit.end - position)
                if sent == 0:
                    break  # the file was truncated meanwhile: TensorFlow raises the error
                position += sent
        yield _records(Path(f"/proc/self/fd/{copy}")).take(unit.rows)
    finally:
        os.close(copy)


def _begins(path: Path) -> tuple[list[int], int]:
    """Returns the byte at which each unit begins and the last one ends, and the number of records.

    Reads only the lengths of records.
    """
    size = path.stat().st_size
    begins, count, position = [], 0, 0
    if size:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
            while position <= size - _LENGTH.size:
                if count % UNIT_RECORDS == 0:
                    begins.append(position)
                position += _OVERHEAD + _LENGTH.unpack_from(data, position)[0]
                count += 1
    if position != size:
        record = count - 1 if position > size else count
        raise DataError(
            f"{path}: expected whole records. Received: a file of {size} bytes that ends within "
            f"record {record}."
        )
    return [*(begins or [0]), size], count


def _begins_inside(path: Path) -> tuple[list[int], int]:
    """Returns the record at which each unit of a compressed file begins and the last one ends.

    The second value is the number of records. Reads the whole file.
    """
    try:
        count = int(_records(path).reduce(np.int64(0), lambda count, _: count + 1))
    except tf.errors.OpError as error:
        raise DataError(f"{path}: expected whole records. Received: {error.message}") from error
    return [*range(0, max(count, 1), UNIT_RECORDS), count], count
