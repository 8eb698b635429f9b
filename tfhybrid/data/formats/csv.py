"""CSV with a header."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import pyarrow as pa

from tfhybrid.data.clicks import Clicks
from tfhybrid.data.formats import columns
from tfhybrid.data.formats.format import Unit
from tfhybrid.data.formats.label import LabelSpec, gathered, labels_of
from tfhybrid.data.formats.text import Layout, Text


@dataclasses.dataclass(frozen=True)
class Csv(Text):
    r"""CSV files whose header names the columns, perhaps compressed (`.gz`, `.bz2`).

    Args:
        features: Columns of integers, read as keys. Columns named nowhere are passed over.
        strings: Columns of strings, whose keys are `string_keys` of them.
        dense: Columns of numbers.
        label: Column of the label, 0 or 1; or a `Label` of other values; or several of them.
        positive: The label is 1 where the column is at least this. Defaults to none: the column
            must hold 0 and 1.
        missing_key: The key of an empty field. Defaults to none: such a field is an error.
        missing_value: The number of an empty field. Defaults to none, likewise.
        delimiter: What separates columns.

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
    dense: Sequence[str] = ()
    label: LabelSpec = "label"
    positive: float | None = None
    missing_key: int | None = None
    missing_value: float | None = None
    delimiter: str = ","

    @functools.cached_property
    def layout(self) -> Layout:
        """How the columns are written."""
        types = {
            **{
                label.column: columns.type_of(label)
                for label in labels_of(self.label, self.positive)
            },
            **dict.fromkeys(self.features, pa.int64()),
            **dict.fromkeys(self.strings, pa.string()),
            **dict.fromkeys(self.dense, pa.float32()),
        }
        empty_is_null = not (self.missing_key is None and self.missing_value is None)
        return Layout(types, self.delimiter, empty_is_null=empty_is_null)

    def clicks(self, unit: Unit, table: pa.Table) -> Clicks:
        """Returns the samples that a unit's columns hold."""
        place = functools.partial(self.layout.place, unit)
        return Clicks(
            {
                name: columns.keys(table[name], place, self.missing_key)
                for name in (*self.features, *self.strings)
            },
            gathered(
                self.label,
                self.positive,
                lambda label: columns.labels(table[label.column], place, label),
            ),
            {name: columns.numbers(table[name], place, self.missing_value) for name in self.dense},
        )
