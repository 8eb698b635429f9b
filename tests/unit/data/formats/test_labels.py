"""Labels other than clicks, in one column or several, in every reader."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.unit.data.formats.criteo_lines import criteo_line
from tfhybrid.cli.data.conversion import convert
from tfhybrid.data import (
    Batches,
    Clicks,
    Criteo,
    Csv,
    Format,
    Label,
    Libfm,
    Parquet,
    Shard,
    TFRecord,
)
from tfhybrid.data import FileBatches as Files
from tfhybrid.errors import ConfigError, DataError

ROWS = {
    "user": [7, 8, 9],
    "click": [1, 0, 1],
    "price": [-0.5, 2.25, 100.0],
    "genre": [2, 0, 1],
    "device": ["tv", "phone", "tv"],
}
LABELS = [
    "click",
    Label("price", "number"),
    Label("genre", "class"),
    Label("device", "class", names=["phone", "tv"]),
]
FOUND = {
    "click": np.float32([1, 0, 1]),
    "price": np.float32([-0.5, 2.25, 100]),
    "genre": np.int64([2, 0, 1]),
    "device": np.int64([1, 0, 1]),
}


def csv(path: Path, rows: dict[str, list]) -> Path:
    lines = [rows.keys(), *zip(*rows.values(), strict=True)]
    path.write_text("".join(",".join(map(str, line)) + "\n" for line in lines))
    return path


def parquet(path: Path, rows: dict[str, list]) -> Path:
    pa.parquet.write_table(pa.table(rows), path)
    return path


def feature(value: object) -> tf.train.Feature:
    if isinstance(value, str):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.encode()]))
    if isinstance(value, float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=[value]))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))


def tfrecord(path: Path, rows: dict[str, list]) -> Path:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for values in zip(*rows.values(), strict=True):
            features = {n: feature(value) for n, value in zip(rows, values, strict=True)}
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())
    return path


READERS = {"csv": (Csv, csv), "parquet": (Parquet, parquet), "tfrecord": (TFRecord, tfrecord)}


@pytest.fixture(params=READERS)
def reader(request, tmp_path):
    kind, write = READERS[request.param]

    def read(label, rows=ROWS, **options) -> Clicks:
        path = write(tmp_path / f"rows.{request.param}", rows)
        return kind(["user"], label=label, **options).read(path)

    return read


def assert_equal(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    assert found.keys() == wanted.keys()
    for name, column in wanted.items():
        assert found[name].dtype == column.dtype
        np.testing.assert_array_equal(found[name], column)


def test_several_columns_of_every_kind(reader) -> None:
    assert_equal(reader(LABELS).label, FOUND)


@pytest.mark.parametrize("label", LABELS[1:], ids=lambda label: label.column)
def test_one_column(reader, label) -> None:
    found = reader(label).label
    assert_equal({label.column: found}, {label.column: FOUND[label.column]})


def test_a_threshold_is_of_its_own_label(reader) -> None:
    found = reader([Label("price", positive=2.0), "genre"], positive=1.0).label
    assert found["price"].tolist() == [0, 1, 1]
    assert found["genre"].tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("label", "rows", "wanted"),
    [
        (
            Label("genre", "class"),
            {"genre": [1, -1, 0]},
            r"expected a class, a whole.*Received: -1",
        ),
        (Label("price", "number"), {"price": [1.0, float("nan"), 2.0]}, r"expected a number.*nan"),
        ("click", {"click": [1, 2, 0]}, r"a label of \[0, 1\]. Received: 2(\.0)?\."),
        (
            Label("device", "class", names=["phone", "radio"]),
            {},
            r"(line 2|row 0|record 0).*one of the names \['phone', 'radio'\]",
        ),
    ],
)
def test_what_is_no_such_label_is_named_with_its_place(reader, label, rows, wanted) -> None:
    with pytest.raises(DataError, match=wanted):
        reader(label, ROWS | rows)


def test_libfm_and_criteo_take_other_labels(tmp_path) -> None:
    path = tmp_path / "rows"
    path.write_text("-2.5 451:1\n7 12:1\n")
    found = Libfm(["user"], label=Label("label", "number")).read(path).label
    assert found.tolist() == [-2.5, 7.0]
    path.write_text(criteo_line("3") + criteo_line("0"))
    found = Criteo(label=Label("label", "class")).read(path).label
    assert_equal({"label": found}, {"label": np.int64([3, 0])})


def test_batches_have_a_dictionary_of_labels_and_a_model_trains_on_them(tmp_path) -> None:
    rows = {name: values * 8 for name, values in ROWS.items()}
    path = parquet(tmp_path / "rows.parquet", rows)
    file_format = Parquet(["user"], label=LABELS)
    files = Files(file_format, path, 6, seed=1, shuffle=False, shard=Shard(0, 1))
    memory = Batches(file_format.read(path), 6, seed=1, shuffle=False, shard=Shard(0, 1))
    for batches in (files, memory):
        (_, labels), *_ = batches.dataset()
        wanted = {name: np.tile(column, 2)[:, np.newaxis] for name, column in FOUND.items()}
        assert_equal({name: label.numpy() for name, label in labels.items()}, wanted)

    tfhybrid.init()
    inputs = {"user": keras.Input((1,), dtype="int64", name="user")}
    layer = tfhybrid.layers.EmbeddingCollection(
        {"user": tfhybrid.TableConfig(4)}, prefix="labelled-"
    )
    flat = keras.layers.Flatten()(layer(inputs)["user"])
    units = {"click": 1, "price": 1, "genre": 3, "device": 2}
    model = keras.Model(inputs, {n: keras.layers.Dense(u, name=n)(flat) for n, u in units.items()})
    classes = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(
        tfhybrid.DistributedOptimizer(keras.optimizers.Adam(0.1)),
        {
            "click": keras.losses.BinaryCrossentropy(from_logits=True),
            "price": "mse",
            "genre": classes,
            "device": classes,
        },
    )
    losses = model.fit(memory.dataset(epochs=None), epochs=8, steps_per_epoch=4, verbose=0).history
    assert losses["loss"][-1] < losses["loss"][0]
    tfhybrid.shutdown()


def test_converted_labels_are_read_again(tmp_path) -> None:
    source = csv(tmp_path / "rows.csv", ROWS)
    file_format: Format = Csv(["user"], label=LABELS)
    convert(file_format, source, tmp_path / "rows.parquet", lambda _: None)
    labels = [*LABELS[:3], Label("device", "class")]
    assert_equal(Parquet(["user"], label=labels).read(tmp_path / "rows.parquet").label, FOUND)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Label("genre", "classes"),
        lambda: Label("price", "number", positive=3.0),
        lambda: Label("price", "number", names=["a"]),
        lambda: Label("device", "class", names=["a", "a"]),
        lambda: Csv(["user"], label=[]).layout,
        lambda: Csv(["user"], label=["click", "click"]).layout,
    ],
)
def test_labels_that_make_no_sense_are_refused(make) -> None:
    with pytest.raises(ConfigError, match="Received: "):
        make()
