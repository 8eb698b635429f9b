"""Rows of a file into a copy of a checkpoint, which `tfhybrid.checkpoint.restore` then accepts."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from tfhybrid._version import __version__
from tfhybrid.checkpoint.manifest import FileEntry, Manifest, TableEntry, folder_of, sync
from tfhybrid.checkpoint.sources import BAD_ARCHIVE, NumpyRows, ParquetRows
from tfhybrid.checkpoint.table_file import Rows, digest, file_name, parts, read_table, sorted_keys
from tfhybrid.cli.console import progress
from tfhybrid.errors import CheckpointError, ConfigError, DataError, TfhybridError

# As a table is saved: a block is held in memory while it is written.
_BLOCK_BYTES = 64 << 20

# OptimizerKind of the core whose new rows start from zeros, and the one whose start from its second
# setting: InitializeState of custom_ops/core/compute/optimizer.cc.
_FROM_ZEROS = (1, 3)
_ADAGRAD = 2


def import_table(
    folder: Path, manifest: Manifest, name: str, file: Path, output: Path, *, replace: bool
) -> Path:
    """Makes a copy of a checkpoint in which a table has the rows of a file.

    Args:
        folder: The checkpoint's; it stays as it is.
        manifest: Its manifest.
        name: The table; its version stays, too.
        file: As `export_table` writes it; without states the rows' optimizer state starts fresh.
        output: Directory in which the copy appears under the same step, when it is complete.
        replace: Whether the table has these rows alone; otherwise they overwrite those of the same
            key, and the others stay.

    Returns:
        The copy's folder.

    Raises:
        CheckpointError: The checkpoint is damaged, or `output` has one of that step.
        DataError: The file is malformed or does not fit the table.
        ConfigError: The file has another suffix, or rows with NaN or infinities.
    """
    destination = folder_of(output, manifest.step)
    if destination.exists():
        raise CheckpointError(f"{destination} exists; give another directory. Nothing was changed.")
    old = read_table(folder, manifest, name)
    entry = manifest.tables[name]
    for each in entry.files:  # the copy's checksums would hide damage
        manifest.check_file(folder, each)
    rows = _read(file, entry)
    unfinished = destination.with_name(f".{destination.name}-{os.getpid()}")
    unfinished.mkdir(parents=True)
    try:
        files = _copy(folder, manifest, set(manifest.files) - set(entry.files), unfinished)
        changed = _write(unfinished, name, entry, _merged([] if replace else old, rows), files)
        dataclasses.replace(
            manifest,
            versions={**manifest.versions, "tfhybrid": __version__},
            tables={**manifest.tables, name: changed},
            files=files,
        ).write(unfinished)
        sync(unfinished)
        unfinished.rename(destination)  # fails if another one has appeared there
        sync(output)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return destination


def _read(file: Path, entry: TableEntry) -> Rows:
    """Reads a file of rows into memory, in the order of their keys."""
    fresh = _fresh_state(entry)
    blocks = [
        Rows(np.empty(0, np.int64), np.empty((0, entry.dim), np.float32), fresh[np.newaxis][:0])
    ]
    try:
        for block in _source(file).blocks(entry.dim, entry.state_slots):
            shape = (len(block.keys), *fresh.shape)
            states = np.broadcast_to(fresh, shape) if block.states is None else block.states
            blocks.append(Rows(block.keys, block.embeddings, states))
    except TfhybridError:  # some are ValueErrors
        raise
    except BAD_ARCHIVE as error:
        raise DataError(f"{file} is damaged, or no archive of arrays: {error}") from error
    _, places = sorted_keys(blocks, f"{file}")
    rows = Rows(*(np.concatenate(arrays)[places] for arrays in zip(*blocks, strict=True)))
    bad = ~np.isfinite(rows.embeddings).all(axis=1)
    if bad.any():
        raise ConfigError(
            f"{file} wants finite embeddings. Received: NaN or infinities in {bad.sum()} rows, of "
            f"the keys {rows.keys[bad][:5]}"
        )
    return rows


def _source(file: Path) -> NumpyRows | ParquetRows:
    if file.suffix == ".parquet":
        return ParquetRows(file)
    if file.suffix != ".npz":
        raise ConfigError(f"A table is imported from FILE.npz or FILE.parquet. Received: {file}")
    with np.load(file, allow_pickle=False) as arrays:
        return NumpyRows(file, states="states" if "states" in arrays else None)


def _fresh_state(entry: TableEntry) -> np.ndarray:
    """Returns the optimizer state of a new row, float32 `[slots, dim]`."""
    shape = (entry.state_slots, entry.dim)
    kind = entry.optimizer[0] if entry.optimizer else None
    if kind == _ADAGRAD:
        return np.full(shape, entry.optimizer[1], np.float32)
    if kind in _FROM_ZEROS or not entry.state_slots:
        return np.zeros(shape, np.float32)
    raise CheckpointError(f"What a new row's state is, is not known for optimizer {kind}")


def _copy(folder: Path, manifest: Manifest, names: set[str], to: Path) -> dict[str, FileEntry]:
    kept = {name: entry for name, entry in manifest.files.items() if name in names}
    with progress("Copying", sum(entry.size for entry in kept.values())) as advance:
        for name in kept:
            shutil.copyfile(folder / name, to / name)
            manifest.check_file(to, name, advance)
            sync(to / name)
    return kept


def _merged(old: list[Rows], rows: Rows) -> Iterator[Rows]:
    """Yields the old rows, overwritten where there are new ones, and then the other new ones."""
    is_new = np.ones(len(rows.keys), bool)
    for block in old:
        at = np.searchsorted(rows.keys, block.keys)
        found = at < len(rows.keys)
        found[found] = rows.keys[at[found]] == block.keys[found]
        embeddings, states = block.embeddings.copy(), block.states.copy()
        embeddings[found], states[found] = rows.embeddings[at[found]], rows.states[at[found]]
        is_new[at[found]] = False
        yield Rows(block.keys, embeddings, states)
    new = Rows(*(array[is_new] for array in rows))
    row_bytes = sum(array[:1].nbytes for array in new)
    yield from parts(new, max(1, _BLOCK_BYTES // max(1, row_bytes)))


def _write(
    folder: Path,
    name: str,
    entry: TableEntry,
    blocks: Iterator[Rows],
    files: dict[str, FileEntry],
) -> TableEntry:
    """Writes a table's blocks, adds them to `files`, and describes the table."""
    names: list[str] = []
    rows = total = 0
    for block in blocks:
        names.append(file_name(name, len(names)))
        path = folder / names[-1]
        save_file({field: np.ascontiguousarray(v) for field, v in block._asdict().items()}, path)
        sync(path)
        files[names[-1]] = FileEntry.of(path)
        rows += len(block.keys)
        total += digest(block)
    return dataclasses.replace(entry, rows=rows, digest=total % 2**64, files=names)
