"""What reads the files: every format of tfhybrid.data, and what a user of tf.data would write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import tensorflow as tf

from benchmarks.stream.readers.files import FEATURES, FORMAT
from tfhybrid.data import Csv, FileBatches, Format, Libfm, Parquet, Shard, TFRecord

BATCH = 4096


def ours(format_: Format) -> Callable[[Path], tf.data.Dataset]:
    """Returns what makes a shuffled dataset of a file."""
    return lambda path: FileBatches(format_, path, BATCH, seed=1, shard=Shard(0, 1)).dataset()


def tf_text(path: Path) -> tf.data.Dataset:
    """Lines split by `tf.io.decode_csv`, fields hashed: the numbers too, as they are not keys."""
    defaults = [[0.0], *[[""]] * len(FEATURES)]

    def parse(lines: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        label, *fields = tf.io.decode_csv(lines, defaults, "\t", use_quote_delim=False)
        hashed = [tf.strings.to_hash_bucket_fast(field, 2**63 - 1) for field in fields]
        return dict(zip(FEATURES, hashed, strict=True)), label

    return _batched(tf.data.TextLineDataset(str(path)), parse)


def tf_record(path: Path) -> tf.data.Dataset:
    """`tf.io.parse_example` of whole batches."""
    columns = {name: tf.io.FixedLenFeature([], tf.int64) for name in ["label", *FEATURES]}

    def parse(records: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        parsed = tf.io.parse_example(records, columns)
        return parsed, parsed.pop("label")

    return _batched(tf.data.TFRecordDataset(str(path)), parse)


def tfio_parquet(path: Path) -> tf.data.Dataset:
    """tensorflow-io's, which yields one sample at a time."""
    import tensorflow_io as tfio

    specs = {name: tf.TensorSpec([], tf.int64) for name in FEATURES}
    specs["label"] = tf.TensorSpec([], tf.float32)
    samples = tfio.IODataset.from_parquet(str(path), columns=specs)
    return samples.shuffle(1 << 16, seed=1).batch(BATCH).prefetch(2)


def _batched(samples: tf.data.Dataset, parse: Callable) -> tf.data.Dataset:
    shuffled = samples.shuffle(1 << 16, seed=1).batch(BATCH)
    return shuffled.map(parse, num_parallel_calls=tf.data.AUTOTUNE).prefetch(2)


# The formats of tfhybrid, by side.
FORMATS: dict[str, Format] = {
    "Parquet": Parquet(FEATURES),
    "TFRecord": TFRecord(FEATURES),
    "Criteo": FORMAT,
    "Csv": Csv(FEATURES),
    "Libfm": Libfm(FEATURES),
}

# Format of the file, and what reads it.
SIDES: dict[str, tuple[str, Callable[[Path], tf.data.Dataset]]] = {
    "Parquet": ("parquet", ours(FORMATS["Parquet"])),
    "Parquet, tensorflow-io": ("parquet", tfio_parquet),
    "TFRecord": ("tfrecord", ours(FORMATS["TFRecord"])),
    "TFRecord, tf.data": ("tfrecord", tf_record),
    "Criteo": ("tsv", ours(FORMATS["Criteo"])),
    "Criteo, tf.data": ("tsv", tf_text),
    "Criteo, .gz": ("tsv.gz", ours(FORMATS["Criteo"])),
    "Csv": ("csv", ours(FORMATS["Csv"])),
    "Libfm": ("libfm", ours(FORMATS["Libfm"])),
}
