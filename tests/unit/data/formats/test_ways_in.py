"""A drawn table of good and bad values, sent through every reader of files.

What arrives, and which rows are bad, must be what a slow judge in plain Python says, whatever the
units and the compression. docs/data.md says which values a format has no way to write.
"""

from __future__ import annotations

import gzip
import math
import random
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf

from tests.support.slow_judge import BAD, float32, judge
from tests.support.ways_in.drawn_rows import CITY, PRICE, SAMPLE, TAGS, USER, hash_one
from tests.support.ways_in.sample_files import cell, feature, packed, write_records
from tfhybrid.cli.data.conversion import convert
from tfhybrid.data import Criteo, Csv, Format, Libfm, Parquet, TFRecord
from tfhybrid.data.formats import text, tfrecord
from tfhybrid.errors import DataError
from tfhybrid.values import Column


def assert_judged(format_: Format, path: Path, verdicts: list[dict[str, Any]]) -> None:
    """Compares all units of a file with the verdicts on each column of its rows."""
    row = 0
    for unit in format_.units(path):
        rows = format_.rows(unit)
        assert unit.first_row == row
        assert len(rows.clicks) == unit.rows
        for number in range(unit.rows):
            verdict = verdicts[row]
            bad = [name for name, value in verdict.items() if value is BAD]
            assert bool(rows.bad is not None and rows.bad[number]) == bool(bad), (row, verdict)
            if bad:
                fault = rows.fault(number)
                assert (fault.path, fault.row) == (path, row)
                assert fault.column in (*bad, "")
            else:
                received = {name: cell(rows.clicks, name, number) for name in verdict}
                assert repr(received) == repr(verdict)
            row += 1
    assert row == len(verdicts)
    first = next((n for n, verdict in enumerate(verdicts) if BAD in verdict.values()), None)
    if first is None:
        assert len(format_.read(path)) == len(verdicts)
    else:
        line = f"(line {first + 2}|line {first + 1}|row {first}|record {first})"
        with pytest.raises(DataError, match=rf"{re.escape(str(path))}.*{line}.*Received: "):
            format_.read(path)


INTEGERS = [0, -1, 7, 2**53 + 1, 2**63 - 1, -(2**63)]
FLOATS = [0.0, -2.5, 1e39, 3e38, math.nan, math.inf, -math.inf, 2.0**24]
KEY_FLOATS = [7.0, 7.5, 2.0**24 - 1, 2.0**24, 2.0**53 - 1, 2.0**53, 1e18, math.nan, math.inf]
GOOD = {"user": 7, "price": 1.5, "city": "Ulm", "tags": [1, 2], "label": 1}


def drawn(seed: int, cells: dict[str, list[Any]], rows: int) -> list[dict[str, Any]]:
    """Returns rows of which most are good, and the others have one or more drawn values."""
    draw = random.Random(seed)
    return [
        {name: draw.choice(cells[name]) if draw.random() < 0.15 else GOOD[name] for name in GOOD}
        for _ in range(rows)
    ]


@pytest.mark.parametrize("rows", [0, 1, 9, 10, 11, 30])
@pytest.mark.parametrize("user", [pa.int64(), pa.uint64(), pa.float64(), pa.float32(), pa.null()])
def test_parquet(tmp_path: Path, user: pa.DataType, rows: int) -> None:
    keys = {pa.int64(): INTEGERS, pa.uint64(): [0, 2**63 - 1, 2**63, 2**64 - 1], pa.null(): []}
    cells = {
        "user": [*keys.get(user, KEY_FLOATS), None],
        "price": [*FLOATS, None],
        "city": ["", "a", None],
        "tags": [[], None, [5], [2**63 - 1, None], [None]],
        "label": [0, 2, None],
    }
    table = drawn(rows, cells, rows)
    if user == pa.null():
        table = [row | {"user": None} for row in table]
    types = {
        "user": user,
        "price": pa.float64(),
        "city": pa.string(),
        "tags": pa.list_(pa.int64()),
        "label": pa.int64(),
    }
    arrays = {name: pa.array([row[name] for row in table], kind) for name, kind in types.items()}
    path = tmp_path / "rows.parquet"
    pa.parquet.write_table(pa.table(arrays), path, row_group_size=10)
    format_ = Parquet([USER, CITY, Column("tags", length=None)], dense=[PRICE])
    narrow = user == pa.float32()
    verdicts = [
        {
            c.name: judge(
                c, _narrow(row[c.name]) if narrow and c is USER else row[c.name], hash_one
            )
            for c in SAMPLE
        }
        for row in table
    ]
    assert_judged(format_, path, verdicts)


def _narrow(value: Any) -> Any:
    return np.float32(value) if isinstance(value, float) else value


@pytest.mark.parametrize("rows", [0, 1, 9, 10, 11, 30])
@pytest.mark.parametrize("suffix", [".tfrecord", ".tfrecord.gz", ".tfrecord.zlib"])
def test_tfrecord(tmp_path: Path, monkeypatch: Any, suffix: str, rows: int) -> None:
    monkeypatch.setattr(tfrecord, "UNIT_RECORDS", 10)
    cells = {
        "user": [*INTEGERS, *KEY_FLOATS, None, [1, 2], b"x"],
        "price": [*FLOATS, 3, None, [1.0, 2.0], b"x"],
        "city": [b"", b"\xff", None, 5, 2.5, [b"a", b"b"]],
        "tags": [[], None, [5], [2.0, 2.5], [b"x"]],
        "label": [0, 2, 1.0, math.nan, None],
    }
    table = drawn(rows + 100, cells, rows)
    if table:  # the first record shows the types of features
        table[0] = dict(GOOD)
    path = tmp_path / f"rows{suffix}"
    write_records(path, table)
    format_ = TFRecord([USER, CITY], lists=["tags"], dense=[PRICE])
    verdicts = [
        {c.name: judge(c, _held(c, row[c.name]), hash_one) for c in SAMPLE} for row in table
    ]
    assert_judged(format_, path, verdicts)


def _held(column: Column, value: Any) -> Any:
    """Returns what a record holds: float32, and a list of one value where one is read."""
    if isinstance(value, list):
        return [np.float32(v) if isinstance(v, float) else v for v in value]
    narrow = np.float32(float32(value)) if isinstance(value, float) else value
    return [narrow] if column is TAGS and value is not None else narrow


KEY_TEXTS = ["0", "-7", "007", " 8", "9\t", "", "7.0", "1e3", "x", "+1", "0x1F", "1_0"]
KEY_TEXTS += [str(2**63 - 1), str(2**63), str(-(2**63)), "9" * 30, "nan", "--1", "-"]
NUMBER_TEXTS = [
    "1.5",
    "-2",
    "",
    "nan",
    "inf",
    "-inf",
    "1e39",
    "3e38",
    " 2.5",
    "x",
    "1,5",
    "1e",
    "5.",
]
TEXTS: dict[str, list[Any]] = {
    "user": KEY_TEXTS,
    "price": [text for text in NUMBER_TEXTS if "," not in text],
    "city": ["", "a", " a", "7"],
    "tags": ["", "5", "5|6", "5|", "x", "5|x", "7.0", str(2**63), str(2**63 - 1)],
    "label": ["0", "2", "", "yes", "1.0", "nan"],
}


def key_of(column: Column, text_: str) -> Any:
    stripped = text_.strip(" \t")
    if not stripped:
        return judge(column, None, hash_one)
    if re.fullmatch(r"0[xX][0-9a-fA-F]{1,16}", stripped):
        return int(stripped, 16)
    return judge(column, int(stripped), hash_one) if re.fullmatch(r"-?[0-9]+", stripped) else BAD


def number_of(column: Column, text_: str) -> Any:
    stripped = text_.strip(" \t")
    if not stripped:
        return judge(column, None, hash_one)
    try:
        return judge(column, float(stripped), hash_one)
    except ValueError:
        return BAD


def tags_of(_: Column, text_: str) -> Any:
    items = text_.split("|") if text_ else []
    fine = all(re.fullmatch(r"-?[0-9]{1,19}", item) for item in items)
    values = [int(item) for item in items] if fine else [2**63]
    return values if all(-(2**63) <= value < 2**63 for value in values) else BAD


OF_TEXTS: dict[str, Callable[[Column, str], Any]] = {
    "user": key_of,
    "price": number_of,
    "city": lambda column, text_: judge(column, text_, hash_one),
    "tags": tags_of,
    "label": number_of,
}


@pytest.mark.parametrize("unit_bytes", [1, 40, 1 << 24])
@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".csv.bz2"])
@pytest.mark.parametrize("rows", [0, 1, 2, 30])
def test_csv(tmp_path: Path, monkeypatch: Any, suffix: str, rows: int, unit_bytes: int) -> None:
    monkeypatch.setattr(text, "UNIT_BYTES", unit_bytes)
    good = {"user": "7", "price": "1.5", "city": "Ulm", "tags": "1|2", "label": "1"}
    draw = random.Random(rows)
    table: list[dict[str, str] | None] = [
        {n: draw.choice(TEXTS[n]) if draw.random() < 0.15 else good[n] for n in good}
        for _ in range(rows)
    ]
    verdicts: list[dict[str, Any]] = [
        {c.name: OF_TEXTS[c.name](c, row[c.name]) for c in SAMPLE} for row in table if row
    ]
    lines = [",".join(row.values()) for row in table if row]
    if rows > 2:  # a line of another length is bad as a whole
        lines[3], verdicts[3] = "7,1.5", dict.fromkeys(good, BAD)
    path = packed(tmp_path / f"rows{suffix}", "\n".join([",".join(good), *lines, ""]))
    format_ = Csv([USER], strings=[CITY], lists=["tags"], dense=[PRICE])
    assert_judged(format_, path, verdicts)


@pytest.mark.parametrize("end", ["\n", " \n", "\r\n"])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_libfm(tmp_path: Path, suffix: str, end: str) -> None:
    entries = [
        "7:1",
        f"{2**63 - 1}:1",
        f"-{2**63}:1",
        f"{2**63}:1",
        "7:2",
        "7",
        "x:1",
        "1" * 20 + ":1",
    ]
    labels = ["1", "0", "-1", "2", "x", "1.0"]
    draw = random.Random(1)
    table = [(draw.choice(labels), draw.choice(entries)) for _ in range(60)]
    path = packed(tmp_path / f"rows{suffix}", "".join(f"{a} {b}{end}" for a, b in table))

    def judged(label: str, entry: str) -> dict[str, Any]:
        key = re.fullmatch(r"(-?[0-9]{1,19}):1", entry)
        value = judge(Column("user"), int(key[1]), hash_one) if key else BAD
        number = number_of(Column("label", "label", classes=(-1, 0, 1)), label)
        return {"user": value, "label": BAD if number is BAD else max(number, 0.0)}

    assert_judged(Libfm(["user"]), path, [judged(*row) for row in table])


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_criteo(tmp_path: Path, suffix: str) -> None:
    numbers = ["3", "", "-2", "1.5", "x", str(2**63)]
    categories = ["68fd1e64", "", "FFFFFFFF", "g", "168fd1e64", "0"]
    draw = random.Random(2)
    table = [
        (draw.choice(["0", "1", "1", "2", ""]), draw.choice(numbers), draw.choice(categories))
        for _ in range(60)
    ]
    content = "".join("\t".join([a, *[b] * 13, *[c] * 26]) + "\n" for a, b, c in table)

    def judged(label: str, number: str, category: str) -> dict[str, Any]:
        key = int(category, 16) if re.fullmatch("[0-9A-Fa-f]{1,8}", category) else BAD
        whole = key_of(Column("I1", missing=0), number)
        counts = BAD if whole is BAD else float(np.float32(np.log1p(max(whole, 0))))
        verdict = number_of(Column("label", "label", classes=(0, 1)), label)
        return {"C1": key if category else -1, "I1": counts, "label": verdict}

    assert_judged(
        Criteo(), packed(tmp_path / f"rows{suffix}", content), [judged(*r) for r in table]
    )


def test_converted_files_have_the_same_rows(tmp_path: Path) -> None:
    lines = [f"{i % 2},{i},{i}.5,c{i % 3},{'|'.join(map(str, range(i % 4)))}" for i in range(50)]
    path = packed(tmp_path / "rows.csv.gz", "\n".join(["label,user,price,city,tags", *lines, ""]))
    format_ = Csv(["user"], strings=["city"], lists=["tags"], dense=["price"])
    convert(format_, path, tmp_path / "rows.parquet", lambda _: None)
    first, second = (
        format_.read(path),
        Parquet(["user", "city", "tags"], dense=["price"]).read(tmp_path / "rows.parquet"),
    )
    for row in range(50):
        for name in ("user", "price", "city", "tags", "label"):
            assert cell(first, name, row) == cell(second, name, row)


@pytest.mark.parametrize("suffix", [".gz", ".zlib"])
def test_a_compressed_file_that_is_cut_anywhere_is_refused(tmp_path: Path, suffix: str) -> None:
    record = tf.train.Example(features=tf.train.Features(feature={"label": feature(1)}))
    plain = tmp_path / "plain"
    with tf.io.TFRecordWriter(str(plain)) as writer:
        for _ in range(20):
            writer.write(record.SerializeToString())
    pack = gzip.compress if suffix == ".gz" else zlib.compress
    whole = pack(plain.read_bytes())
    path = tmp_path / f"rows.tfrecord{suffix}"
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        with pytest.raises(DataError, match=re.escape(str(path))):
            TFRecord([]).units(path)
    for content, rows in ((whole + whole, 40), (whole, 20)):
        path.write_bytes(content)
        assert len(TFRecord([]).read(path)) == rows
    path.write_bytes(whole + b"garbage")
    with pytest.raises(DataError, match="whole compressed file"):
        TFRecord([]).units(path)
    flushed = zlib.compressobj(wbits=31 if suffix == ".gz" else 15)
    path.write_bytes(flushed.compress(plain.read_bytes()) + flushed.flush(zlib.Z_FULL_FLUSH))
    with pytest.raises(DataError, match="ends within a stream"):
        TFRecord([]).units(path)


@pytest.mark.parametrize("suffix", [".gz", ".bz2"])
def test_compressed_text_that_is_cut_anywhere_is_refused(tmp_path: Path, suffix: str) -> None:
    path = packed(tmp_path / f"rows.csv{suffix}", "label\n" + "1\n" * 20)
    whole = path.read_bytes()
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        with pytest.raises(DataError, match=re.escape(str(path))):
            Csv([]).units(path)
    path.write_bytes(whole + whole[: len(whole) // 2])
    with pytest.raises(DataError, match=re.escape(str(path))):
        Csv([]).read(path)
