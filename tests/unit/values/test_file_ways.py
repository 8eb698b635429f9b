"""Drawn rows through every reader of files: what arrives, and which rows are bad.

tests/unit/data/formats/test_ways_in.py sends texts as people write them; here are values.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.support.slow_judge import BAD
from tests.support.ways_in.drawn_rows import (
    CITY,
    LABEL,
    PRICE,
    SAMPLE,
    SIZES,
    TAGS,
    USER,
    Row,
    arrow_of,
    drawn,
    is_bad,
    verdicts_of,
)
from tests.support.ways_in.sample_files import cell, packed, write_records
from tests.support.ways_in.ways import WAYS
from tfhybrid.cli.data.conversion import convert
from tfhybrid.data import Clicks, Csv, Format, Libfm, Parquet, TFRecord
from tfhybrid.data.formats import text, tfrecord
from tfhybrid.data.formats.table_columns import clicks_of
from tfhybrid.errors import DataError
from tfhybrid.values import Column

FORMATS: dict[str, tuple[Format, list[Column]]] = {
    "`Parquet`": (Parquet([USER, CITY, TAGS], dense=[PRICE]), SAMPLE),
    "`TFRecord`": (TFRecord([USER, CITY], lists=[TAGS], dense=[PRICE]), SAMPLE),
    "`Csv`": (Csv([USER], strings=[CITY], lists=["tags"], dense=[PRICE]), SAMPLE),
    "`Libfm`": (Libfm(["user"]), [Column("user"), LABEL]),
}


# It shows the types of the features.
FIRST_RECORD = {"user": 7, "price": np.float32(1.5), "city": "a", "tags": [1], "label": 1}


def assert_judged(format_: Format, path: Path, verdicts: list[Row]) -> None:
    """Compares all units of a file with the verdicts on each column of its rows."""
    row = 0
    for unit in format_.units(path):
        rows = format_.rows(unit)
        assert (unit.first_row, unit.rows) == (row, len(rows.clicks))
        for number in range(unit.rows):
            verdict = verdicts[row]
            assert bool(rows.bad is not None and rows.bad[number]) == is_bad(verdict), verdict
            if is_bad(verdict):
                fault = rows.fault(number)
                assert (fault.path, fault.row) == (path, row)
                assert verdict[fault.column] is BAD
            else:
                received = {name: cell(rows.clicks, name, number) for name in verdict}
                assert repr(received) == repr(verdict)
            row += 1
    assert row == len(verdicts)
    assert_first_is_named(verdicts, lambda: len(format_.read(path)), path)


def assert_first_is_named(verdicts: list[Row], read: Callable[[], int], path: Path) -> None:
    first = next((n for n, verdict in enumerate(verdicts) if is_bad(verdict)), None)
    if first is None:
        assert read() == len(verdicts)
        return
    place = f"(line {first + 2}|line {first + 1}|row {first}|record {first})"
    with pytest.raises(DataError, match=rf"{re.escape(str(path))}.*{place}: .*Received: "):
        read()


@pytest.mark.parametrize("rows", SIZES)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("codec", ["none", "snappy", "zstd"])
def test_parquet(tmp_path: Path, codec: str, seed: int, rows: int) -> None:
    table, types = drawn(WAYS["`Parquet`"], SAMPLE, seed, rows)
    path = tmp_path / "rows.parquet"
    pa.parquet.write_table(arrow_of(table, types), path, row_group_size=10, compression=codec)
    assert_judged(FORMATS["`Parquet`"][0], path, verdicts_of(SAMPLE, table))


@pytest.mark.parametrize("rows", SIZES)
@pytest.mark.parametrize("suffix", ["", ".gz", ".zlib"])
def test_tfrecord(tmp_path: Path, monkeypatch: Any, suffix: str, rows: int) -> None:
    monkeypatch.setattr(tfrecord, "UNIT_RECORDS", 10)
    table, _ = drawn(WAYS["`TFRecord`"], SAMPLE, rows, rows)
    table[:1] = [dict(FIRST_RECORD)][:rows]
    path = write_records(tmp_path / f"rows.tfrecord{suffix}", table)
    assert_judged(FORMATS["`TFRecord`"][0], path, verdicts_of(SAMPLE, table))


@pytest.mark.parametrize("rows", SIZES)
@pytest.mark.parametrize("unit_bytes", [1, 120, 1 << 24])
@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".csv.bz2", ".csv.zst", ".csv.lz4"])
def test_csv(tmp_path: Path, monkeypatch: Any, suffix: str, unit_bytes: int, rows: int) -> None:
    monkeypatch.setattr(text, "UNIT_BYTES", unit_bytes)
    table, _ = drawn(WAYS["`Csv`"], SAMPLE, rows + unit_bytes, rows)
    names = [column.name for column in SAMPLE]
    lines = [",".join(field(row[name]) for name in names) for row in table]
    path = packed(tmp_path / f"rows{suffix}", "\n".join([",".join(names), *lines, ""]))
    assert_judged(FORMATS["`Csv`"][0], path, verdicts_of(SAMPLE, table))


def field(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return "|".join(map(field, value))
    return repr(float(value)) if isinstance(value, float | np.floating) else str(value)


@pytest.mark.parametrize("rows", SIZES)
@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2", ".zst", ".lz4"])
def test_libfm(tmp_path: Path, monkeypatch: Any, suffix: str, rows: int) -> None:
    monkeypatch.setattr(text, "UNIT_BYTES", 60)
    format_, columns = FORMATS["`Libfm`"]
    table, _ = drawn(WAYS["`Libfm`"], columns, rows, rows)
    lines = [f"{field(row['label'])} {row['user']}:1\n" for row in table]
    path = packed(tmp_path / f"rows{suffix}", "".join(lines))
    clicks = Column("label", "label", classes=(-1, 0, 1))  # of which -1 becomes 0
    verdicts = verdicts_of([columns[0], clicks], table)
    for verdict in verdicts:
        if verdict["label"] == -1:
            verdict["label"] = 0.0
    assert_judged(format_, path, verdicts)


def written(way: str, path: Path, seed: int, rows: int) -> list[Row]:
    """Writes drawn rows to a file, and returns them."""
    table, types = drawn(WAYS[way], SAMPLE, seed, rows)
    names = [column.name for column in SAMPLE]
    if way == "`Parquet`":
        pa.parquet.write_table(arrow_of(table, types), path, row_group_size=10)
    elif way == "`TFRecord`":
        table[:1] = [dict(FIRST_RECORD)][:rows]
        write_records(path, table)
    else:
        lines = [",".join(field(row[name]) for name in names) for row in table]
        packed(path, "\n".join([",".join(names), *lines, ""]))
    return table


@pytest.mark.parametrize("rows", SIZES)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("way", ["`Csv`", "`Parquet`", "`TFRecord`"])
def test_converted_files(tmp_path: Path, way: str, seed: int, rows: int) -> None:
    """They have the same rows; a bad one is named."""
    path, to = tmp_path / "rows", tmp_path / "rows.parquet"
    verdicts = verdicts_of(SAMPLE, written(way, path, 7 * seed + rows, rows))

    def read() -> int:
        convert(FORMATS[way][0], path, to, lambda _: None)
        clicks = Parquet(["user", "city", "tags"], dense=["price"]).read(to)
        received = [{n: cell(clicks, n, row) for n in verdicts[0]} for row in range(len(clicks))]
        assert repr(received) == repr(verdicts)
        return len(clicks)

    assert_first_is_named(verdicts, read, path)


@pytest.mark.parametrize("rows", SIZES[1:])
@pytest.mark.parametrize("seed", range(6))
def test_tables_in_memory(seed: int, rows: int) -> None:
    columns = [USER, PRICE, Column("city", "string", missing=-1), LABEL]
    columns.append(Column("tags", length=None, missing=-1))
    table, types = drawn(WAYS["`Batches.of`"], columns, seed, rows)
    verdicts = verdicts_of(columns, table)

    def read(source: Any) -> Clicks:
        names: Any = {"features": ["user", "city", "tags"], "dense": ["price"]}
        return clicks_of(source, "label", missing=(-1, 0.5), **names)

    arrow = arrow_of(table, types)
    assert_first_is_named(verdicts, lambda: len(read(arrow)), Path("The table"))
    good = [n for n, verdict in enumerate(verdicts) if not is_bad(verdict)]
    arrow = arrow.take(pa.array(good, pa.int64()))
    for source in (arrow, {name: arrow[name] for name in arrow.column_names}):
        clicks = read(source)
        for row, number in enumerate(good):
            received = {name: cell(clicks, name, row) for name in verdicts[number]}
            assert repr(received) == repr(verdicts[number])
