"""Columns of Arrow tables: the types that can be read, and the samples that they contain."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tfhybrid.data.formats.agreed_types import ColumnType
from tfhybrid.data.formats.column_settings import (
    KEY_ROLES,
    WORDING,
    ColumnSpec,
    check_names,
    column_of_label,
    columns_of,
    label_values,
    wording_of_label,
)
from tfhybrid.data.formats.format import hashed_strings
from tfhybrid.data.formats.label import Label, LabelSpec, gathered, labels_of
from tfhybrid.data.formats.unit_rows import UnitCheck, UnitRows
from tfhybrid.data.formats.unsplit_lists import UnsplitLists
from tfhybrid.data.samples.clicks import Clicks
from tfhybrid.data.samples.ragged import Ragged
from tfhybrid.errors import DataError
from tfhybrid.values import Column, Reason, check

NUMBER = ColumnType("numbers", 1)
_NUMBERS = ("integers", "floats", "booleans", "decimals")
_KEYS = ("integers", "floats", "strings")
_KINDS_OF: dict[str, tuple[Collection[str], int, str]] = {
    "string": (("strings",), 2, "strings"),
    "time": (("times", "strings"), 2, "timestamps, dates or strings as times"),
}


@dataclasses.dataclass(frozen=True)
class ArrowColumns:
    """The columns of tables that become samples. The arguments are those of `Parquet`.

    Args:
        features: Columns of keys.
        dense: Columns of numbers.
        label: Label column, or several of them.
        positive: Threshold of clicks, or `None`.
        missing_key: Key for a missing value, or `None`.
        missing_value: Number for a missing value, or `None`.

    Raises:
        ConfigError: A column is read twice, a label is a feature, there is no label, or two labels
            have the same column.
    """

    features: Sequence[ColumnSpec]
    dense: Sequence[ColumnSpec]
    label: LabelSpec
    positive: float | None
    missing_key: int | None
    missing_value: float | None

    def __post_init__(self) -> None:
        names = [column.name for column in (*self._features, *self._dense)]
        check_names(names, self._labels)

    @functools.cached_property
    def _features(self) -> list[Column]:
        """Columns of keys, strings and times; the table decides whether a name has strings."""
        return columns_of(self.features, KEY_ROLES, self.missing_key)

    @functools.cached_property
    def _dense(self) -> list[Column]:
        """Columns of numbers."""
        return columns_of(self.dense, ("number",), self.missing_value)

    @functools.cached_property
    def _unsplit(self) -> UnsplitLists:
        """Columns of keys that are given by name, and may be strings that stand for lists."""
        names = {spec for spec in self.features if isinstance(spec, str)}
        return UnsplitLists(names, "|", "split them first, as frame[{name!r}].str.split('|') does")

    @functools.cached_property
    def _labels(self) -> list[Label]:
        return labels_of(self.label, self.positive)

    @functools.cached_property
    def names(self) -> list[str]:
        """Names of all columns that are read."""
        columns = [column.name for column in (*self._features, *self._dense)]
        return list(dict.fromkeys([*columns, *(label.column for label in self._labels)]))

    def types_in(self, where: str, schema: pa.Schema) -> dict[str, ColumnType]:
        """Returns the types that a schema shows; a column of nulls shows none.

        Args:
            where: Description of the table, for errors.
            schema: Schema of the table.

        Raises:
            DataError: A column is absent, occurs twice, or has a type that cannot be read.
        """
        names = schema.names
        if absent := set(self.names) - set(names):
            raise DataError(
                f"{where}: expected the columns {self.names}. "
                f"Received: no {sorted(absent)}, but {names}."
            )
        if twice := [name for name in self.names if names.count(name) > 1]:
            raise DataError(
                f"{where}: expected the columns {self.names}, each once. Received: {twice} more "
                "than once."
            )
        types = {}
        for name, (kinds, lists, expected) in self._readable.items():
            kind = schema.field(name).type
            in_table = _type_of(kind)
            other = in_table.kind is not None and in_table.kind not in kinds
            if other or _lists_in(kind) > lists or in_table.length == 0:
                advice = ""
                if in_table.kind == "times":
                    advice = " (a Column with the role 'time' reads times)"
                raise DataError(
                    f"{where}, column {name!r}: expected {expected}{advice}. "
                    f"Received: {str(kind)!r}."
                )
            if not pa.types.is_null(kind):
                numbers = in_table.kind in _NUMBERS
                types[name] = in_table._replace(kind="numbers") if numbers else in_table
        return types

    def rows(
        self, table: pa.Table, types: Mapping[str, ColumnType], path: Path, first_row: int
    ) -> UnitRows:
        """Returns the samples of a table, good and bad.

        Args:
            table: Table with the columns.
            types: Type of each column.
            path: Path or name of the whole table, for messages.
            first_row: Number of the table's first row in it.
        """
        unit_check = UnitCheck(
            path,
            first_row,
            table.num_rows,
            lambda name, row: f"{path}, column {name!r}, row {first_row + row}",
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
            if column.role == "key" and types[column.name].kind == "strings":
                column = dataclasses.replace(column, role="string")
                if types[column.name].length == 1:
                    self._unsplit.search(column.name, table[column.name], path)
            return read(column, WORDING[column.role])

        def labels(label: Label) -> np.ndarray:
            column = column_of_label(label)
            return label_values(label, read(column, wording_of_label(label, column)))

        features = {column.name: key(column) for column in self._features}
        dense = {column.name: read(column, WORDING["number"]) for column in self._dense}
        return unit_check.rows(Clicks(features, gathered(self.label, self.positive, labels), dense))

    @functools.cached_property
    def _readable(self) -> dict[str, tuple[Collection[str], int, str]]:
        """Readable kinds and lists (see `_lists_in`) of each column, and the words for these."""
        readable: dict[str, tuple[Collection[str], int, str]] = {}
        for spec, column in zip(self.features, self._features, strict=True):
            if column.role in _KINDS_OF:
                readable[column.name] = _KINDS_OF[column.role]
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
        (pa.types.is_timestamp, "times"),
        (pa.types.is_date, "times"),
        (pa.types.is_boolean, "booleans"),
        (pa.types.is_decimal, "decimals"),
    )
    return ColumnType(next((name for test, name in tests if test(kind)), str(kind)), length)
