"""Import of rows from a file into a copy of a checkpoint, for `tfhybrid.checkpoint.restore`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from tfhybrid._version import __version__
from tfhybrid.checkpoint import storage
from tfhybrid.checkpoint.manifest import FileEntry, TableEntry
from tfhybrid.checkpoint.sources import NumpyRows, ParquetRows, array_names, parquet_columns
from tfhybrid.checkpoint.stored import StoredCheckpoint, folder_of
from tfhybrid.checkpoint.table_file import (
    StoredRows,
    arrays_of,
    digest,
    file_name,
    no_history,
    parts,
    sorted_keys,
)
from tfhybrid.cli.terminal.console import progress
from tfhybrid.core.native import OptimizerKind
from tfhybrid.errors import CheckpointError, ConfigError

# Size of a written block, which is held in memory; the same as in saving.
_BLOCK_BYTES = 64 << 20


def import_table(
    stored: StoredCheckpoint, name: str, file: Path, output: Path, *, replace: bool
) -> tuple[Path, int]:
    """Copies a checkpoint, with a table's rows taken from a file.

    If the checkpoint is a delta, the copy has all rows and no base.

    Args:
        stored: The checkpoint; it is not changed.
        name: Name of the table, whose version stays the same.
        file: File in a format of `export_table`. Without states in it, the optimizer state of its
            rows starts fresh.
        output: Directory for the copy, which has the same step. The copy appears only when it is
            complete.
        replace: Whether to drop all rows that the table had. Otherwise only the rows whose keys are
            in the file are replaced, and the other rows stay.

    Returns:
        The copy's folder, and the number of rows of the table in the copy.

    Raises:
        CheckpointError: The checkpoint is damaged or lacks the table, `output` has a checkpoint of
            the same step, or the file has a key twice.
        DataError: The file is malformed or does not fit the table, or a row is bad.
        ConfigError: The file's suffix is neither .npz nor .parquet.
        OSError: The file cannot be read, or the copy cannot be written.
    """
    manifest = stored.manifest
    destination = Path(folder_of(output, manifest.step))
    if destination.exists():
        raise CheckpointError(f"{destination} exists; give another directory. Nothing was changed.")
    old = stored.rows(name)
    # A delta's rows of the other tables are merged with those of its bases.
    merged = [each for each, entry in manifest.tables.items() if not entry.whole and each != name]
    for each in (name, *merged):  # otherwise the copy's checksums would hide damage
        stored.check_table(each)
    rows = _read(file, manifest.tables[name])
    written: dict[str, Iterable[StoredRows]] = {each: stored.rows(each) for each in merged}
    written[name] = _merged([] if replace else old, rows)
    with storage.appearing(destination) as unfinished:
        left_out = {file for each in written for file in manifest.tables[each].all_files}
        files = _copy(stored, set(manifest.files) - left_out, unfinished)
        tables = dict(manifest.tables)
        for each, blocks in written.items():
            tables[each] = _write(unfinished, each, manifest.tables[each], blocks, files)
        dataclasses.replace(
            manifest,
            base=None,
            versions={**manifest.versions, "tfhybrid": __version__},
            tables=tables,
            files=files,
        ).write(unfinished)
    return destination, tables[name].rows


def _read(file: Path, entry: TableEntry) -> StoredRows:
    """Reads a file of rows into memory, in the order of their keys."""
    fresh = _fresh_state(entry)
    blocks = [
        StoredRows(
            np.empty(0, np.int64),
            np.empty((0, entry.dim), np.float32),
            fresh[np.newaxis][:0],
            _fresh_history(entry, 0),
        )
    ]
    for block in _source(file).blocks(entry.dim, entry.state_shape):
        shape = (len(block.keys), *fresh.shape)
        states = np.broadcast_to(fresh, shape) if block.states is None else block.states
        history = _fresh_history(entry, len(block.keys))
        blocks.append(StoredRows(block.keys, block.embeddings, states, history))
    _, order = sorted_keys(blocks, f"{file}")
    return StoredRows(*(np.concatenate(arrays)[order] for arrays in zip(*blocks, strict=True)))


def _source(file: Path) -> NumpyRows | ParquetRows:
    if file.suffix == ".parquet":
        return ParquetRows(file, state="state" if "state" in parquet_columns(file) else None)
    if file.suffix != ".npz":
        raise ConfigError(
            f"A table can be imported from FILE.npz or FILE.parquet. Received: {file}"
        )
    return NumpyRows(file, states="states" if "states" in array_names(file) else None)


def _fresh_state(entry: TableEntry) -> np.ndarray:
    """Returns the optimizer state of a new row, float32 `[slots, dim]`.

    Must equal `InitializeState` in `custom_ops/core/compute/optimizer.cc`.
    """
    state = np.zeros(entry.state_shape, np.float32)
    if not entry.state_slots:
        return state
    kind = entry.optimizer[0] if entry.optimizer else None
    if kind not in list(OptimizerKind):
        raise CheckpointError(f"The initial state of rows is unknown for optimizer {kind}")
    if kind in (OptimizerKind.ADAGRAD, OptimizerKind.ROW_ADAGRAD, OptimizerKind.FTRL):
        state[0] = entry.optimizer[1]
    return state


def _fresh_history(entry: TableEntry, rows: int) -> np.ndarray:
    """Returns histories of rows that were just updated, uint8 `[rows, ...]`."""
    if not entry.history:
        return no_history(rows)
    return entry.just_updated(rows)[:, np.newaxis].view(np.uint8)


def _copy(stored: StoredCheckpoint, names: set[str], to: Path) -> dict[str, FileEntry]:
    kept = {name: entry for name, entry in stored.manifest.files.items() if name in names}
    with progress("Copying", sum(entry.size for entry in kept.values())) as advance:
        for name in kept:
            with (to / name).open("wb") as file:
                for piece in storage.pieces(stored.folder / name):
                    file.write(piece.data)
            stored.manifest.check_file(to, name, advance)
    return kept


def _merged(old: list[StoredRows], rows: StoredRows) -> Iterator[StoredRows]:
    """Yields the old rows, replaced by new rows with the same key, and then the other new rows."""
    is_new = np.ones(len(rows.keys), bool)
    for block in old:
        at = np.searchsorted(rows.keys, block.keys)
        replaced = at < len(rows.keys)
        replaced[replaced] = rows.keys[at[replaced]] == block.keys[replaced]
        embeddings, states = block.embeddings.copy(), block.states.copy()
        embeddings[replaced], states[replaced] = (
            rows.embeddings[at[replaced]],
            rows.states[at[replaced]],
        )
        is_new[at[replaced]] = False
        yield StoredRows(block.keys, embeddings, states, block.history)
    new = StoredRows(*(array[is_new] for array in rows))
    row_bytes = sum(array[:1].nbytes for array in new)
    yield from parts(new, max(1, _BLOCK_BYTES // max(1, row_bytes)))


def _write(
    folder: Path,
    name: str,
    entry: TableEntry,
    blocks: Iterable[StoredRows],
    files: dict[str, FileEntry],
) -> TableEntry:
    """Writes a table's blocks, adds their files to `files`, and returns the table's entry."""
    names: list[str] = []
    rows = total = 0
    for block in blocks:
        names.append(file_name(name, len(names)))
        path = folder / names[-1]
        save_file(arrays_of(block), path)
        files[names[-1]] = FileEntry.of(path)
        rows += len(block.keys)
        total += digest(block)
    return dataclasses.replace(
        entry, rows=rows, whole=True, digest=total % 2**64, files=names, evicted=None
    )
