"""Columns have one type in all files; another one is refused before the first step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf

from tfhybrid.data import Csv, FileBatches, Parquet, Shard, TFRecord, string_keys
from tfhybrid.data.formats import tfrecord
from tfhybrid.errors import DataError

TYPES: dict[str, Any] = {
    "int64": pa.array([123]),
    "int8": pa.array([12], pa.int8()),
    "double": pa.array([123.0]),
    "string": pa.array(["123"]),
    "large_string": pa.array(["123"], pa.large_string()),
    "dictionary": pa.array(["123"]).dictionary_encode(),
    "list": pa.array([[123]]),
    "large_list": pa.array([[123]], pa.large_list(pa.int64())),
    "strings": pa.array([["123"]]),
    "pair": pa.array([[1, 2]], pa.list_(pa.int64(), 2)),
    "triple": pa.array([[1, 2, 3]], pa.list_(pa.int64(), 3)),
    "null": pa.nulls(1),
    "nulls": pa.array([[None]], pa.list_(pa.null())),
}
ALIKE = [
    {"int64", "int8", "double", "null"},
    {"string", "large_string", "dictionary", "null"},
    {"list", "large_list", "null", "nulls"},
    {"strings", "null", "nulls"},
    {"pair"},
    {"triple"},
]


def write_parquet(path: Path, user: Any) -> Path:
    pa.parquet.write_table(pa.table({"label": [0] * len(user), "user": user}), path)
    return path


@pytest.mark.parametrize("first", TYPES)
@pytest.mark.parametrize("second", TYPES)
def test_parquet(tmp_path: Path, first: str, second: str) -> None:
    paths = [
        write_parquet(tmp_path / "a.parquet", TYPES[first]),
        write_parquet(tmp_path / "b.parquet", TYPES[second]),
    ]

    def batches() -> FileBatches:
        format_ = Parquet(["user"], missing_key=-1)
        return FileBatches(format_, paths, 2, seed=1, shard=Shard(0, 1), shuffle=False)

    if first == second or any({first, second} <= alike for alike in ALIKE):
        (batch,) = batches().batches()
        assert len(batch) == 2
        (features, _), *_ = batches().dataset()
        assert features["user"].shape[0] == 2
    elif "null" in (first, second):  # no lists of a fixed size are missing
        with pytest.raises(DataError, match=r"expected a list of \d"):
            list(batches().batches())
    else:
        with pytest.raises(DataError) as error:
            batches()
        assert "a.parquet" in str(error.value)
        assert "b.parquet" in str(error.value)
        assert "column 'user'" in str(error.value)


def test_columns_of_nulls_are_missing_values(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", pa.nulls(3))
    assert Parquet(["user"], missing_key=-1).read(path).features["user"].tolist() == [-1] * 3
    with pytest.raises(DataError, match=r"row 0: expected a key \(missing_key="):
        Parquet(["user"]).read(path)
    path = write_parquet(tmp_path / "a.parquet", pa.array([[None], None], pa.list_(pa.null())))
    assert Parquet(["user"], missing_key=-1).read(path).features["user"].tolist() == [[-1], []]


def test_a_column_that_occurs_twice_is_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([0])] * 3, names=["label", "user", "user"])
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"each once. Received: \['user'\] more than once"):
        Parquet(["user"]).read(tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text("label,user,user\n0,1,2\n")
    with pytest.raises(DataError, match=r"line 1.*each once. Received: \['user'\] more than once"):
        Csv(["user"]).units(tmp_path / "a.csv")


def test_csv_headers_are_compared_before_the_first_step(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("label,user\n0,1\n")
    (tmp_path / "b.csv").write_text("user,label\n1,0\n")
    files = str(tmp_path / "*.csv")
    FileBatches(Csv(["user"]), files, 1, seed=1, shard=Shard(0, 1))
    (tmp_path / "c.csv").write_text("label,item\n0,1\n")
    with pytest.raises(DataError, match=r"c\.csv, line 1: .*no \['user'\]"):
        FileBatches(Csv(["user"]), files, 1, seed=1, shard=Shard(0, 1))


def write_records(path: Path, users: list[Any]) -> Path:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for user in users:
            features = {"label": tf.train.Feature(int64_list=tf.train.Int64List(value=[0]))}
            if isinstance(user, bytes):
                features["user"] = tf.train.Feature(bytes_list=tf.train.BytesList(value=[user]))
            elif user is not None:
                features["user"] = tf.train.Feature(int64_list=tf.train.Int64List(value=[user]))
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())
    return path


def test_tfrecord_files_of_two_types_are_refused(tmp_path: Path) -> None:
    write_records(tmp_path / "a.tfrecord", [123, None])
    write_records(tmp_path / "b.tfrecord", [b"123"])
    with pytest.raises(DataError, match=r"b\.tfrecord, column 'user': expected numbers.*a\.tfrec"):
        FileBatches(
            TFRecord(["user"], missing_key=-1),
            str(tmp_path / "*.tfrecord"),
            1,
            seed=1,
            shard=Shard(0, 1),
        )


def test_tfrecord_types_are_compared_again_at_each_unit(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(tfrecord, "UNIT_RECORDS", 20)
    write_records(tmp_path / "a.tfrecord", [123])
    write_records(tmp_path / "b.tfrecord", [None] * 15 + [b"123"])
    format_ = TFRecord(["user"], missing_key=-1)
    files = str(tmp_path / "*.tfrecord")
    batches = FileBatches(format_, files, 1, seed=1, shard=Shard(0, 1), shuffle=False)
    with pytest.raises(DataError, match=r"b\.tfrecord.*record 15: .*as in .*a\.tfrecord.*'123'"):
        list(batches.batches())


@pytest.mark.parametrize("before", [0, 99, 100, 150])
def test_a_string_that_comes_late_is_read(tmp_path: Path, before: int) -> None:
    path = write_records(tmp_path / "a.tfrecord", [*[None] * before, b"x", None])
    keys = TFRecord(["user"], missing_key=-1).read(path).features["user"].tolist()
    assert keys == [*[-1] * before, int(string_keys(["x"])[0]), -1]


def test_whole_numbers_that_come_late_are_read_as_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number in range(130):
            price = (
                tf.train.Feature(int64_list=tf.train.Int64List(value=[3]))
                if number == 120
                else tf.train.Feature(float_list=tf.train.FloatList(value=[0.5]))
            )
            label = tf.train.Feature(int64_list=tf.train.Int64List(value=[0]))
            features = tf.train.Features(feature={"label": label, "price": price})
            writer.write(tf.train.Example(features=features).SerializeToString())
    prices = TFRecord([], dense=["price"]).read(path).dense["price"].tolist()
    assert prices == [0.5] * 120 + [3.0] + [0.5] * 9
