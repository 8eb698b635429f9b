"""Files become Parquet that holds the same samples."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys

import numpy as np
import pyarrow.parquet
import pytest
import tensorflow as tf
from typer.testing import CliRunner

from tfhybrid.cli import app
from tfhybrid.data import Criteo, Csv, Label, Libfm, Parquet, TFRecord, string_keys
from tfhybrid.data.formats import text

CSV = "label,user,city,price\n1,7,Ulm,1.5\n0,,Ulm,\n1,-9,Bonn,2.5\n"


def run(*arguments, status=0):
    result = CliRunner().invoke(app, ["data", "convert", *map(str, arguments)])
    assert result.exit_code == status, result.output
    return result.output


@pytest.fixture
def csv_file(tmp_path):
    path = tmp_path / "day.csv.gz"
    path.write_bytes(gzip.compress(CSV.encode()))
    return path


CSV_OPTIONS = (
    *("--format", "csv", "--features", "user", "--strings", "city", "--dense", "price"),
    *("--missing-key=-1", "--missing-value=0"),
)


def expect_equal(clicks, other):
    assert clicks.label.tolist() == other.label.tolist()
    for columns, others in ((clicks.features, other.features), (clicks.dense, other.dense)):
        found = {name: column.tolist() for name, column in columns.items()}
        assert found == {name: column.tolist() for name, column in others.items()}


def test_csv(csv_file, tmp_path):
    out = tmp_path / "out"
    said = run(csv_file, "--output", out, *CSV_OPTIONS)
    assert "out: 3 samples in 1 file(s)" in said.replace("\n", "")
    wanted = Csv(["user"], strings=["city"], dense=["price"], missing_key=-1, missing_value=0.0)
    found = Parquet(["user", "city"], dense=["price"]).read(out / "day.parquet")
    expect_equal(found, wanted.read(csv_file))
    assert [path.name for path in out.iterdir()] == ["day.parquet"]


def test_text_in_many_units_and_several_files(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "UNIT_BYTES", 64)
    lines = [f"{i % 2} {i}:1 {i * i}:1\n" for i in range(100)]
    sources = [tmp_path / "a.libfm", tmp_path / "b.libfm"]
    for source in sources:
        source.write_text("".join(lines))
    run(*sources, "--output", tmp_path, "--format", "libfm", "--features", "u,v")
    for source in sources:
        expect_equal(
            Parquet(["u", "v"]).read(source.with_suffix(".parquet")), Libfm(["u", "v"]).read(source)
        )


def test_criteo(tmp_path):
    source = tmp_path / "day_0.txt"
    line = "\t".join(["1", *["3"] * 13, *["68fd1e64"] * 25, ""])
    source.write_text(f"{line}\n{line}\n")
    run(source, "--output", tmp_path, "--format", "criteo", "--bucketize")
    wanted = Criteo(bucketize=True).read(source)
    expect_equal(Parquet([*wanted.features]).read(tmp_path / "day_0.parquet"), wanted)


def test_tfrecord_with_lists(tmp_path):
    source = tmp_path / "part.tfrecord"
    with tf.io.TFRecordWriter(str(source)) as writer:
        for tags in ([1, 2], [], [3]):
            ints = {"label": [1], "tags": tags}
            lists = {name: tf.train.Int64List(value=values) for name, values in ints.items()}
            feature = {name: tf.train.Feature(int64_list=each) for name, each in lists.items()}
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString())
    run(source, "--output", tmp_path, "--format", "tfrecord", "--lists", "tags")
    found = Parquet(["tags"]).read(tmp_path / "part.parquet")
    expect_equal(found, TFRecord([], lists=["tags"]).read(source))


def test_fixed_lists_and_row_groups_stay(tmp_path):
    source = tmp_path / "in" / "part.parquet"
    source.parent.mkdir()
    keys = pyarrow.FixedSizeListArray.from_arrays(np.arange(140_000), 2)
    pyarrow.parquet.write_table(pyarrow.table({"label": [0.0] * 70_000, "pair": keys}), source)
    run(source, "--output", tmp_path, "--format", "parquet", "--features", "pair")
    target = tmp_path / "part.parquet"
    assert pyarrow.parquet.ParquetFile(target).num_row_groups == 2
    expect_equal(Parquet(["pair"]).read(target), Parquet(["pair"]).read(source))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--format", "excel"), "--format must be one of csv, libfm, .* Received: excel"),
        (("--format", "csv"), "Files of csv need --features or --strings or --lists. Rec"),
        (
            ("--format", "libfm", "--features", "u", "--missing-key", "1", "--dense", "p"),
            "Files of libfm have no such option. Received: --dense, --missing-key",
        ),
        (("--format", "criteo", "--times", "at"), "no such option. Received: --times"),
        (
            ("--format", "csv", "--features", "user"),
            "day.csv.gz, column 'user', line 3: expected a key",
        ),
        (
            ("--format", "csv", "--features", "user", "--dense", "price", "--label", "price"),
            r"A label must not be a feature or dense column.*Received: label=\['price'\]",
        ),
    ],
)
def test_what_cannot_be_converted_is_said_and_nothing_is_left(csv_file, tmp_path, options, message):
    said = run(csv_file, "--output", tmp_path / "out", *options, status=1)
    assert re.search(message, said), said
    assert not (tmp_path / "out").exists()


def test_a_failed_conversion_leaves_folders_as_they_were(csv_file, tmp_path):
    there = tmp_path / "there"
    there.mkdir()
    options = ("--format", "csv", "--features", "user")  # a value of `user` is missing
    run(csv_file, "--output", there / "new" / "deep", *options, status=1)
    run(csv_file, "--output", there, *options, status=1)
    assert there.exists()
    assert not [*there.iterdir()]


def test_the_label_keeps_its_name(tmp_path):
    source = tmp_path / "day.csv"
    source.write_text("click,user\n1,7\n0,8\n")
    run(source, "--output", tmp_path, "--format", "csv", "--features", "user", "--label", "click")
    target = tmp_path / "day.parquet"
    assert pyarrow.parquet.read_schema(target).names == ["user", "click"]
    arguments = ["--data", str(target), "--features", "user", "--label", "click", "--json"]
    planned = CliRunner().invoke(app, ["plan", *arguments])
    assert planned.exit_code == 0, planned.output


def test_times_and_lists_of_strings(tmp_path):
    source = tmp_path / "day.csv"
    source.write_text("click,genres,at\n1,Crime|Drama,2017-11-07 09:30:38\n0,,2017-11-08\n")
    columns = ("--strings", "genres", "--lists", "genres", "--times", "at", "--label", "click")
    run(source, "--output", tmp_path, "--format", "csv", *columns)
    clicks = Parquet(["genres", "at"], label="click").read(tmp_path / "day.parquet")
    assert clicks.features["genres"].tolist() == [
        string_keys(["Crime", "Drama"]).numpy().tolist(),
        [],
    ]
    assert clicks.features["at"].tolist() == [1_510_047_038_000_000, 1_510_099_200_000_000]


def test_files_that_are_there_stay_unless_told_otherwise(csv_file, tmp_path):
    target = tmp_path / "day.parquet"
    target.write_text("mine")
    arguments = (csv_file, "--output", tmp_path, *CSV_OPTIONS)
    assert "exists; pass --replace to overwrite it" in run(*arguments, status=1)
    assert target.read_text() == "mine"
    run(*arguments, "--replace")
    assert len(Parquet(["user"]).read(target)) == 3


def test_two_files_of_one_name_are_refused(csv_file, tmp_path):
    twin = tmp_path / "day.csv"
    twin.write_text(CSV)
    said = run(csv_file, twin, "--output", tmp_path / "out", *CSV_OPTIONS, status=1)
    assert "Two files would be written to" in said


@pytest.mark.parametrize("command", ["data convert", "plan"])
def test_files_that_disagree_are_named(tmp_path, command):
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for path, user in zip(paths, [123, "123"], strict=True):
        pyarrow.parquet.write_table(pyarrow.table({"label": [0], "user": [user]}), path)
    options = ["--format", "parquet", "--features", "user"]
    if command == "plan":
        arguments = ["plan", *(part for path in paths for part in ("--data", str(path))), *options]
    else:
        arguments = ["data", "convert", *map(str, paths), "--output", f"{tmp_path}/out", *options]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1, result.output
    message = " ".join(result.output.split())
    assert "b.parquet, column 'user': expected numbers, as in" in message
    assert "a.parquet. Received: strings." in message


def test_numbered_parts_of_a_file_keep_their_numbers(tmp_path):
    parts = [tmp_path / f"day.tfrecord-0000{number}-of-00002" for number in range(2)]
    for user, path in enumerate(parts):
        with tf.io.TFRecordWriter(str(path)) as writer:
            example = tf.train.Example()
            example.features.feature["label"].int64_list.value.append(1)
            example.features.feature["user"].int64_list.value.append(user)
            writer.write(example.SerializeToString())
    out = tmp_path / "out"
    run(*parts, "--output", out, "--format", "tfrecord", "--features", "user")
    found = [
        Parquet(["user"]).read(out / f"{path.name}.parquet").features["user"].tolist()
        for path in parts
    ]
    assert found == [[0], [1]]


def test_text_needs_no_tensorflow(tmp_path):
    source = tmp_path / "a.libfm"
    source.write_text("1 2:1\n")
    code = (
        "import sys; from tfhybrid.cli import app; "
        f"app(['data', 'convert', {str(source)!r}, '--output', {str(tmp_path)!r}, "
        "'--format', 'libfm', '--features', 'u'], standalone_mode=False); "
        "assert not {'tensorflow', 'horovod'} & {*sys.modules}"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_other_labels_and_several(tmp_path):
    source = tmp_path / "orders.csv"
    source.write_text("user,price,rating\n7,1.5,3\n8,-2,4\n")
    options = ("--format", "csv", "--features", "user", "--label-kind", "number")
    run(source, "--output", tmp_path, *options, "--label", "price,rating")
    labels = [Label("price", "number"), Label("rating", "number")]
    found = Parquet(["user"], label=labels).read(tmp_path / "orders.parquet").label
    assert {n: v.tolist() for n, v in found.items()} == {"price": [1.5, -2], "rating": [3, 4]}


def test_files_that_have_strings_alone_and_no_header(tmp_path):
    source = tmp_path / "clicks.csv"
    source.write_text("Ulm;1;3,4\nBonn;0;\n")
    options = ("--strings", "city", "--lists", "clicked", "--columns", "city,label,clicked")
    marks = ("--delimiter", ";", "--separator", ",")
    run(source, "--output", tmp_path, "--format", "csv", *options, *marks)
    found = Parquet(["city", "clicked"]).read(tmp_path / "clicks.parquet")
    assert found.features["clicked"].tolist() == [[3, 4], []]
    assert found.features["city"].tolist() == string_keys(["Ulm", "Bonn"]).numpy().tolist()
