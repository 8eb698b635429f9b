"""Parquet format: columns of keys, strings, lists and numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
from typing_extensions import override

from tfhybrid.data.formats import columns
from tfhybrid.data.formats.format import Format, Unit
from tfhybrid.data.formats.label import LabelSpec, gathered, labels_of
from tfhybrid.data.samples.clicks import Clicks
from tfhybrid.errors import DataError


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
        missing_key: Key for a missing value. By default a missing value is an error.
        missing_value: Number for a missing value or NaN. By default these are errors.

    Raises:
        ConfigError: When the first file is read: there is no label, or two labels have the same
            column.

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

    features: Sequence[str]
    dense: Sequence[str] = ()
    label: LabelSpec = "label"
    positive: float | None = None
    missing_key: int | None = None
    missing_value: float | None = None

    @override
    def units(self, path: Path) -> list[Unit]:
        with _opened(path) as file:
            counts = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        units: list[Unit] = []
        rows = 0
        for i, count in enumerate(counts):
            units.append(Unit(path, i, i + 1, rows, count))
            rows += count
        return units or [Unit(path, 0, 0, 0, 0)]

    @override
    def read_unit(self, unit: Unit) -> Clicks:
        table = self._table(unit)

        def location_in(name: str) -> columns.LocationOf:
            return lambda row: f"{unit.path}, column {name!r}, row {unit.first_row + row}"

        return Clicks(
            {n: columns.keys(table[n], location_in(n), self.missing_key) for n in self.features},
            gathered(
                self.label,
                self.positive,
                lambda each: columns.labels(table[each.column], location_in(each.column), each),
            ),
            {n: columns.numbers(table[n], location_in(n), self.missing_value) for n in self.dense},
        )

    def _table(self, unit: Unit) -> pa.Table:
        labels = [label.column for label in labels_of(self.label, self.positive)]
        names = list(dict.fromkeys([*self.features, *self.dense, *labels]))
        with _opened(unit.path) as file:
            if absent := set(names) - set(file.schema_arrow.names):
                raise DataError(
                    f"{unit.path}: expected the columns {names}. "
                    f"Received: no {sorted(absent)}, but {file.schema_arrow.names}."
                )
            try:
                return file.read_row_groups(range(unit.begin, unit.end), names)
            except (pa.ArrowInvalid, OSError) as error:  # a damaged page, or a null among lists
                raise DataError(
                    f"{unit.path}, row groups from {unit.begin} on: expected {names}. "
                    f"Received: {error}"
                ) from error


def _opened(path: Path) -> pyarrow.parquet.ParquetFile:
    try:
        return pyarrow.parquet.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise DataError(f"{path}: expected a Parquet file. Received: {error}") from error
