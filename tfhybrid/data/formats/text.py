"""Strict reading of delimited text. The error for a malformed value names its line."""

from __future__ import annotations

import abc
import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
from typing_extensions import override

from tfhybrid.data.formats.format import Format, Unit
from tfhybrid.data.samples.clicks import Clicks
from tfhybrid.errors import DataError

UNIT_BYTES = 1 << 24
COMPRESSED = (".gz", ".bz2")


@dataclasses.dataclass(frozen=True)
class Layout:
    """The layout of a text file.

    Args:
        columns: Arrow types of the columns to read, by name.
        names: Names of all columns, in order, if there is no header. Defaults to those to read.
        delimiter: Separator of columns. Default `","`.
        header: Whether the first line names the columns. Default true.
        quotes: Whether a field in double quotes may contain the delimiter. Default true.
        empty_is_null: Whether an empty field is a missing value rather than an error. Default
            false.
        of_other_keys: Advice to add to an error about keys that are not numbers. Default: none.
    """

    columns: Mapping[str, pa.DataType]
    names: Sequence[str] | None = None
    delimiter: str = ","
    header: bool = True
    quotes: bool = True
    empty_is_null: bool = False
    of_other_keys: str = ""

    def location(self, unit: Unit, row: int) -> str:
        """Returns the location of a row of a unit, for errors: the file, and the line from 1.

        Args:
            unit: Unit of a file with this layout.
            row: Number of the row within the unit, from 0.
        """
        return f"{unit.path}, line {unit.first_row + row + 1 + self.header}"


class Text(Format):
    """Base class of formats with one sample per line.

    A unit is a run of lines of about 16 MiB; a compressed file is a single unit.
    """

    @property
    @abc.abstractmethod
    def layout(self) -> Layout:
        """Layout of the files."""

    @abc.abstractmethod
    def clicks(self, unit: Unit, table: pa.Table) -> Clicks:
        """Returns the samples that the columns of a unit contain.

        Args:
            unit: Unit from which the columns were read, for the location in errors.
            table: Columns of `layout`, with one row per sample.

        Raises:
            DataError: A value is malformed.
        """

    @override
    def units(self, path: Path) -> list[Unit]:
        units: list[Unit] = []
        begin = rows = 0
        for size, lines in _line_counts(path):
            held = lines - (self.layout.header and not units)
            units.append(Unit(path, begin, begin + size, rows, max(held, 0)))
            begin += size
            rows += held
        return units

    @override
    def read_unit(self, unit: Unit) -> Clicks:
        table = _read(unit, self.layout)
        if table.num_rows != unit.rows:
            raise DataError(
                f"{unit.path} from line {unit.first_row + 1} on: expected {unit.rows} samples, one "
                f"in each line. Received: {table.num_rows}."
            )
        return self.clicks(unit, table)


def _line_counts(path: Path) -> Iterator[tuple[int, int]]:
    """Yields the size of each unit of a file, as bytes (after decompression) and lines."""
    whole = path.suffix in COMPRESSED
    size = lines = 0
    last = b""
    with pa.input_stream(str(path)) as stream:
        while piece := stream.read(UNIT_BYTES):
            ends = piece.count(b"\n")
            if ends and not whole:
                cut = piece.rfind(b"\n") + 1
                yield size + cut, lines + ends
                size, lines = len(piece) - cut, 0
            else:
                size, lines = size + len(piece), lines + ends
            last = piece[-1:]
    if size or last == b"" or whole:
        yield size, lines + (last not in (b"", b"\n"))


def _read(unit: Unit, layout: Layout) -> pa.Table:
    """Returns the columns of a unit."""
    text = _text(unit, layout)
    try:
        return _parsed(text, layout, use_threads=True)
    except KeyError as error:
        raise DataError(
            f"{unit.path}, line 1: expected a header with {list(layout.columns)}. "
            f"Received: {error}."
        ) from error
    except pa.ArrowInvalid:
        return _parsed_naming_the_line(unit, text, layout)


def _text(unit: Unit, layout: Layout) -> pa.Buffer:
    """Returns the text of a unit: the header of the file if it has one, then the unit's lines."""
    if unit.path.suffix in COMPRESSED:
        with pa.input_stream(str(unit.path)) as stream:
            return pa.py_buffer(stream.read())
    with unit.path.open("rb") as file:
        header = file.readline() if layout.header and unit.begin else b""
        file.seek(unit.begin)
        return pa.py_buffer(header + file.read(unit.end - unit.begin))


def _parsed(text: pa.Buffer, layout: Layout, *, use_threads: bool) -> pa.Table:
    names = list(layout.columns)
    return pa.csv.read_csv(
        pa.BufferReader(text),
        pa.csv.ReadOptions(
            use_threads=use_threads,
            column_names=None if layout.header else list(layout.names or names),
        ),
        pa.csv.ParseOptions(
            delimiter=layout.delimiter,
            quote_char='"' if layout.quotes else False,
            ignore_empty_lines=False,
        ),
        pa.csv.ConvertOptions(
            column_types=layout.columns,
            include_columns=names,
            null_values=[""] if layout.empty_is_null else [],
            strings_can_be_null=layout.empty_is_null,
        ),
    )


def _parsed_naming_the_line(unit: Unit, text: pa.Buffer, layout: Layout) -> pa.Table:
    """Parses again on one thread, because only then does Arrow name the row of a failure."""
    try:
        return _parsed(text, layout, use_threads=False)
    except pa.ArrowInvalid as error:
        row = re.search(r"Row #(\d+): ", str(error))
        location = f"{unit.path}, line {unit.first_row + int(row[1])}" if row else str(unit.path)
        columns = ", ".join(f"{name} {kind}" for name, kind in layout.columns.items())
        hint = layout.of_other_keys if "to int64" in str(error) else ""
        raise DataError(
            f"{location}: expected the columns {columns}. Received: {error}.{hint}"
        ) from error
