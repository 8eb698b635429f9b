"""Every column that a reader returns has been through `tfhybrid.values`; and what settings mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf

import tfhybrid.data
from tests.unit.data.formats.criteo_lines import criteo_line
from tfhybrid.data import Column, Criteo, Csv, Format, Label, Libfm, Parquet, TFRecord, string_keys
from tfhybrid.data.formats.unit_rows import UnitCheck
from tfhybrid.errors import ConfigError, DataError
from tfhybrid.values import Checked


def csv(path: Path) -> Format:
    path.write_text("label,user,city,tags,price\n1,7,Ulm,1|2,0.5\n")
    return Csv(["user"], strings=["city"], lists=["tags"], dense=["price"])


def parquet(path: Path) -> Format:
    rows = {"label": [1], "user": [7], "city": ["Ulm"], "tags": [[1, 2]], "price": [0.5]}
    pa.parquet.write_table(pa.table(rows), path)
    return Parquet(["user", "city", "tags"], dense=["price"])


def record(path: Path) -> Format:
    integers = {"label": [1], "user": [7], "tags": [1, 2]}
    features = {
        name: tf.train.Feature(int64_list=tf.train.Int64List(value=values))
        for name, values in integers.items()
    }
    features["city"] = tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"Ulm"]))
    features["price"] = tf.train.Feature(float_list=tf.train.FloatList(value=[0.5]))
    example = tf.train.Example(features=tf.train.Features(feature=features))
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(example.SerializeToString())
    return TFRecord(["user", "city"], lists=["tags"], dense=["price"])


def libfm(path: Path) -> Format:
    path.write_text("1 7:1 8:1\n")
    return Libfm(["user", "item"])


def criteo(path: Path) -> Format:
    path.write_text(criteo_line())
    return Criteo()


READERS = {Csv: csv, Parquet: parquet, TFRecord: record, Libfm: libfm, Criteo: criteo}


def test_all_formats_stand_here() -> None:
    public = {getattr(tfhybrid.data, name) for name in tfhybrid.data.__all__}
    formats = {each for each in public if isinstance(each, type) and issubclass(each, Format)}
    assert formats - {Format} == set(READERS)


@pytest.mark.parametrize("kind", READERS, ids=lambda kind: kind.__name__)
def test_each_column_is_checked(kind: type, tmp_path: Path, monkeypatch: Any) -> None:
    names: list[str] = []
    add = UnitCheck.add

    def noting(self: Any, column: Column, checked: Checked, *args: Any, **kwargs: Any) -> Any:
        assert isinstance(checked, Checked)
        names.append(column.name)
        return add(self, column, checked, *args, **kwargs)

    monkeypatch.setattr(UnitCheck, "add", noting)
    path = tmp_path / "rows"
    clicks = READERS[kind](path).read(path)
    assert sorted(names) == sorted([*clicks.features, *clicks.dense, *clicks.labels])


def test_an_empty_string_is_set_for_each_column(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("label,a,b,c\n0,,,\n")
    missing = Column("b", "string", missing=-5, empty="missing")
    clicks = Csv(["c"], strings=["a", missing], missing_key=-1).read(path)
    received = {name: column.tolist() for name, column in clicks.features.items()}
    assert received == {"a": [int(string_keys([""])[0])], "b": [-5], "c": [-1]}
    refused = Column("b", "string", empty="missing")
    with pytest.raises(DataError, match=r"column 'b', line 2: expected a key \(missing_key="):
        Csv([], strings=[refused]).read(path)


def test_bounds_of_a_column(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("label,age\n0,120\n0,\n1,121\n")
    format_ = Csv([Column("age", missing=-1, low=0, high=120)])
    rows = format_.rows(format_.units(path)[0])
    assert rows.bad.tolist() == [False, False, True]
    assert rows.clicks.features["age"].tolist()[:2] == [120, -1]
    assert "from 0 to 120" in rows.fault(2).reason


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Csv(["user", "user"]), "more than once"),
        (lambda: Csv(["user"], strings=["user"]), "more than once"),
        (lambda: Parquet(["user"], dense=["user"]), "more than once"),
        (lambda: TFRecord(["user"], lists=["user"]), "more than once"),
        (lambda: Libfm(["user", "user"]), "more than once"),
        (lambda: Csv(["user", "click"], label="click"), r"the answer: .*label=\['click'\]"),
        (lambda: Csv([], strings=["click"], label=["a", "click"]), r"label=\['click'\]"),
        (lambda: Csv([], lists=["label"]), r"label=\['label'\]"),
        (lambda: Parquet(["user"], dense=["price"], label=Label("price", "number")), "'price'"),
        (lambda: TFRecord(["label"]), r"label=\['label'\]"),
        (lambda: Csv("user"), r"such as \['user'\]"),
        (lambda: Csv([], strings="user"), "a list of names"),
        (lambda: Csv([], lists="user"), "a list of names"),
        (lambda: Parquet([], dense="user"), "a list of names"),
        (lambda: TFRecord([], lists="user"), "a list of names"),
        (lambda: Libfm("user"), "a list of names"),
        (lambda: Csv(["user"], delimiter="::"), "one ASCII character"),
        (lambda: Csv(["user"], delimiter=r"\t"), "a tab in YAML needs double quotes"),
        (lambda: Csv(["user"], delimiter="ç"), "one ASCII character"),
        (lambda: Csv(["user"], delimiter=""), "one ASCII character"),
        (lambda: Csv(["user"], delimiter='"'), "one ASCII character"),
        (lambda: Csv(["user"], separator=""), "separator="),
        (lambda: Csv(["user"], empty="null"), "empty="),
        (lambda: Csv([Column("user", "number")]), "must have a role of"),
        (lambda: Parquet(["user"], missing_key=2**63), "fits int64"),
    ],
)
def test_settings_that_cannot_work_are_refused_at_once(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
