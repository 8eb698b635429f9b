"""TFRecord format of `tf.train.Example`s."""

from __future__ import annotations

import copy
import dataclasses
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import tensorflow as tf
from typing_extensions import override

from tfhybrid.data.formats.agreed_types import AgreedTypes, ColumnType
from tfhybrid.data.formats.column_settings import (
    KEY_ROLES,
    WORDING,
    ColumnSpec,
    check_names,
    column_of_label,
    columns_of,
    dense_of,
    label_values,
    lists_of,
    wording_of_label,
)
from tfhybrid.data.formats.examples import Examples, feature_lists_in, kinds_in
from tfhybrid.data.formats.format import Format, Unit, hashed_strings
from tfhybrid.data.formats.label import Label, LabelSpec, gathered, labels_of
from tfhybrid.data.formats.records import copied, dataset_of_records, first_records, units_of
from tfhybrid.data.formats.unit_rows import UnitCheck, UnitRows
from tfhybrid.data.samples.clicks import Clicks
from tfhybrid.data.samples.strings import string_keys
from tfhybrid.errors import DataError
from tfhybrid.values import Column, Reason, check

_logger = logging.getLogger("tfhybrid.data")
UNIT_RECORDS = 1 << 15
LOOKED_AT_FOR_TYPES = 100
# TensorFlow quotes a record that it cannot parse, and fails to decode what it has quoted.
_NO_EXAMPLE = (tf.errors.InvalidArgumentError, UnicodeDecodeError)
_TYPES = {"int64_list": tf.int64, "bytes_list": tf.string, "float_list": tf.float32}


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
        missing_value: Number for a dense feature that an example lacks, or that is NaN. By default
            these are errors.

    A `Column` among the names of features has settings of its own, such as `missing`, `empty`,
    `low` and `high`. Its role may be `"time"`: strings such as 2026-11-27 09:30:38 become
    microseconds since 1970. Its values are lists if its length is not 1. Infinite numbers are
    errors.

    Raises:
        ConfigError: A feature is read twice, a label is a feature, there is no label, or two labels
            have the same column.

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

    features: Sequence[ColumnSpec]
    lists: Sequence[ColumnSpec] = ()
    dense: Sequence[ColumnSpec] = ()
    label: LabelSpec = "label"
    positive: float | None = None
    missing_key: int | None = None
    missing_value: float | None = None

    # Types on which the files must agree, their first records, and features that were looked for in
    # all records of a unit; not arguments, but set by `agreeing`.
    _types = None
    _firsts = None
    _searched = None

    def __post_init__(self) -> None:
        names = [column.name for column in (*self._keys, *self._dense)]
        check_names(names, labels_of(self.label, self.positive))

    @functools.cached_property
    def _keys(self) -> list[Column]:
        """Columns of keys, strings, times, and lists of these, as far as the arguments tell."""
        return [*columns_of(self.features, KEY_ROLES, self.missing_key), *lists_of(self.lists)]

    @functools.cached_property
    def _dense(self) -> list[Column]:
        """Columns of numbers."""
        return dense_of(self.dense, self.missing_value)

    @functools.cached_property
    def _open(self) -> list[str]:
        """Names of columns whose files tell whether they contain numbers or strings."""
        given = [spec for spec in (*self.features, *self.lists) if isinstance(spec, Column)]
        fixed = {column.name for column in given}
        return [column.name for column in self._keys if column.name not in fixed]

    @override
    def agreeing(self, types: AgreedTypes) -> TFRecord:
        twin = copy.copy(self)
        object.__setattr__(twin, "_types", types)
        object.__setattr__(twin, "_firsts", [])
        object.__setattr__(twin, "_searched", {})
        return twin

    @override
    def units(self, path: Path) -> list[Unit]:
        return units_of(path, UNIT_RECORDS)

    @override
    def scan(self, path: Path) -> list[Unit]:
        first: list[bytes] = []
        units = units_of(path, UNIT_RECORDS, first)
        if self._open and self._firsts is not None:
            self._firsts.extend((path, record) for record in first)
        return units

    @override
    def compare_scanned(self) -> None:
        if not self._firsts or self._types is None:
            return
        firsts, self._firsts[:] = sorted(self._firsts), []
        kinds = kinds_in([record for _, record in firsts[:LOOKED_AT_FOR_TYPES]], self._open)
        parsers = {name: tf.io.RaggedFeature(_TYPES[kind]) for name, kind in kinds.items()}
        try:
            # A call for all files costs a twentieth of looking at each in Python.
            if parsers:
                tf.io.parse_example([record for _, record in firsts], parsers)
        except _NO_EXAMPLE:
            parsers = {}
        for path, record in firsts if len(parsers) < len(self._open) else firsts[:1]:
            self._types.add(path, self._shown(kinds_in([record], self._open)))

    @override
    def head(self, unit: Unit) -> Clicks:
        return self.read_unit(unit._replace(rows=1))

    @override
    def read_unit(self, unit: Unit) -> Clicks:
        return self.rows(unit).all_good()

    @override
    def rows(self, unit: Unit) -> UnitRows:
        try:
            with copied(unit) as path:
                first = first_records(path, LOOKED_AT_FOR_TYPES)
                kinds = kinds_in(first, self._names)
                records = dataset_of_records(path).take(unit.rows)
                serialized = next(iter(records.batch(max(unit.rows, 1))), None)
        except tf.errors.OpError as error:
            raise DataError(
                f"{unit.path}, records {unit.first_row} to {unit.first_row + unit.rows}: expected "
                f"whole records, each a tf.train.Example. Received: {error.message}"
            ) from error
        if (count := 0 if serialized is None else len(serialized)) != unit.rows:
            raise DataError(
                f"{unit.path}: expected {unit.rows} records from record {unit.first_row} on, as "
                f"before. Received: {count}."
            )
        self._check_kind(unit, first)
        unit_check = self._unit_check(unit)
        if serialized is None:
            columns = self._columns(unit, kinds)
            return unit_check.rows(self._clicks(unit_check, columns, _no_values))
        self._warn_of_absent(unit, serialized, kinds)
        return unit_check.rows(self._parsed(unit, unit_check, serialized, kinds))

    def _check_kind(self, unit: Unit, first: list[bytes]) -> None:
        """Checks that no column is a feature list, which would be read as if it were absent."""
        lists = feature_lists_in(first[0]) if first else []
        if read := [name for name in self._names if name in lists]:
            raise DataError(
                f"{unit.path}, record {unit.first_row}: expected a tf.train.Example. Received: a "
                f"tf.train.SequenceExample, of which features of the context can be read, but not "
                f"the feature lists {read}."
            )

    def _warn_of_absent(self, unit: Unit, serialized: tf.Tensor, kinds: dict[str, str]) -> None:
        """Warns once of a feature that no record of a unit has, because its name may be wrong."""
        optional = {
            column.name
            for column in (*self._keys, *self._dense)
            if column.length is None or column.missing is not None
        }
        unseen = optional - kinds.keys()
        searched = self._searched
        if searched is None or unseen <= searched.keys():
            return
        # setdefault is atomic: of several threads, one searches for a feature.
        absent = {name for name in unseen if searched.setdefault(name, unit) is unit}
        in_unit = kinds_in(serialized.numpy(), sorted(absent))
        if absent := absent - in_unit.keys():
            _logger.warning(
                "No record of %s from %d to %d has the features %s; they are read as missing.",
                unit.path,
                unit.first_row,
                unit.first_row + unit.rows - 1,
                sorted(absent),
            )

    def _parsed(
        self, unit: Unit, unit_check: UnitCheck, serialized: tf.Tensor, kinds: dict[str, str]
    ) -> Clicks:
        """Returns the samples of records: parsed by TensorFlow, or in Python if types differ."""
        columns = self._columns(unit, kinds)
        if (values := _values_of(columns, serialized, kinds)) is not None:
            return self._clicks(unit_check, columns, values)
        records = serialized.numpy()
        late = kinds_in(records, self._names)  # of all records, not only the first ones
        if late != kinds:
            columns = self._columns(unit, late)
            if (values := _values_of(columns, serialized, late)) is not None:
                return self._clicks(unit_check, columns, values)
        examples = Examples(records)
        unit_check.add_bad_rows(examples.malformed, "a tf.train.Example")
        return self._clicks(
            unit_check, columns, lambda column: _Values(*examples.values(column.name))
        )

    @functools.cached_property
    def _names(self) -> list[str]:
        labels = labels_of(self.label, self.positive)
        columns = [column.name for column in (*self._keys, *self._dense)]
        return [*columns, *(label.column for label in labels)]

    def _columns(self, unit: Unit, kinds: dict[str, str]) -> _Columns:
        """Returns all columns; an open one has strings if it has in files or records before."""
        types = self._types or AgreedTypes()
        new = self._shown({name: kinds[name] for name in self._open if name in kinds})
        types.add(unit.path, {n: kind for n, kind in new.items() if types.get(n) is None})
        strings = {n for n in self._open if (kind := types.get(n)) and kind.kind == "strings"}
        keys = [
            dataclasses.replace(column, role="string") if column.name in strings else column
            for column in self._keys
        ]
        labels = map(column_of_label, labels_of(self.label, self.positive))
        return _Columns(keys, self._dense, {column.name: column for column in labels})

    def _shown(self, kinds: dict[str, str]) -> dict[str, ColumnType]:
        lengths = {column.name: column.length for column in self._keys}
        return {
            name: ColumnType("strings" if kind == "bytes_list" else "numbers", lengths[name])
            for name, kind in kinds.items()
        }

    def _unit_check(self, unit: Unit) -> UnitCheck:
        def location(name: str, row: int) -> str:
            feature = f", feature {name!r}" if name else ""
            return f"{unit.path}{feature}, record {unit.first_row + row}"

        return UnitCheck(unit.path, unit.first_row, unit.rows, location)

    def _clicks(
        self,
        unit_check: UnitCheck,
        columns: _Columns,
        values_of: Callable[[Column], _Values | _Hashed],
    ) -> Clicks:
        def read(column: Column, wording: Mapping[Reason, str]) -> Any:
            values = values_of(column)
            if isinstance(values, _Hashed):
                plain = dataclasses.replace(column, role="key")
                checked = check(plain, values.keys, lengths=values.lengths)
                raw = values.texts.numpy() if checked.bad.any() else None
            else:
                raw, strings = values.values, hashed_strings
                checked = check(column, raw, lengths=values.lengths, hash_strings=strings)
            return unit_check.add(column, checked, raw, lengths=values.lengths, wording=wording)

        def labels(label: Label) -> np.ndarray:
            column = columns.labels[label.column]
            return label_values(label, read(column, wording_of_label(label, column)))

        path = unit_check.path
        return Clicks(
            {column.name: read(column, self._wording(path, column)) for column in columns.keys},
            gathered(self.label, self.positive, labels),
            {column.name: read(column, WORDING["number"]) for column in columns.dense},
        )

    def _wording(self, path: Path, column: Column) -> dict[Reason, str]:
        wording = dict(WORDING[column.role])
        first = self._types.file_of(column.name) if self._types else None
        if first is not None and first != path:
            kind = "a string" if column.role == "string" else "a whole number"
            wording[Reason.KIND] = f"{kind}, as in {first}"
        return wording


class _Values(NamedTuple):
    """Values of a feature, and their number per record; `None` if each record has one."""

    values: Any
    lengths: np.ndarray | None


class _Hashed(NamedTuple):
    """Strings of a feature and their keys, and their number per record."""

    keys: Any
    lengths: np.ndarray | None
    texts: tf.Tensor


class _Columns(NamedTuple):
    """The columns of a unit.

    Attributes:
        keys: Columns of keys and strings, and of lists of these.
        dense: Columns of numbers.
        labels: Labels by name.
    """

    keys: list[Column]
    dense: list[Column]
    labels: dict[str, Column]


def _values_of(
    columns: _Columns, serialized: tf.Tensor, kinds: Mapping[str, str]
) -> Callable[[Column], _Values | _Hashed] | None:
    """Returns a function for the values of a column; `None` if TensorFlow cannot parse a record.

    One call parses a run of records, and TensorFlow divides it among its threads. A `map` of the
    dataset would be traced again for each run, which takes as long as parsing it.
    """
    types = {name: _TYPES[kind] for name, kind in kinds.items()}
    every = (*columns.keys, *columns.dense, *columns.labels.values())
    for parser_of in (_quick_parser, _parser):
        parsers = {column.name: parser_of(column, types.get(column.name)) for column in every}
        try:
            parsed = tf.io.parse_example(serialized, parsers)
        except _NO_EXAMPLE:
            continue  # a feature is absent, has several values or another type
        return functools.partial(_parsed_values, parsed)
    return None


def _no_values(column: Column) -> _Values:
    kind = np.float32 if column.role in ("number", "label") else np.int64
    return _Values(np.empty(0, kind), np.empty(0, np.int64))


def _parser(column: Column, type_: tf.DType | None) -> tf.io.RaggedFeature:
    """Returns the parser of a feature that may be absent or have several values."""
    plain = tf.string if column.role in ("string", "time") or column.named else tf.int64
    return tf.io.RaggedFeature(type_ or plain)


def _quick_parser(column: Column, type_: tf.DType | None) -> Any:
    """Returns the parser of a feature, with a variable length only if necessary."""
    missing = column.missing
    bounded = column.low is not None or column.high is not None
    if column.length != 1 or (missing is not None and (bounded or not _fits(missing, type_))):
        return _parser(column, type_)
    default = int(missing) if type_ == tf.int64 and missing is not None else missing
    return tf.io.FixedLenFeature([], _parser(column, type_).dtype, default)


def _fits(missing: float | str, type_: tf.DType | None) -> bool:
    """Returns whether TensorFlow can fill a feature of a type with the value for a missing one."""
    if isinstance(missing, str):
        return False
    return type_ == tf.float32 or (type_ == tf.int64 and float(missing).is_integer())


def _parsed_values(parsed: dict[str, Any], column: Column) -> _Values | _Hashed:
    feature = parsed[column.name]
    ragged = isinstance(feature, tf.RaggedTensor)
    values = feature.values if ragged else feature
    lengths = feature.row_lengths().numpy() if ragged else None
    if values.dtype != tf.string or column.role != "string":
        return _Values(values.numpy(), lengths)
    keys = string_keys(values).numpy()
    if column.empty == "missing":
        blank = tf.equal(values, "").numpy()
        keys = pa.array(keys, mask=blank) if blank.any() else keys
    return _Hashed(keys, lengths, values)
