"""Strict reading of delimited text; the error for a malformed value names its line."""

from __future__ import annotations

import abc
import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from tfhybrid.data.formats.format import Format, Unit
from tfhybrid.data.samples.clicks import Clicks
from tfhybrid.errors import DataError

UNIT_BYTES = 1 << 24
COMPRESSED = (".gz", ".bz2")


@dataclasses.dataclass(frozen=True)
class Layout:
    """The layout of a text file.

    Args:
        columns: The columns to read and their types.
        names: Names of all columns, in order, if there is no header. Defaults to those to read.
        delimiter: What separates columns.
        header: Whether the first line names the columns.
        quotes: Whether a field in double quotes may contain the delimiter.
        empty_is_null: Whether an empty field is a missing value rather than an error.
        of_other_keys: Advice, for an error, about columns of keys that are not numbers.
    """

    columns: Mapping[str, pa.DataType]
    names: Sequence[str] | None = None
    delimiter: str = ","
    header: bool = True
    quotes: bool = True
    empty_is_null: bool = False
    of_other_keys: str = ""

    def place(self, unit: Unit, row: int) -> str:
        """Returns the file and the line, from 1, of a row of a unit, from 0."""
        return f"{unit.path}, line {unit.first_row + row + 1 + self.header}"


class Text(Format):
    """A format with one sample per line.

    A unit is a run of lines of about 16 MiB; a compressed file is a single unit.
    """

    @property
    @abc.abstractmethod
    def layout(self) -> Layout:
        """How the columns are written."""

    @abc.abstractmethod
    def clicks(self, unit: Unit, table: pa.Table) -> Clicks:
        """Returns the samples that a unit's columns hold."""

    def units(self, path: Path) -> list[Unit]:
        """Cuts a file at the ends of lines."""
        units: list[Unit] = []
        begin = rows = 0
        for size, lines in _line_counts(path):
            held = lines - (self.layout.header and not units)
            units.append(Unit(path, begin, begin + size, rows, max(held, 0)))
            begin += size
            rows += held
        return units

    def read_unit(self, unit: Unit) -> Clicks:
        """Returns the samples of a run of lines."""
        table = _read(unit, self.layout)
        if table.num_rows != unit.rows:
            raise DataError(
                f"{unit.path} from line {unit.first_row + 1} on: wanted {unit.rows} samples, one "
                f"in each line. Received: {table.num_rows}."
            )
        return self.clicks(unit, table)


def _line_counts(path: Path) -> Iterator[tuple[int, int]]:
    """Yields bytes (uncompressed ones of a compressed file) and lines of each unit of a file."""
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
            f"{unit.path}, line 1: wanted a header with {list(layout.columns)}. Received: {error}."
        ) from error
    except pa.ArrowInvalid:
        return _parsed_naming_the_line(unit, text, layout)


def _text(unit: Unit, layout: Layout) -> pa.Buffer:
    """Returns the lines of a unit, after the header if there is one."""
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
    """Parses again on one thread, because only then Arrow says in which row it failed."""
    try:
        return _parsed(text, layout, use_threads=False)
    except pa.ArrowInvalid as error:
        found = re.search(r"Row #(\d+): ", str(error))
        place = f"{unit.path}, line {unit.first_row + int(found[1])}" if found else str(unit.path)
        columns = ", ".join(f"{name} {kind}" for name, kind in layout.columns.items())
        hint = layout.of_other_keys if "to int64" in str(error) else ""
        raise DataError(
            f"{place}: wanted the columns {columns}. Received: {error}.{hint}"
        ) from error
