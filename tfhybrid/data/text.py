"""Strict reading of delimited text: every value has its type, or the error names its line."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from tfhybrid.errors import DataError


@dataclasses.dataclass(frozen=True)
class TextFormat:
    """How the columns of a file are written.

    Args:
        columns: The columns wanted and their types. Without a header: all columns, in order.
        delimiter: What separates columns.
        header: Whether the first line names the columns.
        quotes: Whether a field in double quotes may hold the delimiter.
        empty_is_null: Whether an empty field is a missing value rather than an error.
    """

    columns: Mapping[str, pa.DataType]
    delimiter: str = ","
    header: bool = True
    quotes: bool = True
    empty_is_null: bool = False

    def line(self, row: int) -> int:
        """Returns the line, from 1, of a row, from 0."""
        return row + 1 + self.header


def read_text(path: Path, text_format: TextFormat) -> pa.Table:
    """Returns the columns of a file; `.gz` and `.bz2` files are decompressed on the way.

    Raises:
        DataError: A line has another number of fields, or a field is not of its column's type.
    """
    try:
        return _read(path, text_format, use_threads=True)
    except KeyError as error:
        raise DataError(
            f"{path}, line 1: wanted a header with {list(text_format.columns)}. Received: {error}."
        ) from error
    except pa.ArrowInvalid:
        return _read_naming_the_line(path, text_format)


def fail_at(path: Path, line: int, wanted: str, received: object) -> DataError:
    """Returns the error for a value that is none of the values wanted."""
    return DataError(f"{path}, line {line}: wanted {wanted}. Received: {received!r}.")


def read_labels(
    path: Path, text_format: TextFormat, column: pa.ChunkedArray, wanted: tuple[float, ...]
) -> np.ndarray:
    """Returns a column of labels after checking that all are among those wanted."""
    values = column.to_numpy()
    if len(odd := np.flatnonzero(~np.isin(values, wanted))):
        raise fail_at(
            path, text_format.line(odd[0]), f"a label of {list(wanted)}", float(values[odd[0]])
        )
    return values


def _read(path: Path, text_format: TextFormat, *, use_threads: bool) -> pa.Table:
    names = list(text_format.columns)
    return pa.csv.read_csv(
        path,
        pa.csv.ReadOptions(
            use_threads=use_threads, column_names=None if text_format.header else names
        ),
        pa.csv.ParseOptions(
            delimiter=text_format.delimiter,
            quote_char='"' if text_format.quotes else False,
            ignore_empty_lines=False,
        ),
        pa.csv.ConvertOptions(
            column_types=text_format.columns,
            include_columns=names,
            null_values=[""] if text_format.empty_is_null else [],
            strings_can_be_null=text_format.empty_is_null,
        ),
    )


def _read_naming_the_line(path: Path, text_format: TextFormat) -> pa.Table:
    """Reads again on one thread, which is when Arrow says in which row it failed."""
    try:
        return _read(path, text_format, use_threads=False)
    except pa.ArrowInvalid as error:
        row = re.search(r"Row #(\d+): ", str(error))
        place = f"{path}, line {row[1]}" if row else str(path)
        columns = ", ".join(f"{name} {kind}" for name, kind in text_format.columns.items())
        raise DataError(f"{place}: wanted the columns {columns}. Received: {error}.") from error
