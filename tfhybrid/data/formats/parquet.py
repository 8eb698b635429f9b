"""Parquet format: columns of keys, strings, lists and numbers."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
from typing_extensions import override

from tfhybrid.data.formats.agreed_types import AgreedTypes, ColumnType
from tfhybrid.data.formats.arrow_columns import NUMBER, ArrowColumns
from tfhybrid.data.formats.column_settings import ColumnSpec
from tfhybrid.data.formats.format import Format, Unit
from tfhybrid.data.formats.label import LabelSpec
from tfhybrid.data.formats.unit_rows import UnitRows
from tfhybrid.data.samples.clicks import Clicks
from tfhybrid.errors import DataError


@dataclasses.dataclass(frozen=True)
class Parquet(Format):
    """Parquet format. Only the named columns are read. A unit is a row group.

    Checksums of pages are compared in files that have them.

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
    and `high`; its length is that in the files. Its role may be `"time"`: timestamps, dates, and
    strings such as 2026-11-27 09:30:38, or lists of these, become microseconds since 1970. Infinite
    numbers are errors, and so are whole floats from 2^53 on (2^24 for float32), because larger ids
    are rounded.

    Raises:
        ConfigError: A column is read twice, a label is a feature, there is no label, or two labels
            have the same column.

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
        _ = self._columns  # raises now if the arguments make no sense

    @functools.cached_property
    def _columns(self) -> ArrowColumns:
        return ArrowColumns(
            self.features,
            self.dense,
            self.label,
            self.positive,
            self.missing_key,
            self.missing_value,
        )

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
        if table.num_rows != unit.rows:
            raise DataError(
                f"{unit.path}, row groups from {unit.begin} on: expected {unit.rows} rows, as the "
                f"footer says. Received: {table.num_rows}."
            )
        return self._columns.rows(table, types, unit.path, unit.first_row)

    def _table(self, unit: Unit) -> tuple[pa.Table, dict[str, ColumnType]]:
        """Returns the columns of a unit, and their types in this file or in those before."""
        names = self._columns.names
        with _opened(unit.path) as file:
            types = self._column_types(unit.path, file, unit.rows)
            try:
                return file.read_row_groups(range(unit.begin, unit.end), names), types
            except _ARROW_ERRORS as error:  # a damaged page, or a null among lists
                raise DataError(
                    f"{unit.path}, row groups from {unit.begin} on: expected {names}. "
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
            held = (schema, arrow, self._columns.types_in(f"{path}", _arrow_schema(path, file)))
            agreed.add(path, held[2])
            agreed.schema = held
        types = {name: held[2].get(name) for name in self._columns.names}
        return {
            name: kind if kind and kind.kind else agreed.get(name) or kind or NUMBER
            for name, kind in types.items()
        }


_ARROW_ERRORS = (pa.ArrowException, OSError, UnicodeDecodeError)  # a name may be no UTF-8


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
    """Opens a file, whose pages are compared with their checksums as far as they have any."""
    try:
        return pyarrow.parquet.ParquetFile(path, page_checksum_verification=True)
    except _ARROW_ERRORS as error:
        raise _no_parquet(path, error) from error


def _arrow_schema(path: Path, file: pyarrow.parquet.ParquetFile) -> pa.Schema:
    try:
        return file.schema_arrow
    except _ARROW_ERRORS as error:
        raise _no_parquet(path, error) from error


def _no_parquet(path: Path, error: Exception) -> Exception:
    """Returns the error for a file that Arrow refuses; the system's errors are returned as is."""
    if isinstance(error, OSError) and error.errno is not None:
        return error
    return DataError(f"{path}: expected a Parquet file. Received: {error}")
