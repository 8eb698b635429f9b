"""Lists of strings, times, and lists of times, in every format that has names of columns."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf

from tfhybrid.data import Column, Csv, Format, Parquet, TFRecord, string_keys
from tfhybrid.errors import ConfigError, DataError

GENRES = [["Crime", "Drama"], [], ["Crime"]]
SEEN = [["2026-11-27 09:30:38"], ["2026-11-27", "1969-12-31T23:59:59"], []]
AT = ["2017-11-07 09:30:38", "2017-11-07T09:30:38.5", "2017-11-07 10:30:38+01:00"]
VECTOR = [[0.5, 1.0], [2.0, -3.5], [1e-3, 0.0]]
FEATURES = [Column("genres", "string", length=None), Column("at", "time")]
LISTS = [Column("seen", "time")]
DENSE = [Column("vector", "number", length=2)]


def csv(path: Path) -> Format:
    lines = [
        ",".join(["1", "|".join(genres), "|".join(seen), at, "|".join(map(str, vector))])
        for genres, seen, at, vector in zip(GENRES, SEEN, AT, VECTOR, strict=True)
    ]
    path.write_text("\n".join(["label,genres,seen,at,vector", *lines, ""]))
    return Csv(FEATURES, lists=LISTS, dense=DENSE)


def parquet(path: Path) -> Format:
    columns = {
        "label": [1, 1, 1],
        "genres": GENRES,
        "seen": pa.array(
            [[datetime.datetime.fromisoformat(each) for each in row] for row in SEEN],
            pa.list_(pa.timestamp("ms")),
        ),
        "at": AT,
        "vector": pa.array(VECTOR, pa.list_(pa.float64(), 2)),
    }
    pa.parquet.write_table(pa.table(columns), path)
    return Parquet([*FEATURES, *LISTS], dense=DENSE)


def record(path: Path) -> Format:
    def texts(values: list[str]) -> tf.train.Feature:
        encoded = [value.encode() for value in values]
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=encoded))

    with tf.io.TFRecordWriter(str(path)) as writer:
        for genres, seen, at, vector in zip(GENRES, SEEN, AT, VECTOR, strict=True):
            features = {
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[1])),
                "genres": texts(genres),
                "seen": texts(seen),
                "at": texts([at]),
                "vector": tf.train.Feature(float_list=tf.train.FloatList(value=vector)),
            }
            message = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(message.SerializeToString())
    return TFRecord(FEATURES, lists=LISTS, dense=DENSE)


def microseconds(text: str) -> int:
    time = datetime.datetime.fromisoformat(text)
    time = time if time.tzinfo else time.replace(tzinfo=datetime.UTC)
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (time - epoch) // datetime.timedelta(microseconds=1)


@pytest.mark.parametrize("write", [csv, parquet, record])
def test_every_format_reads_them(write: Callable[[Path], Format], tmp_path: Path) -> None:
    path = tmp_path / "rows"
    clicks = write(path).read(path)
    crime, drama = string_keys(["Crime", "Drama"]).numpy().tolist()
    assert clicks.features["genres"].tolist() == [[crime, drama], [], [crime]]
    assert clicks.features["seen"].tolist() == [list(map(microseconds, row)) for row in SEEN]
    assert clicks.features["at"].tolist() == list(map(microseconds, AT))
    np.testing.assert_array_equal(clicks.dense["vector"], np.array(VECTOR, np.float32))


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_an_empty_field_of_csv_is_a_missing_time(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.csv", "label,at\n1,2026-11-27\n0,\n")
    with pytest.raises(DataError, match=r"column 'at', line 3: expected a time \(missing= of"):
        Csv([Column("at", "time")]).read(path)
    clicks = Csv([Column("at", "time", missing=-1)]).read(path)
    assert clicks.features["at"].tolist() == [microseconds("2026-11-27"), -1]


@pytest.mark.parametrize(
    ("column", "field", "expected"),
    [
        (Column("x", "time"), "27.11.2026", "a time in ISO 8601, such as 2026-11-27 09:30:38"),
        (Column("x", "time", length=None), "2026-11-27|x", r"times in ISO 8601 separated by '\|'"),
        (Column("x", length=2), "1|2|3", "a list of 2, each a key"),
        (Column("x", length=None), "1|y", "whole numbers separated by .* in strings= too"),
        ("x", "2026-11-27", "times into a Column with the role 'time'"),
    ],
)
def test_a_malformed_field_of_csv_is_told_what_it_should_be(
    tmp_path: Path, column: Column | str, field: str, expected: str
) -> None:
    path = written(tmp_path / "rows.csv", f"label,x\n1,{field}\n")
    with pytest.raises(DataError, match=rf"column 'x', line 2: expected .*{expected}.*Received: "):
        Csv([column]).read(path)


@pytest.mark.parametrize(
    ("field", "separator", "numbers"),
    [
        (" 1| 2", "|", [1, 2]),
        ("\t-3 |4\t", "|", [-3, 4]),
        ("  ", "|", []),
        ("1 2 ", " ", [1, 2]),
        ("1| ", "|", None),
        ("1|2 3", "|", None),
        ("1|\u00a02", "|", None),
    ],
)
def test_blanks_around_the_numbers_of_a_list_are_no_part_of_them(
    tmp_path: Path, field: str, separator: str, numbers: list[int] | None
) -> None:
    path = written(tmp_path / "rows.csv", f"label;x;y\n1;7{separator}8;\n0;{field};{field}\n")
    floats = Column("y", "number", length=2)
    format_ = Csv([Column("x", length=None)], delimiter=";", separator=separator)
    if numbers is None:
        with pytest.raises(DataError, match="column 'x', line 3: expected whole numbers"):
            format_.read(path)
    else:
        assert format_.read(path).features["x"].tolist() == [[7, 8], numbers]
    path.write_text(f"label;y\n0;{field}\n")
    format_ = Csv([], dense=[floats], delimiter=";", separator=separator)
    if numbers:
        assert format_.read(path).dense["y"].tolist() == [numbers]
    else:
        with pytest.raises(DataError, match="column 'y', line 2"):
            format_.read(path)


def test_columns_named_as_strings_and_lists_keep_their_settings(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.csv", "label,tags\n1,a||b\n")
    column = Column("tags", "string", missing=-5, empty="missing")
    clicks = Csv([], strings=[column], lists=["tags"]).read(path)
    a, b = string_keys(["a", "b"]).numpy().tolist()
    assert clicks.features["tags"].tolist() == [[a, -5, b]]


def test_numbers_are_no_times(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pa.parquet.write_table(pa.table({"label": [1], "at": [1_511_774_538]}), path)
    with pytest.raises(DataError, match=r"expected timestamps, dates or strings as times"):
        Parquet([Column("at", "time")]).read(path)


def test_times_by_name_are_told_how_to_be_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    table = pa.table({"label": [1], "at": pa.array([0], pa.timestamp("us"))})
    pa.parquet.write_table(table, path)
    with pytest.raises(DataError, match=r"role 'time' reads times\)\. Received: 'timestamp\[us\]'"):
        Parquet(["at"]).read(path)


@pytest.mark.parametrize("kind", [Csv, TFRecord])
@pytest.mark.parametrize(
    "column", [Column("x", "number", length=None), Column("x", "number", dtype="float64")]
)
def test_dense_columns_have_one_width_and_type(kind: type[Format], column: Column) -> None:
    with pytest.raises(ConfigError, match="A dense column must be float32"):
        kind([], dense=[column])


def warnings_of(caplog: pytest.LogCaptureFixture, reader: Format, path: Path) -> list[str]:
    """Returns the warnings of a reader that reads a file twice."""
    caplog.clear()
    with caplog.at_level(logging.WARNING, "tfhybrid.data"):
        for _ in range(2):
            reader.read(path)
    return [record.getMessage() for record in caplog.records]


def test_strings_that_look_like_lists_are_warned_of_once(tmp_path, caplog, monkeypatch) -> None:
    monkeypatch.setattr(logging.getLogger("tfhybrid"), "propagate", True)
    texts = ["Crime|Drama", "", "Crime", "Drama|War|Crime"] * 1000
    path = tmp_path / "films.csv"
    path.write_text("\n".join(["label,genres", *(f"1,{text}" for text in texts), ""]))
    warning = (
        f"Column 'genres' of {path} has strings with '|', such as 'Crime|Drama', and each becomes "
        "one key. If they are lists, name the column in lists= too. If not, write "
        "Column('genres', 'string') in place of the name."
    )
    assert warnings_of(caplog, Csv([], strings=["genres"]), path) == [warning]
    assert warnings_of(caplog, Csv([], strings=["genres"], lists=["genres"]), path) == []
    assert warnings_of(caplog, Csv([], strings=[Column("genres", "string")]), path) == []
    assert warnings_of(caplog, Csv([], strings=["genres"], separator=";"), path) == []
    monkeypatch.setenv("HOROVOD_RANK", "1")  # the first rank alone says it
    assert warnings_of(caplog, Csv([], strings=["genres"]), path) == []


@pytest.mark.parametrize("texts", [pa.string(), pa.dictionary(pa.int32(), pa.string())])
def test_strings_of_parquet_are_warned_of_too(tmp_path, caplog, monkeypatch, texts) -> None:
    monkeypatch.setattr(logging.getLogger("tfhybrid"), "propagate", True)
    path = tmp_path / "films.parquet"
    genres = pa.array(["Crime|Drama", None, "Crime"]).cast(texts)
    lists = pa.array([["Crime|Drama", "War"], [], ["Crime"]])
    pa.parquet.write_table(pa.table({"label": [1, 0, 1], "genres": genres, "lists": lists}), path)
    (warning,) = warnings_of(caplog, Parquet(["genres", "lists"], missing_key=-1), path)
    assert f"Column 'genres' of {path} has strings with '|'" in warning
    assert "split them first, as frame['genres'].str.split('|') does" in warning


@pytest.mark.parametrize(
    "texts",
    [
        ["tv|1", "tv|2", "web|1"],  # keys of two parts
        ["Crime", "Drama"] * 10 + ["Comedy | the best of"],
        ["", ""],
    ],
)
def test_other_strings_are_not_warned_of(tmp_path, caplog, monkeypatch, texts) -> None:
    monkeypatch.setattr(logging.getLogger("tfhybrid"), "propagate", True)
    path = tmp_path / "films.csv"
    path.write_text("\n".join(["label,genres", *(f"1,{text}" for text in texts), ""]))
    assert warnings_of(caplog, Csv([], strings=["genres"]), path) == []
