"""Export of a checkpoint's table to a file for other programs, block by block."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tfhybrid.checkpoint.manifest import TableEntry
from tfhybrid.checkpoint.stored import StoredCheckpoint
from tfhybrid.checkpoint.table_file import StoredRows, parts
from tfhybrid.cli.terminal.console import progress
from tfhybrid.errors import ConfigError

_PART_ROWS = 65536


def export_table(
    stored: StoredCheckpoint,
    name: str,
    file: Path,
    *,
    kind: str | None = None,
    states: bool = False,
) -> int:
    """Writes a table's keys and embeddings to a file. An existing file is replaced at the end.

    `tfhybrid.checkpoint.NumpyRows`, `ParquetRows` and, for records, `RecordFile` read such files.

    Args:
        stored: The checkpoint.
        name: Name of the table.
        file: File to write. A `.npz` file has the arrays `keys` int64 `[n]`, `embeddings` float32
            `[n, dim]` and `states` float32 `[n, slots, dim]`. A `.parquet` file has the columns
            `key` int64, `embedding` and `state`, lists of `dim` and `slots * dim` floats.
        kind: Format, `"npz"`, `"parquet"` or `"records"`, which are each row's int64 key and
            float32 embedding, as in `record_of`. Defaults to the file's suffix.
        states: Whether to write the optimizer state.

    Returns:
        The number of rows written.

    Raises:
        CheckpointError: There is no such table, or its files are damaged.
        ConfigError: The format is unknown, or `states` is set although the table or the format has
            no optimizer state.
        OSError: The file cannot be written. An existing one is unchanged.
    """
    writers = {"npz": _write_npz, "parquet": _write_parquet, "records": _write_records}
    kind = kind or file.suffix.removeprefix(".")
    if kind not in writers:
        raise ConfigError(
            "A table can be exported to FILE.npz or FILE.parquet, or to any file with --format "
            f"{' | '.join(writers)}. Received: {file}, format {kind!r}"
        )
    if states and kind == "records":
        raise ConfigError("Records have only keys and embeddings. Received: --states")
    blocks = stored.rows(name)
    entry = stored.manifest.tables[name]
    if states and not entry.state_slots:
        raise ConfigError(f"Table '{name}' has an optimizer without state. Received: --states")
    unfinished = file.with_name(f".{file.name}-{os.getpid()}")
    try:
        width = 8 + 4 * (entry.dim + math.prod(entry.state_shape) * states)
        with progress("Exporting", entry.rows * width) as advance:
            writers[kind](unfinished, entry, blocks, states, advance)
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)
    return entry.rows


def record_of(dim: int) -> np.dtype:
    """Returns the dtype of a table's records, for `tfhybrid.checkpoint.RecordFile`.

    Args:
        dim: Length of an embedding.
    """
    return np.dtype([("key", "<i8"), ("embedding", "<f4", (dim,))])


def _write_records(
    path: Path,
    entry: TableEntry,
    blocks: Sequence[StoredRows],
    _states: bool,
    advance: Callable[[int], None],
) -> None:
    with path.open("wb") as file:
        for block in blocks:
            for part in parts(block, _PART_ROWS):
                records = np.empty(len(part.keys), record_of(entry.dim))
                records["key"], records["embedding"] = part.keys, part.embeddings
                file.write(records.tobytes())
                advance(records.nbytes)


def _write_npz(
    path: Path,
    entry: TableEntry,
    blocks: Sequence[StoredRows],
    states: bool,
    advance: Callable[[int], None],
) -> None:
    columns: dict[str, tuple[str, tuple[int, ...]]] = {
        "keys": ("<i8", ()),
        "embeddings": ("<f4", (entry.dim,)),
        "states": ("<f4", entry.state_shape),
    }
    with zipfile.ZipFile(path, "w") as archive:
        for field, (name, (dtype, shape)) in enumerate(columns.items()):
            if name == "states" and not states:
                continue
            header = {"descr": dtype, "fortran_order": False, "shape": (entry.rows, *shape)}
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array_header_1_0(member, header)
                for block in blocks:
                    for part in parts(block, _PART_ROWS):
                        member.write(part[field].tobytes())
                        advance(part[field].nbytes)


def _write_parquet(
    path: Path,
    entry: TableEntry,
    blocks: Sequence[StoredRows],
    states: bool,
    advance: Callable[[int], None],
) -> None:
    import pyarrow  # importing it takes longer than everything else in a command
    import pyarrow.parquet

    lengths = {"embedding": entry.dim}
    if states:
        lengths["state"] = math.prod(entry.state_shape)
    lists = {name: pyarrow.list_(pyarrow.float32(), length) for name, length in lengths.items()}
    schema = pyarrow.schema({"key": pyarrow.int64(), **lists})

    def column(values: np.ndarray, type_: Any) -> Any:
        return pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(values.ravel()), type=type_)

    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for block in blocks:
            for part in parts(block, _PART_ROWS):
                values = zip(part[1:], lists.values(), strict=False)  # states are left out
                arrays = [pyarrow.array(part.keys), *(column(*pair) for pair in values)]
                writer.write_batch(pyarrow.record_batch(arrays, schema=schema))
                advance(sum(array.nbytes for array in part[: len(arrays)]))
