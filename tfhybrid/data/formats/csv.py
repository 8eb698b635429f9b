"""CSV format, with or without a header."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, Literal

from typing_extensions import override

from tfhybrid.data.formats.column_settings import (
    KEY_ROLES,
    WORDING,
    ColumnSpec,
    check_names,
    column_of_label,
    columns_of,
    dense_of,
    lists_of,
    name_of,
    refuse_text,
)
from tfhybrid.data.formats.label import LabelSpec, gathered, labels_of
from tfhybrid.data.formats.text import Layout, Text
from tfhybrid.data.formats.text_columns import TextColumns, arrow_type_of
from tfhybrid.data.formats.unsplit_lists import UnsplitLists
from tfhybrid.data.samples.clicks import Clicks
from tfhybrid.errors import ConfigError
from tfhybrid.values import Column, Reason


@dataclasses.dataclass(frozen=True)
class Csv(Text):
    r"""CSV format. The header, or `columns`, names the columns.

    Files may be compressed (`.gz`, `.bz2`, `.zst`, `.lz4`).

    Args:
        features: Columns of integers, read as keys. Columns that are not named are skipped.
        strings: Columns of strings, such as hexadecimal ids; their keys are `string_keys` of them.
            A warning names a column whose strings look like lists.
        lists: Columns with any number of integers, separated by `separator`. They become `Ragged`;
            an empty field is an empty list. A column that is also in `strings`, or is a `Column` of
            role `"string"` or `"time"`, contains strings or times.
        dense: Columns of numbers.
        label: Label column, 0 or 1; or a `Label` with other values; or several of them.
        positive: Threshold of clicks: a label is 1 if the column is at least this. By default the
            column must contain 0 and 1.
        missing_key: Key for a missing value: an empty field, except in columns of strings. By
            default that is an error.
        missing_value: Number for an empty field or NaN. By default these are errors.
        delimiter: Separator of columns, one ASCII character. Default `","`.
        separator: Separator of the keys of a list. Default `"|"`.
        columns: Names of all columns, in order, for files without a header.
        empty: Meaning of an empty field of a column of strings: `"string"` (default), a string as
            any other, as in Parquet and in an exported model; or `"missing"`, a missing value.

    A `Column` among the names of columns has settings of its own, such as `missing`, `empty`, `low`
    and `high`. Its role may be `"time"`: times such as 2026-11-27 09:30:38 become microseconds
    since 1970. Its values are lists if its length is not 1.

    Raises:
        ConfigError: A column is read twice, a label is a feature, there is no label, two labels
            have the same column, or a separator cannot be used. When the first file is read:
            `columns` lacks a column that is read.

    Example:

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "ratings.csv")
    >>> _ = path.write_text("user,movie,rating\n7,50,4.5\n8,,2.0\n")
    >>> ratings = Csv(["user", "movie"], label="rating", positive=4.0, missing_key=-1)
    >>> clicks = ratings.read(path)
    >>> clicks.features["movie"], clicks.label
    (array([50, -1]), array([1., 0.], dtype=float32))
    """

    features: Sequence[ColumnSpec]
    strings: Sequence[ColumnSpec] = ()
    lists: Sequence[ColumnSpec] = ()
    dense: Sequence[ColumnSpec] = ()
    label: LabelSpec = "label"
    positive: float | None = None
    missing_key: int | None = None
    missing_value: float | None = None
    delimiter: str = ","
    separator: str = "|"
    columns: Sequence[str] | None = None
    empty: Literal["string", "missing"] = "string"

    def __post_init__(self) -> None:
        _check_separators(self.delimiter, self.separator)
        if self.empty not in ("string", "missing"):
            raise ConfigError(f"empty= must be 'string' or 'missing'. Received: {self.empty!r}")
        refuse_text(self.strings)
        refuse_text(self.lists)
        names = [column.name for column in self._keys + self._dense]
        check_names(names, labels_of(self.label, self.positive))

    @functools.cached_property
    def _keys(self) -> list[Column]:
        """Columns of keys, strings and times: single ones by their arguments, then lists."""
        in_lists = {name_of(spec) for spec in self.lists}
        strings = [spec for spec in self.strings if name_of(spec) not in in_lists]
        columns = [
            *columns_of(self.features, KEY_ROLES, self.missing_key),
            *columns_of(strings, ("string",), self.missing_key, empty=self.empty),
        ]
        of_strings = {name_of(spec): spec for spec in self.strings}
        for spec in self.lists:
            other = of_strings.get(name_of(spec))
            roles = KEY_ROLES if other is None else ("string", "key", "time")
            columns += lists_of([spec if isinstance(spec, Column) else other or spec], roles)
        # An empty field is a missing time.
        return [
            dataclasses.replace(each, empty="missing") if each.role == "time" else each
            for each in columns
        ]

    @functools.cached_property
    def _unsplit(self) -> UnsplitLists:
        """Columns of strings that are given by name, and may be lists that `lists` lacks."""
        in_lists = {name_of(spec) for spec in self.lists}
        names = {spec for spec in self.strings if isinstance(spec, str)} - in_lists
        return UnsplitLists(names, self.separator, "name the column in lists= too")

    @functools.cached_property
    def _dense(self) -> list[Column]:
        """Columns of numbers."""
        return dense_of(self.dense, self.missing_value)

    @functools.cached_property
    @override
    def layout(self) -> Layout:
        labels = labels_of(self.label, self.positive)
        columns = [*map(column_of_label, labels), *self._keys, *self._dense]
        types = {column.name: arrow_type_of(column) for column in columns}
        if self.columns is not None and (unknown := sorted(types.keys() - set(self.columns))):
            raise ConfigError(
                f"columns= must name all columns, including those that are read. Received: "
                f"columns={list(self.columns)}, without {unknown}"
            )
        return Layout(types, self.columns, delimiter=self.delimiter, header=self.columns is None)

    @override
    def clicks(self, columns: TextColumns) -> Clicks:
        wording = {**WORDING["key"], Reason.SPELLING: _SPELLING}

        def read(column: Column) -> Any:
            if column.length != 1:
                return columns.lists(column, self.separator)
            return columns.values(column, wording if column.role == "key" else None)

        for column in self._keys:
            columns.search(column, self._unsplit)
        features = {column.name: read(column) for column in self._keys}
        labels = gathered(self.label, self.positive, columns.labels)
        return Clicks(features, labels, {column.name: read(column) for column in self._dense})


_SPELLING = (
    "a key, a whole number of int64 without a point (put columns of other ids into strings=, where "
    "7 and 7.0 have different keys, columns of several keys into lists=, and times into a Column "
    "with the role 'time')"
)


def _check_separators(delimiter: str, separator: str) -> None:
    hint = ""
    if delimiter == "\\t":
        hint = " (a tab in YAML needs double quotes, on a command line $'\\t')"
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0':
        raise ConfigError(
            "delimiter= must be one ASCII character other than a double quote and a line end"
            f"{hint}. Received: {delimiter!r}"
        )
    if not separator:
        raise ConfigError("separator= must have at least one character. Received: ''")
