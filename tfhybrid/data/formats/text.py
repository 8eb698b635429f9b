"""Strict reading of delimited text. The error for a malformed value names its line."""

from __future__ import annotations

import abc
import csv
import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
from typing_extensions import override

from tfhybrid.data.formats.file_kinds import kind_of
from tfhybrid.data.formats.format import Format, Unit
from tfhybrid.data.formats.text_columns import TextColumns
from tfhybrid.data.formats.unit_rows import UnitCheck, UnitRows
from tfhybrid.data.samples.clicks import Clicks
from tfhybrid.errors import DataError

UNIT_BYTES = 1 << 24
_MAX_BLOCK = 2**31 - 1  # of Arrow
COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")
_TRAILING_BLANKS = re.compile(rb" +(?=\r?\n|\Z)")


@dataclasses.dataclass(frozen=True)
class Layout:
    """The layout of a text file.

    Args:
        columns: Arrow types of the columns to read, by name.
        names: Names of all columns, in order, if there is no header. Defaults to those to read.
        delimiter: Separator of columns. Default `","`.
        header: Whether the first line names the columns. Default true.
        quotes: Whether a field in double quotes may contain the delimiter. Default true.
        empty_is_null: Whether an empty text is a missing value. Default false. An empty number
            always is one.
        trailing_blanks: Whether a line may end with delimiters that mean nothing. Default false.
    """

    columns: Mapping[str, pa.DataType]
    names: Sequence[str] | None = None
    delimiter: str = ","
    header: bool = True
    quotes: bool = True
    empty_is_null: bool = False
    trailing_blanks: bool = False

    @functools.cached_property
    def checked_headers(self) -> set[bytes]:
        """First lines that were checked and name all columns. Any thread may add one."""
        return set()

    def location(self, unit: Unit, row: int, column: str = "") -> str:
        """Returns the location of a row of a unit, for errors: the file, and the line from 1.

        Args:
            unit: Unit of a file with this layout.
            row: Number of the row within the unit, from 0.
            column: Name of the column. Default: none.
        """
        of_column = f", column {column!r}" if column else ""
        return f"{unit.path}{of_column}, line {unit.first_row + row + 1 + self.header}"


class Text(Format):
    """Base class of formats with one sample per line.

    A unit is a run of lines of about 16 MiB; a compressed file is a single unit.
    """

    @property
    @abc.abstractmethod
    def layout(self) -> Layout:
        """Layout of the files."""

    @abc.abstractmethod
    def clicks(self, columns: TextColumns) -> Clicks:
        """Returns the samples that the columns of a unit contain, good and bad.

        Args:
            columns: Columns of `layout`, with one row per sample, which are checked as they are
                taken.
        """

    @override
    def units(self, path: Path) -> list[Unit]:
        units: list[Unit] = []
        begin = rows = 0
        try:
            for size, lines in _line_counts(path, self.layout):
                held = lines - (self.layout.header and not units)
                units.append(Unit(path, begin, begin + size, rows, max(held, 0)))
                begin += size
                rows += held
        except OSError as error:
            raise _damaged(path, error) from error
        return units

    @override
    def read_unit(self, unit: Unit) -> Clicks:
        return self.rows(unit).all_good()

    @override
    def rows(self, unit: Unit) -> UnitRows:
        table = self._typed(unit)
        if table is None:
            return self._rows_of_texts(unit)
        self._check_count(unit, table.num_rows)
        check = self._unit_check(unit)
        return check.rows(self.clicks(TextColumns(table, check)))

    def _typed(self, unit: Unit) -> pa.Table | None:
        """Returns the columns of a unit; `None` if Arrow finds a malformed value or a long line."""
        text = _text(unit, self.layout)
        try:
            return _parsed(text, self.layout)
        except KeyError as error:
            raise DataError(
                f"{unit.path}, line 1: expected a header with {list(self.layout.columns)}. "
                f"Received: {error}."
            ) from error
        except pa.ArrowInvalid:
            if not self.layout.trailing_blanks:
                return None
        try:
            return _parsed(_TRAILING_BLANKS.sub(b"", text), self.layout)
        except pa.ArrowInvalid:
            return None

    def _rows_of_texts(self, unit: Unit) -> UnitRows:
        """Reads a unit in which Arrow found a malformed value: all columns as texts."""
        text = _text(unit, self.layout)
        if self.layout.trailing_blanks:
            text = _TRAILING_BLANKS.sub(b"", text)
        try:
            table, odd = _parsed_as_texts(text, self.layout)
        except pa.ArrowInvalid as error:
            raise DataError(
                f"{unit.path}, from line {unit.first_row + 1} on: expected the columns "
                f"{list(self.layout.columns)}. Received: {error}."
            ) from error
        self._check_count(unit, table.num_rows + len(odd))
        check = self._unit_check(unit)
        if odd:
            rows = np.ones(unit.rows, bool)
            rows[list(odd)] = False
            table = table.take(pa.array(np.cumsum(rows) - 1, mask=~rows))
            columns = next(iter(odd.values())).expected_columns
            texts = {number: row.text for number, row in odd.items()}
            check.add_bad_rows(texts, f"{columns} columns")
        return check.rows(self.clicks(TextColumns(table, check, texts=True)))

    def _unit_check(self, unit: Unit) -> UnitCheck:
        def location(name: str, row: int) -> str:
            return self.layout.location(unit, row, name)

        return UnitCheck(unit.path, unit.first_row, unit.rows, location, absent="an empty field")

    def _check_count(self, unit: Unit, rows: int) -> None:
        if rows != unit.rows:
            raise DataError(
                f"{unit.path} from line {unit.first_row + 1} on: expected {unit.rows} samples, one "
                f"in each line, without line breaks in quotes. Received: {rows}."
            )


def _line_counts(path: Path, layout: Layout) -> Iterator[tuple[int, int]]:
    """Yields the size of each unit of a file, as bytes (after decompression) and lines."""
    whole = path.suffix in COMPRESSED
    if whole and path.stat().st_size == 0:
        raise DataError(f"{path}: expected a compressed file. Received: an empty one.")
    size = lines = 0
    last = b""
    with pa.input_stream(str(path)) as stream:
        while piece := stream.read(UNIT_BYTES):
            if not last:
                _check_beginning(path, piece)
                if layout.header:
                    _check_header(path, piece, layout)
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


def _check_beginning(path: Path, piece: bytes) -> None:
    """Checks that a file begins as text whose lines end with a line feed."""
    if kind := kind_of(piece[:16]):
        raise DataError(f"{path}: expected text in UTF-8. Received: {kind}.")
    if b"\r" in piece and b"\n" not in piece and piece.find(b"\r") < len(piece) - 1:
        raise DataError(
            f"{path}: expected lines that end with a line feed. Received: a carriage return alone, "
            f"as in {piece[:60]!r}."
        )


def _check_header(path: Path, piece: bytes, layout: Layout) -> None:
    """Checks that the first line names each column to read once, unless an equal line does."""
    end = piece.find(b"\n")
    line = piece[:end] if end >= 0 else piece
    if line in layout.checked_headers or (end < 0 and len(piece) >= UNIT_BYTES):
        return
    layout.checked_headers.add(line)
    try:
        text = line.decode("utf-8-sig").rstrip("\r")
        names = next(csv.reader([text], delimiter=layout.delimiter, strict=True), [])
    except (UnicodeDecodeError, csv.Error):
        return  # Arrow says what is wrong
    columns = list(layout.columns)
    location = f"{path}, line 1: expected a header with {columns}"
    if absent := [name for name in columns if name not in names]:
        layout.checked_headers.discard(line)
        raise DataError(f"{location}. Received: no {absent}, but {names}.")
    if twice := [name for name in columns if names.count(name) > 1]:
        layout.checked_headers.discard(line)
        raise DataError(f"{location}, each once. Received: {twice} more than once.")


def _damaged(path: Path, error: OSError) -> Exception:
    """Returns the error for a file that cannot be decompressed; other errors are returned as is."""
    if error.errno is not None:
        return error
    if path.is_dir():
        return DataError(f"{path}: expected a file. Received: a folder.")
    return DataError(f"{path}: expected a whole compressed file. Received: {error}")


def _text(unit: Unit, layout: Layout) -> bytes:
    """Returns the text of a unit: the header of the file if it has one, then the unit's lines."""
    if unit.path.suffix in COMPRESSED:
        try:
            with pa.input_stream(str(unit.path)) as stream:
                text = stream.read()
        except OSError as error:
            raise _damaged(unit.path, error) from error
    else:
        with unit.path.open("rb") as file:
            header = file.readline() if layout.header and unit.begin else b""
            file.seek(unit.begin)
            text = header + file.read(unit.end - unit.begin)
    if layout.header and text and not unit.rows and not text.endswith(b"\n"):
        text += b"\n"  # a header alone; Arrow wants its line to end
    _check_last_quote(unit, layout, text)
    if layout.trailing_blanks and text[: text.find(b"\n")].rstrip(b"\r").endswith(b" "):
        return _TRAILING_BLANKS.sub(b"", text)
    return text


def _check_last_quote(unit: Unit, layout: Layout, text: bytes) -> None:
    """Checks that no quote is open at the end of a unit, where Arrow would close it.

    An open quote in another line joins it with the next one, so that a sample is missing.
    """
    end = len(text) - text.endswith(b"\n")
    line = text[text.rfind(b"\n", 0, end) + 1 : end]
    if not layout.quotes or b'"' not in line:
        return
    delimiter = re.escape(layout.delimiter.encode())
    field = rb'(?:"(?:[^"]++|"")*+"|(?!"))[^%s]*' % delimiter
    if not re.fullmatch(rb"%s(?:%s%s)*" % (field, delimiter, field), line):
        raise DataError(
            f"{layout.location(unit, unit.rows - 1)}: expected a closing quote in the same line. "
            f"Received: {line!r}."
        )


def _parsed(text: bytes, layout: Layout) -> pa.Table:
    if not text and not layout.header:  # Arrow takes no file without a line
        return pa.schema(layout.columns).empty_table()
    return pa.csv.read_csv(
        pa.BufferReader(text),
        _read_options(layout, use_threads=True),
        _parse_options(layout),
        pa.csv.ConvertOptions(
            column_types=layout.columns,
            include_columns=list(layout.columns),
            null_values=[""],
            strings_can_be_null=layout.empty_is_null,
        ),
    )


def _parsed_as_texts(text: bytes, layout: Layout) -> tuple[pa.Table, dict[int, pa.csv.InvalidRow]]:
    """Returns the columns as bytes, and the lines with other numbers of columns by their rows."""
    odd: dict[int, pa.csv.InvalidRow] = {}

    def skip(row: pa.csv.InvalidRow) -> str:
        odd[row.number - 1 - layout.header] = row
        return "skip"

    options = _parse_options(layout)
    options.invalid_row_handler = skip
    table = pa.csv.read_csv(
        pa.BufferReader(text),
        # Arrow counts the rows of one thread alone, and refuses lines that are longer than a block.
        _read_options(layout, use_threads=False, block_size=min(max(len(text), 1), _MAX_BLOCK)),
        options,
        pa.csv.ConvertOptions(
            column_types=dict.fromkeys(layout.columns, pa.binary()),
            include_columns=list(layout.columns),
            null_values=[],
        ),
    )
    return table, odd


def _read_options(
    layout: Layout, *, use_threads: bool, block_size: int | None = None
) -> pa.csv.ReadOptions:
    names = None if layout.header else list(layout.names or layout.columns)
    return pa.csv.ReadOptions(use_threads=use_threads, block_size=block_size, column_names=names)


def _parse_options(layout: Layout) -> pa.csv.ParseOptions:
    return pa.csv.ParseOptions(
        delimiter=layout.delimiter,
        quote_char='"' if layout.quotes else False,
        ignore_empty_lines=False,
    )
