"""Files as other programs write them: what they contain is read, or an error says what they are."""

from __future__ import annotations

import bz2
import gzip
from pathlib import Path

import pyarrow as pa
import pytest

from tfhybrid.data import Csv, FileBatches, Label, Shard
from tfhybrid.errors import DataError

ROWS = b"label,user\n1,7\n0,8\n"


def packed(rows: bytes, codec: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(rows)
    return sink.getvalue().to_pybytes()


def users(path: Path) -> list[int]:
    batches = FileBatches(Csv(["user"]), path, 2, seed=1, shuffle=False, shard=Shard(0, 1))
    return [user for clicks in batches.batches() for user in clicks.features["user"].tolist()]


@pytest.mark.parametrize(
    ("suffix", "codec"), [(".gz", "gzip"), (".bz2", "bz2"), (".zst", "zstd"), (".lz4", "lz4")]
)
def test_compressed_text_is_read_to_its_end(tmp_path: Path, suffix: str, codec: str) -> None:
    path = tmp_path / f"day.csv{suffix}"
    whole = packed(ROWS, codec)
    path.write_bytes(whole)
    assert users(path) == [7, 8]
    path.write_bytes(whole + packed(b"1,9\n", codec))
    assert users(path) == [7, 8, 9]
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        with pytest.raises(DataError, match=r"day\.csv.*expected a.* compressed file"):
            users(path)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (gzip.compress(ROWS, mtime=0), "a gzip file, whose name must end in .gz"),
        (bz2.compress(ROWS), "a bzip2 file, whose name must end in .bz2"),
        (packed(ROWS, "zstd"), "a Zstandard file"),
        (packed(ROWS, "lz4"), "an LZ4 file"),
        (b"\xfd7zXZ\x00\x00\x04", "an xz file"),
        (b"PK\x03\x04\x14\x00\x06\x00[Content_Types].xml", "a file of Excel"),
        (ROWS.decode().encode("utf-16"), "text in UTF-16"),
        (b"PAR1\x15\x04", "a Parquet file"),
        (ROWS.replace(b"\n", b"\r"), "a carriage return alone"),
        (b"label,user\r1,7", "a carriage return alone"),
    ],
)
@pytest.mark.parametrize("columns", [None, ["label", "user"]])
def test_what_is_no_text_is_named(
    tmp_path: Path, content: bytes, kind: str, columns: list[str] | None
) -> None:
    path = tmp_path / "day_1.csv"
    path.write_bytes(content)
    (tmp_path / "day_0.csv").write_bytes(ROWS if columns is None else b"1,7\n0,8\n")
    with pytest.raises(DataError, match=rf"day_1\.csv: expected .* Received: .*{kind}"):
        FileBatches(
            Csv(["user"], columns=columns), f"{tmp_path}/*.csv", 1, seed=1, shard=Shard(0, 1)
        )


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        (b'1,a\n0,"b\n', 3),
        (b'1,a\n0,"b', 3),
        (b'1,"a\n0,b"', 2),
        (b'1,"a""\n', 2),
    ],
    ids=["in the last line", "without a line end", "a break", "behind an escaped quote"],
)
def test_a_quote_that_is_open_at_the_end_is_refused(
    tmp_path: Path, lines: bytes, line: int
) -> None:
    path = tmp_path / "day.csv"
    path.write_bytes(b"label,city\n" + lines)
    cities = ["a", "b", "a\n", "b\n", 'b"', 'a"\n', 'a"']
    with pytest.raises(DataError, match=rf"day\.csv, line {line}: expected a closing quote"):
        Csv([], label=Label("city", "class", names=cities)).read(path)


@pytest.mark.parametrize("field", ['"b"', '"b"",c"', 'b"c', '""', '"a"b'])
def test_quotes_that_are_closed_are_read(tmp_path: Path, field: str) -> None:
    path = tmp_path / "day.csv"
    path.write_text(f"city,user,label\nx,7,1\n{field},8,0\n1,9,{field}\n")
    rows = Csv(["user"]).rows(Csv(["user"]).units(path)[0])
    assert rows.clicks.features["user"].tolist() == [7, 8, 9]


@pytest.mark.parametrize("rows", [1, 3])
def test_lines_of_any_length_are_read(tmp_path: Path, rows: int) -> None:
    path = tmp_path / "day.csv"
    line = "|".join(map(str, range(10**6, 10**6 + 200_000)))  # 1.6 MB; Arrow's blocks have 1 MB
    path.write_text("label,tags,price\n" + f"0,5,0.5\n1,{line},2.5\n" * rows)
    clicks = Csv([], lists=["tags"], dense=["price"]).read(path)
    assert clicks.dense["price"].tolist() == [0.5, 2.5] * rows
    assert clicks.label.tolist() == [0, 1] * rows
    assert [len(tags) for tags in clicks.features["tags"].tolist()] == [1, 200_000] * rows
    assert clicks.features["tags"].tolist()[1] == [*range(10**6, 10**6 + 200_000)]


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "days").mkdir()
    with pytest.raises(DataError, match=r"days: expected a file\. Received: a folder"):
        users(tmp_path / "days")


def test_a_break_within_quotes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "day.csv"
    path.write_text('label,city,user\n1,"a\nb",7\n')
    with pytest.raises(DataError, match=r"expected 2 samples.* without line breaks in quotes"):
        users(path)


@pytest.mark.parametrize("header", [b"label,user", b"label,user\r\n", b"\xef\xbb\xbflabel,user"])
def test_a_header_alone_is_a_file_without_rows(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "day.csv"
    path.write_bytes(header)
    assert len(Csv(["user"]).read(path)) == 0
