"""Files of samples with any values, and the cells of what is read from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf

from tests.support.slow_judge import float32
from tfhybrid.data import Clicks
from tfhybrid.data.samples.ragged import Ragged


def cell(clicks: Clicks, name: str, row: int) -> Any:
    """Returns the value of a column in a row as a Python value."""
    column = {**clicks.features, **clicks.dense, "label": clicks.labels["label"]}[name]
    return column[[row]].tolist()[0] if isinstance(column, Ragged) else column[row].tolist()


def write_records(path: Path, table: Sequence[Mapping[str, Any]]) -> Path:
    """Writes rows to a TFRecord file, compressed as its suffix says; `None` is left out."""
    kind = {".gz": "GZIP", ".zlib": "ZLIB"}.get(path.suffix, "")
    with tf.io.TFRecordWriter(str(path), kind) as writer:
        for row in table:
            features = {name: feature(value) for name, value in row.items() if value is not None}
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())
    return path


def feature(value: Any) -> tf.train.Feature:
    """Returns the feature of a value, or of a list of values."""
    values = value if isinstance(value, list) else [value]
    values = [each.encode() if isinstance(each, str) else each for each in values]
    if values and isinstance(values[0], bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if values and isinstance(values[0], float | np.floating):
        floats = [float32(each) for each in values]
        return tf.train.Feature(float_list=tf.train.FloatList(value=floats))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def packed(path: Path, content: str) -> Path:
    """Writes text to a file, compressed as its suffix says."""
    codec = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}.get(path.suffix)
    with pa.output_stream(path, compression=codec) as stream:
        stream.write(content.encode())
    return path
