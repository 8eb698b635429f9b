from __future__ import annotations

import logging
import math

import pytest
import tensorflow as tf

from tfhybrid.data import Column, FileBatches, Shard, TFRecord, string_keys
from tfhybrid.data.formats import tfrecord
from tfhybrid.errors import DataError


def feature(values):
    if isinstance(values[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if isinstance(values[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


@pytest.fixture
def write(tmp_path):
    """Writes an example for each dict of lists; an empty list is a feature that is absent."""

    def write(examples, name="part.tfrecord", compression=""):
        path = tmp_path / name
        with tf.io.TFRecordWriter(str(path), compression) as writer:
            for example in examples:
                held = {"label": [0]} | example
                features = {name: feature(values) for name, values in held.items() if values}
                message = tf.train.Example(features=tf.train.Features(feature=features))
                writer.write(message.SerializeToString())
        return path

    return write


def test_features_of_every_kind(write):
    examples = [
        {"label": [1], "user": [-(2**63)], "city": [b"Ulm"], "tags": [1, 2], "price": [1.5]},
        {"label": [0], "user": [2**63 - 1], "city": [b""], "tags": [], "price": [2.5]},
    ]
    format_ = TFRecord(["user", "city"], lists=["tags"], dense=["price"])
    clicks = format_.read(write(examples))
    assert clicks.features["user"].tolist() == [-(2**63), 2**63 - 1]
    assert clicks.features["city"].tolist() == string_keys(["Ulm", ""]).numpy().tolist()
    assert clicks.features["tags"].tolist() == [[1, 2], []]
    assert clicks.dense["price"].tolist() == [1.5, 2.5]
    assert clicks.label.tolist() == [1, 0]


def test_numbers_may_be_integers_and_labels_floats(write):
    clicks = TFRecord([], dense=["age"]).read(write([{"label": [1.0], "age": [30]}]))
    assert (clicks.dense["age"].tolist(), clicks.label.tolist()) == ([30], [1])


def test_absent_features_get_what_stands_for_them(write):
    path = write([{"user": [], "age": []}, {"user": [3], "age": [0.5]}])
    clicks = TFRecord(["user"], dense=["age"], missing_key=-1, missing_value=-2.0).read(path)
    assert clicks.features["user"].tolist() == [-1, 3]
    assert clicks.dense["age"].tolist() == [-2, 0.5]


@pytest.mark.parametrize(
    ("name", "compression"), [("part.tfrecord.gz", "GZIP"), ("part.tfrecord", "")]
)
def test_units_are_runs_of_records(write, monkeypatch, name, compression):
    monkeypatch.setattr(tfrecord, "UNIT_RECORDS", 3)
    path = write([{"user": [i]} for i in range(8)], name, compression)
    format_ = TFRecord(["user"])
    units = format_.units(path)
    assert [(unit.first_row, unit.rows) for unit in units] == [(0, 3), (3, 3), (6, 2)]
    assert format_.read_unit(units[1]).features["user"].tolist() == [3, 4, 5]


def test_a_file_without_records(write):
    clicks = TFRecord(["user"], lists=["tags"], dense=["age"]).read(write([]))
    assert len(clicks) == 0


@pytest.mark.parametrize(
    ("example", "message"),
    [
        ({"user": []}, r"feature 'user', record 1: expected a key \(missing_key= .*Received: None"),
        ({"user": [1, 2]}, r"feature 'user', record 1: expected one value.*Received: \[1, 2\]"),
        ({"user": [1], "label": [2]}, r"record 1: expected a label of \[0, 1\]. Received: 2\."),
        ({"user": [b"x"]}, "feature 'user', record 1: expected a key that is a whole number.*'x'"),
    ],
)
def test_malformed_examples_are_named(write, example, message):
    with pytest.raises(DataError, match=rf"part\.tfrecord.*{message}"):
        TFRecord(["user"]).read(write([{"user": [1]}, example]))


def test_features_of_another_kind_are_refused(write):
    path = write([{"user": [0.5], "city": [b"Ulm"]}])
    with pytest.raises(DataError, match=r"'user', record 0: .*whole numbers. Received: 0\.5"):
        TFRecord(["user"]).read(path)
    with pytest.raises(DataError, match=r"'city', record 0: expected a number. Received: 'Ulm'"):
        TFRecord([], dense=["city"]).read(path)


def test_a_file_that_was_cut_off_is_refused(write):
    path = write([{"user": [i]} for i in range(3)])
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    with pytest.raises(DataError, match="ends within record 2"):
        TFRecord(["user"]).units(path)
    path.write_bytes(whole + b"abc")
    with pytest.raises(DataError, match="ends within record 3"):
        TFRecord(["user"]).units(path)


def test_damaged_records_are_refused(write):
    path = write([{"user": [i]} for i in range(3)])
    damaged = bytearray(path.read_bytes())
    damaged[20] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(DataError, match=r"expected whole records.*corrupted record"):
        TFRecord(["user"]).read(path)


def test_a_feature_list_of_a_sequence_example_is_refused(tmp_path):
    example = tf.train.SequenceExample()
    example.context.feature["label"].int64_list.value.append(1)
    example.context.feature["user"].int64_list.value.append(7)
    example.feature_lists.feature_list["tags"].feature.add().int64_list.value.append(3)
    path = tmp_path / "part.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(example.SerializeToString())
    assert TFRecord(["user"]).read(path).features["user"].tolist() == [7]
    with pytest.raises(DataError, match=r"part\.tfrecord, record 0: .*SequenceExample.*\['tags'\]"):
        TFRecord(["user"], lists=["tags"]).read(path)


@pytest.mark.parametrize(("compression", "kind"), [("GZIP", "gzip"), ("ZLIB", "zlib")])
def test_a_compressed_file_of_another_name_is_named(write, compression, kind):
    path = write([{"user": [1]}], "part.tfrecord", compression)
    with pytest.raises(DataError, match=rf"part\.tfrecord: expected whole records.*a {kind} file"):
        TFRecord(["user"]).units(path)


def test_a_file_that_has_fewer_records_than_before_is_refused(write):
    path = write([{"user": [i]} for i in range(3)])
    (unit,) = TFRecord(["user"]).units(path)
    write([{"user": [i]} for i in range(2)])
    with pytest.raises(DataError, match=r"part\.tfrecord: expected 3 records.* Received: 2"):
        TFRecord(["user"]).read_unit(unit)


def test_a_feature_that_no_record_has_is_warned_of_once(write, caplog, monkeypatch):
    # A job in this process has given the logger a handler of its own.
    monkeypatch.setattr(logging.getLogger("tfhybrid"), "propagate", True)
    paths = [write([{"tags": []}] * 150 + [{"tags": [number]}], f"{number}") for number in range(2)]
    data = TFRecord(["user"], lists=["tags", "tag"], missing_key=-1)
    batches = FileBatches(data, paths, 400, seed=1, shuffle=False, shard=Shard(0, 1))
    for _ in range(2):
        (clicks,) = batches.batches()
    assert clicks.features["tags"].tolist()[150::151] == [[0], [1]]
    messages = "".join(each.getMessage() for each in caplog.records if each.name == "tfhybrid.data")
    assert any(f"No record of {path} from 0 to 150 has the features" in messages for path in paths)
    assert [messages.count(f"'{name}'") for name in ("tag", "user", "tags")] == [1, 1, 0]


def test_a_first_record_may_lack_every_feature(write):
    path = write([{}, {"city": [b"Ulm"]}])
    data = TFRecord(["city"], missing_key=-1)
    batches = FileBatches(data, path, 2, seed=1, shuffle=False, shard=Shard(0, 1))
    (clicks,) = batches.batches()
    assert clicks.features["city"].tolist() == [-1, int(string_keys(["Ulm"])[0])]


def test_missing_numbers_among_integers(write):
    path = write([{"age": [30]}, {"age": []}])
    for missing in (0.0, -1.0, 0.5):
        clicks = TFRecord([], dense=["age"], missing_value=missing).read(path)
        assert clicks.dense["age"].tolist() == [30, missing]
    clicks = TFRecord([], dense=["age"], missing_value=math.nan).read(path)
    assert clicks.dense["age"][0] == 30
    assert math.isnan(clicks.dense["age"][1])


def test_integers_among_strings_with_a_text_for_missing_ones_are_refused(write):
    path = write([{"city": [30]}])
    data = TFRecord([Column("city", "string", missing="none")])
    with pytest.raises(DataError, match=r"feature 'city', record 0: expected a .* Received: 30"):
        data.read(path)


@pytest.mark.parametrize(
    "record", [b"\xff\xd8\xff\xe0 an image", b"{}", b"\x0a\x04\xf5\xdc\xaf\xb2"]
)
def test_a_record_of_another_kind_is_a_bad_row(tmp_path, record):
    example = tf.train.Example()
    example.features.feature["label"].int64_list.value.append(1)
    path = tmp_path / "part.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(record)
        writer.write(example.SerializeToString())
    with pytest.raises(DataError, match=r"record 0: expected a tf\.train\.Example\. Received: b"):
        TFRecord([]).read(path)
    batches = FileBatches(
        TFRecord(["user"], missing_key=-1), path, 2, seed=1, bad_rows="skip", shard=Shard(0, 1)
    )
    (clicks,) = batches.batches()
    assert clicks.label.tolist() == [1]
