"""Parquet format: columns of keys, strings, lists and numbers."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from typing_extensions import override

from tfhybrid.data.formats.agreed_types import AgreedTypes, ColumnType
from tfhybrid.data.formats.column_settings import (
    WORDING,
    ColumnSpec,
    check_names,
    column_of_label,
    columns_of,
    label_values,
    wording_of_label,
)
from tfhybrid.data.formats.format import Format, Unit, hashed_strings
from tfhybrid.data.formats.label import Label, LabelSpec, gathered, labels_of
from tfhybrid.data.formats.unit_rows import UnitCheck, UnitRows
from tfhybrid.data.samples.clicks import Clicks
from tfhybrid.data.samples.ragged import Ragged
from tfhybrid.errors import DataError
from tfhybrid.values import Column, Reason, check


@dataclasses.dataclass(frozen=True)
class Parquet(Format):
    """Parquet format. Only the named columns are read. A unit is a row group.

    Args:
        features: Columns of keys: integers of any width; strings, whose keys are `string_keys` of
            them; whole floats, to which pandas converts integers with missing values; lists of
            those. Lists of a fixed size become `[n, size]`, others `Ragged`; a missing one of the
            latter is an empty list.
        dense: Columns of numbers or booleans, or fixed-size lists of those.
        label: Label column, 0 or 1; or a `Label` with other values; or several of them.
        positive: Threshold of clicks: a label is 1 if the column is at least this. By default the
            column must contain 0 and 1.
        missing_key: Key for a missing value, such as a null in a list or NaN among floats. By
            default a missing value is an error.
        missing_value: Number for a missing value or NaN. By default these are errors.

    A `Column` among the names of columns has settings of its own, such as `missing`, `empty`, `low`
    and `high`; its length is that in the files. Infinite numbers are errors, and so are whole
    floats from 2^53 on (2^24 for float32), because larger ids are rounded.

    Raises:
        ConfigError: A column is read twice, there is no label, or two labels have the same column.

    Example:

    >>> import pathlib, tempfile
    >>> import pyarrow as pa
    >>> import pyarrow.parquet
    >>> path = pathlib.Path(tempfile.mkdtemp(), "day_0.parquet")
    >>> rows = {"label": [1, 0], "user": [7, 8], "tags": [[1, 2], []]}
    >>> pa.parquet.write_table(pa.table(rows), path)
    >>> Parquet(["user", "tags"]).read(path).features["tags"].tolist()
    [[1, 2], []]
    """

    features: Sequence[ColumnSpec]
    dense: Sequence[ColumnSpec] = ()
    label: LabelSpec = "label"
    positive: float | None = None
    missing_key: int | None = None
    missing_value: float | None = None

    # Types on which the files must agree; not an argument, but set by `agreeing`.
    _types = None

    def __post_init__(self) -> None:
        names = [column.name for column in (*self._features, *self._dense)]
        check_names(names)
        labels_of(self.label, self.positive)  # raises now if they make no sense

    @functools.cached_property
    def _features(self) -> list[Column]:
        """Columns of keys and strings; the type in the file decides between these for names."""
        return columns_of(self.features, ("key", "string"), self.missing_key)

    @functools.cached_property
    def _dense(self) -> list[Column]:
        """Columns of numbers."""
        return columns_of(self.dense, ("number",), self.missing_value)

    @functools.cached_property
    def _labels(self) -> list[Label]:
        return labels_of(self.label, self.positive)

    @functools.cached_property
    def _names(self) -> list[str]:
        """Names of all columns that are read."""
        columns = [column.name for column in (*self._features, *self._dense)]
        return list(dict.fromkeys([*columns, *(label.column for label in self._labels)]))

    @override
    def agreeing(self, types: AgreedTypes) -> Parquet:
        twin = copy.copy(self)
        object.__setattr__(twin, "_types", types)
        return twin

    @override
    def units(self, path: Path) -> list[Unit]:
        with _opened(path) as file:
            return _row_groups(path, file)

    @override
    def scan(self, path: Path) -> list[Unit]:
        with _opened(path) as file:
            units = _row_groups(path, file)
            self._column_types(path, file, units[-1].first_row + units[-1].rows)
        return units

    @override
    def read_unit(self, unit: Unit) -> Clicks:
        return self.rows(unit).all_good()

    @override
    def rows(self, unit: Unit) -> UnitRows:
        table, types = self._table(unit)
        unit_check = UnitCheck(
            unit.path,
            unit.first_row,
            table.num_rows,
            lambda name, row: f"{unit.path}, column {name!r}, row {unit.first_row + row}",
        )

        def read(column: Column, wording: Mapping[Reason, str]) -> Any:
            values, length = table[column.name], types[column.name].length
            if length != column.length:
                column = dataclasses.replace(column, length=length)
            strings = hashed_strings if column.role == "string" else None
            checked = check(column, values, hash_strings=strings)
            clicks = unit_check.add(column, checked, values, wording=wording)
            fixed = length == 1 and pa.types.is_fixed_size_list(values.type)
            return clicks.reshape(-1, 1) if fixed else clicks  # type: ignore[union-attr]

        def key(column: Column) -> np.ndarray | Ragged:
            if types[column.name].kind == "strings":
                column = dataclasses.replace(column, role="string")
            return read(column, WORDING[column.role])

        def labels(label: Label) -> np.ndarray:
            column = column_of_label(label)
            return label_values(label, read(column, wording_of_label(label, column)))

        features = {column.name: key(column) for column in self._features}
        dense = {column.name: read(column, WORDING["number"]) for column in self._dense}
        return unit_check.rows(Clicks(features, gathered(self.label, self.positive, labels), dense))

    def _table(self, unit: Unit) -> tuple[pa.Table, dict[str, ColumnType]]:
        """Returns the columns of a unit, and their types in this file or in those before."""
        with _opened(unit.path) as file:
            types = self._column_types(unit.path, file, unit.rows)
            try:
                return file.read_row_groups(range(unit.begin, unit.end), self._names), types
            except (pa.ArrowException, OSError) as error:  # a damaged page, or a null among lists
                raise DataError(
                    f"{unit.path}, row groups from {unit.begin} on: expected {self._names}. "
                    f"Received: {error}"
                ) from error

    def _column_types(
        self, path: Path, file: pyarrow.parquet.ParquetFile, rows: int
    ) -> dict[str, ColumnType]:
        """Returns the type of each column, which other files with rows must have too.

        Raises:
            DataError: A column is absent, occurs twice, or has a type that cannot be read or is
                not that of other files.
        """
        agreed = (self._types if rows else None) or AgreedTypes()
        held = agreed.schema
        # Much faster than file.schema_arrow, which is made of these two.
        schema, arrow = file.metadata.schema, (file.metadata.metadata or {}).get(b"ARROW:schema")
        if held is None or held[1] != arrow or not held[0].equals(schema):
            held = (schema, arrow, self._types_in(path, file.schema_arrow))
            agreed.add(path, held[2])
            agreed.schema = held
        types = {name: held[2].get(name) for name in self._names}
        return {
            name: kind if kind and kind.kind else agreed.get(name) or kind or _NUMBER
            for name, kind in types.items()
        }

    def _types_in(self, path: Path, schema: pa.Schema) -> dict[str, ColumnType]:
        """Returns the types that the schema of a file shows."""
        names = schema.names
        if absent := set(self._names) - set(names):
            raise DataError(
                f"{path}: expected the columns {self._names}. "
                f"Received: no {sorted(absent)}, but {names}."
            )
        if twice := [name for name in self._names if names.count(name) > 1]:
            raise DataError(
                f"{path}: expected the columns {self._names}, each once. Received: {twice} more "
                "than once."
            )
        types = {}
        for name, (kinds, lists, expected) in self._readable.items():
            kind = schema.field(name).type
            in_file = _type_of(kind)
            if (in_file.kind is not None and in_file.kind not in kinds) or _lists_in(kind) > lists:
                raise DataError(
                    f"{path}, column {name!r}: expected {expected}. Received: {str(kind)!r}."
                )
            if not pa.types.is_null(kind):
                numbers = in_file.kind in _NUMBERS
                types[name] = in_file._replace(kind="numbers") if numbers else in_file
        return types

    @functools.cached_property
    def _readable(self) -> dict[str, tuple[Collection[str], int, str]]:
        """Readable kinds and lists (see `_lists_in`) of each column, and the words for these."""
        readable: dict[str, tuple[Collection[str], int, str]] = {}
        for spec, column in zip(self.features, self._features, strict=True):
            if column.role == "string":
                readable[column.name] = (("strings",), 2, "strings")
            elif isinstance(spec, Column):
                readable[column.name] = (("integers", "floats"), 2, "integers as keys")
            else:
                readable[column.name] = (_KEYS, 2, "integers or strings as keys")
        for column in self._dense:
            readable[column.name] = (_NUMBERS, 1, "numbers")
        for label in self._labels:
            kinds = ("strings",) if label.names else _NUMBERS
            advice = " (names= would name classes)" if label.kind == "class" else ""
            words = label.wanted + ("" if label.names else advice)
            readable[label.column] = (kinds, 0, words)
        return readable


def _lists_in(kind: pa.DataType) -> int:
    """Returns 0 for single values, 1 for lists of a fixed size, and 2 for other lists."""
    if pa.types.is_fixed_size_list(kind):
        return 1
    return 2 if pa.types.is_list(kind) or pa.types.is_large_list(kind) else 0


_KEYS = ("integers", "floats", "strings")
_NUMBERS = ("integers", "floats", "booleans", "decimals")
_NUMBER = ColumnType("numbers", 1)


def _type_of(kind: pa.DataType) -> ColumnType:
    length: int | None = 1
    if pa.types.is_fixed_size_list(kind):
        length, kind = kind.list_size, kind.value_type
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        length, kind = None, kind.value_type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    tests = (
        (pa.types.is_null, None),
        (pa.types.is_integer, "integers"),
        (pa.types.is_floating, "floats"),
        (pa.types.is_string, "strings"),
        (pa.types.is_large_string, "strings"),
        (pa.types.is_string_view, "strings"),
        (pa.types.is_boolean, "booleans"),
        (pa.types.is_decimal, "decimals"),
    )
    return ColumnType(next((name for test, name in tests if test(kind)), str(kind)), length)


def _row_groups(path: Path, file: pyarrow.parquet.ParquetFile) -> list[Unit]:
    metadata = file.metadata
    units: list[Unit] = []
    rows = 0
    for i in range(metadata.num_row_groups):
        count = metadata.row_group(i).num_rows
        units.append(Unit(path, i, i + 1, rows, count))
        rows += count
    return units or [Unit(path, 0, 0, 0, 0)]


def _opened(path: Path) -> pyarrow.parquet.ParquetFile:
    try:
        return pyarrow.parquet.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise DataError(f"{path}: expected a Parquet file. Received: {error}") from error
