"""CSV format, with or without a header."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import pyarrow as pa
from typing_extensions import override

from tfhybrid.data.formats import columns
from tfhybrid.data.formats.format import Unit
from tfhybrid.data.formats.label import LabelSpec, gathered, labels_of
from tfhybrid.data.formats.text import Layout, Text
from tfhybrid.data.samples.clicks import Clicks
from tfhybrid.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Csv(Text):
    r"""CSV format. The header, or `columns`, names the columns.

    Files may be compressed (`.gz`, `.bz2`).

    Args:
        features: Columns of integers, read as keys. Columns that are not named are skipped.
        strings: Columns of strings, such as hexadecimal ids; their keys are `string_keys` of them.
        lists: Columns with any number of integers, separated by `separator`. They become `Ragged`;
            an empty field is an empty list. A column that is also in `strings` contains strings.
        dense: Columns of numbers.
        label: Label column, 0 or 1; or a `Label` with other values; or several of them.
        positive: Threshold of clicks: a label is 1 if the column is at least this. By default the
            column must contain 0 and 1.
        missing_key: Key for an empty field. By default an empty field is an error.
        missing_value: Number for an empty field. By default an empty field is an error.
        delimiter: Separator of columns. Default `","`.
        separator: Separator of the keys of a list. Default `"|"`.
        columns: Names of all columns, in order, for files without a header.

    Raises:
        ConfigError: When the first file is read: `columns` lacks a column that is read, there is no
            label, or two labels have the same column.

    Example:

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "ratings.csv")
    >>> _ = path.write_text("user,movie,rating\n7,50,4.5\n8,,2.0\n")
    >>> ratings = Csv(["user", "movie"], label="rating", positive=4.0, missing_key=-1)
    >>> clicks = ratings.read(path)
    >>> clicks.features["movie"], clicks.label
    (array([50, -1]), array([1., 0.], dtype=float32))
    """

    features: Sequence[str]
    strings: Sequence[str] = ()
    lists: Sequence[str] = ()
    dense: Sequence[str] = ()
    label: LabelSpec = "label"
    positive: float | None = None
    missing_key: int | None = None
    missing_value: float | None = None
    delimiter: str = ","
    separator: str = "|"
    columns: Sequence[str] | None = None

    @functools.cached_property
    @override
    def layout(self) -> Layout:
        types = {
            **{
                label.column: columns.type_of(label)
                for label in labels_of(self.label, self.positive)
            },
            **dict.fromkeys(self.features, pa.int64()),
            **dict.fromkeys((*self.strings, *self.lists), pa.string()),
            **dict.fromkeys(self.dense, pa.float32()),
        }
        empty_is_null = not (self.missing_key is None and self.missing_value is None)
        if self.columns is not None and (unknown := sorted(types.keys() - set(self.columns))):
            raise ConfigError(
                f"columns= must name all columns, including those that are read. Received: "
                f"columns={list(self.columns)}, without {unknown}"
            )
        return Layout(
            types,
            self.columns,
            delimiter=self.delimiter,
            header=self.columns is None,
            empty_is_null=empty_is_null,
            of_other_keys=" Put columns of ids that are not decimal numbers into strings=",
        )

    @override
    def clicks(self, unit: Unit, table: pa.Table) -> Clicks:
        location = functools.partial(self.layout.location, unit)
        return Clicks(
            {
                name: columns.keys(table[name], location, self.missing_key)
                for name in (*self.features, *self.strings)
                if name not in self.lists
            }
            | {
                name: columns.split_keys(
                    table[name], location, self.separator, strings=name in self.strings
                )
                for name in self.lists
            },
            gathered(
                self.label,
                self.positive,
                lambda label: columns.labels(table[label.column], location, label),
            ),
            {
                name: columns.numbers(table[name], location, self.missing_value)
                for name in self.dense
            },
        )
