"""The same samples in every format: the first rows of Criteo's log, over and over."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import tensorflow as tf

from tfhybrid.cli.data import conversion
from tfhybrid.data import Criteo, FileBatches, Shard
from tfhybrid.data.archives import unpacked
from tfhybrid.stream.queues.queue import Record
from tfhybrid.stream.queues.row_columns import RowColumns
from tfhybrid.stream.queues.rows import encode

FORMAT = Criteo(bucketize=True)
FEATURES = [f"I{i}" for i in range(1, 14)] + [f"C{i}" for i in range(1, 27)]


def write(folder: Path, copies: int) -> dict[str, Path]:
    """Writes `copies` times 8,000 samples of 39 features; returns the file of each format."""
    files = {
        name: folder / f"samples.{name}"
        for name in ("tsv", "tsv.gz", "csv", "libfm", "tfrecord", "parquet")
    }
    head = b"".join(
        (unpacked("criteo-head8000") / f"{part}.tsv").read_bytes()
        for part in ("train", "dev", "test")
    )
    files["tsv"].write_bytes(head * copies)
    with files["tsv"].open("rb") as text, gzip.open(files["tsv.gz"], "wb", 1) as packed:
        shutil.copyfileobj(text, packed)
    conversion.convert(FORMAT, files["tsv"], files["parquet"], lambda size: None)
    _write_keys(files)
    return files


def records(parquet: Path) -> dict[str, tuple[Record, RowColumns]]:
    """Returns the first 1,000 samples of the Parquet file as records of a stream, by encoding."""
    table = pa.parquet.read_table(parquet).slice(0, 1000).combine_chunks()
    columns = RowColumns.of(pa.schema([field.with_nullable(False) for field in table.schema]))
    (batch,) = table.to_batches()
    text = json.dumps(table.to_pylist()).encode()
    return {"stream, Arrow": (encode(batch), columns), "stream, JSON": (Record(text), columns)}


def _write_keys(files: dict[str, Path]) -> None:
    samples = FileBatches(
        FORMAT, files["tsv"], 8000, seed=0, shuffle=False, shard=Shard(0, 1)
    ).batches()
    with (
        files["csv"].open("w") as csv,
        files["libfm"].open("w") as libfm,
        tf.io.TFRecordWriter(str(files["tfrecord"])) as records,
    ):
        csv.write(",".join(["label", *FEATURES]) + "\n")
        for batch in samples:
            columns = [batch.features[name].tolist() for name in FEATURES]
            for label, *keys in zip(batch.label.astype(int).tolist(), *columns, strict=True):
                csv.write(f"{label},{','.join(map(str, keys))}\n")
                libfm.write(f"{label} {' '.join(f'{key}:1' for key in keys)}\n")
                records.write(_example(label, keys))


def _example(label: int, keys: list[int]) -> bytes:
    values = dict(zip(["label", *FEATURES], [label, *keys], strict=True))
    lists = {name: tf.train.Int64List(value=[value]) for name, value in values.items()}
    feature = {name: tf.train.Feature(int64_list=each) for name, each in lists.items()}
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()
