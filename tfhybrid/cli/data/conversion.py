"""Conversion of sample files to Parquet, one unit of a file at a time."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from tfhybrid.data.formats.format import Format
from tfhybrid.data.formats.label import Label
from tfhybrid.data.samples.clicks import Clicks
from tfhybrid.data.samples.ragged import Ragged

ROW_GROUP = 1 << 16


def convert(file_format: Format, source: Path, target: Path, advance: Callable[[int], None]) -> int:
    """Writes a file's samples as Parquet. The target appears only when it is complete.

    `tfhybrid.data.Parquet` with the same names reads the same samples.

    Args:
        file_format: Format of the source. One that is `agreeing` compares the types of its columns
            with those of the sources before.
        source: File to read.
        target: File to write; an existing one is replaced.
        advance: Function to call with the number of source bytes done since the last call.

    Returns:
        The number of samples written.

    Raises:
        DataError: A value of the source is malformed.
        OSError: The source cannot be read, or the target cannot be written.
    """
    units = file_format.scan(source)
    file_format.compare_scanned()
    rows = sum(unit.rows for unit in units)
    label_name = _label_name(file_format)
    size = source.stat().st_size
    unfinished = target.with_name(f".{target.name}-{os.getpid()}")
    writer, done = None, 0
    try:
        for unit in units:
            table = arrow_table(file_format.read_unit(unit), label_name)
            writer = writer or pa.parquet.ParquetWriter(unfinished, table.schema)
            writer.write_table(table, ROW_GROUP)
            through = size * (unit.first_row + unit.rows) // max(rows, 1)
            advance(through - done)
            done = through
        if writer:
            writer.close()
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    return rows


def arrow_table(clicks: Clicks, label_name: str = "label") -> pa.Table:
    """Returns samples as an Arrow table: int64 keys, float32 numbers, labels, and lists of these.

    Args:
        clicks: Samples of a `tfhybrid.data.Format`.
        label_name: Name of the label's column, if there is a single label. Several labels keep
            their names.
    """
    columns = {**clicks.features, **clicks.dense}
    if isinstance(clicks.label, dict):
        columns |= clicks.label
    else:
        columns[label_name] = clicks.label
    return pa.table({name: _arrow(column) for name, column in columns.items()})


def _label_name(file_format: Format) -> str:
    """Returns the name of a format's only label column, for formats that name their labels."""
    label = getattr(file_format, "label", "label")
    if isinstance(label, Label):
        return label.column
    return label if isinstance(label, str) else "label"


def _arrow(column: np.ndarray | Ragged) -> Any:
    if isinstance(column, Ragged):
        return pa.LargeListArray.from_arrays(column.splits, column.values)
    if column.ndim == 1:
        return pa.array(column)
    return pa.FixedSizeListArray.from_arrays(pa.array(column.ravel()), column.shape[1])
