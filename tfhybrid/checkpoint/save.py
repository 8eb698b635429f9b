"""Saving: blocking, and complete or not at all."""

from __future__ import annotations

import logging
import os
import shutil
import time
from pathlib import Path
from urllib.parse import quote

import keras
import numpy as np
import tensorflow as tf
from safetensors import SafetensorError
from safetensors.numpy import save_file

from tfhybrid import distributed, initializers
from tfhybrid._version import __version__
from tfhybrid.checkpoint import dense
from tfhybrid.checkpoint.manifest import (
    FORMAT,
    FileEntry,
    Manifest,
    Position,
    TableEntry,
    folder_of,
    steps,
    sync,
)
from tfhybrid.errors import CheckpointError, TfhybridError
from tfhybrid.store import Table, current_job

_log = logging.getLogger("tfhybrid.checkpoint")

# A block is held in memory while it is written.
_BLOCK_BYTES = 64 << 20


def save(
    model: keras.Model,
    directory: str | os.PathLike[str],
    position: Position,
    *,
    max_to_keep: int | None = None,
) -> Path:
    """Saves a model between two steps; every rank must call it, and rank 0 writes.

    Args:
        model: Compiled with `tfhybrid.DistributedOptimizer`, and built.
        directory: Where checkpoints are kept; made if it does not exist.
        position: Where training will go on.
        max_to_keep: Number of newest checkpoints that stay. `None` keeps all.

    Returns:
        The checkpoint's folder. A checkpoint of the same step is replaced.

    Raises:
        CheckpointError: On all ranks, if it could not be written; what was there stays.

    Example:

    ```python
    tfhybrid.checkpoint.save(model, "checkpoints/", tfhybrid.checkpoint.Position(epoch=1, step=0))
    ```
    """
    step = int(model.optimizer.iterations)
    folder = folder_of(Path(directory), step)
    tables = dense.tables_of(model)
    arrays = dense.gather(model)

    def write() -> None:
        if distributed.rank() > 0:
            return
        started = time.monotonic()
        size = _write(folder, tables, arrays, step, position, type(model.optimizer).__name__)
        _prune(folder.parent, max_to_keep)
        _log.info("Saved %s: %.1f MB in %.1f s", folder, size / 1e6, time.monotonic() - started)

    _compare_replicas(tables)
    try:
        distributed.together(write)
    except (TfhybridError, OSError, SafetensorError) as error:
        raise CheckpointError(f"The checkpoint {folder} could not be written. {error}") from error
    return folder


def _compare_replicas(tables: dict[str, Table]) -> None:
    """Checks that all hosts have the same tables, bit for bit, before one of them is saved."""
    job = current_job()
    if len(set(job.hosts)) == 1:
        return
    mine = {name: table.digest() for name, table in tables.items()} if job.is_leader else {}
    by_rank = distributed.allgather_object(mine)
    for name, table in tables.items():
        digests = {rank: mine[name] for rank, mine in enumerate(by_rank) if name in mine}
        if len(set(digests.values())) > 1:
            raise CheckpointError(
                f"The replicas of table '{name}' differ at version {table.version}: "
                f"digests by leader's rank {digests}. Nothing was saved."
            )


def _write(
    folder: Path,
    tables: dict[str, Table],
    arrays: dict[str, np.ndarray],
    step: int,
    position: Position,
    optimizer: str,
) -> int:
    """Writes all files under a temporary name, then renames; returns the bytes written."""
    unfinished = folder.with_name(f".{folder.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        of_optimizer = {"optimizer": optimizer}
        files = {dense.FILE: _write_file(unfinished / dense.FILE, arrays, of_optimizer)}
        entries = {}
        for name, table in tables.items():
            entries[name] = _write_table(unfinished, table, files)
        versions = {"tfhybrid": __version__, "tensorflow": tf.__version__}
        ranks, seed = distributed.size(), current_job().seed
        Manifest(FORMAT, step, position, ranks, seed, versions, entries, files).write(unfinished)
        sync(unfinished)
        shutil.rmtree(folder, ignore_errors=True)
        unfinished.rename(folder)
        sync(folder.parent)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    return sum(entry.size for entry in files.values())


def _write_table(folder: Path, table: Table, files: dict[str, FileEntry]) -> TableEntry:
    """Writes a table's blocks, adds them to `files`, and describes the table."""
    row_bytes = 8 + 4 * table.dim * (1 + table.state_slots)
    names = []
    blocks = table.blocks(max(1, _BLOCK_BYTES // row_bytes), states=True)
    for number, block in enumerate(blocks):
        names.append(f"{quote(table.name, safe='')}-{number:05d}.safetensors")
        arrays = {name: array for name, array in vars(block).items() if array is not None}
        files[names[-1]] = _write_file(folder / names[-1], arrays)
    return TableEntry(
        dim=table.dim,
        rows=table.rows,
        version=table.version,
        initializer=list(initializers.get(table.config.initializer).native),
        optimizer=list(table.optimizer),
        state_slots=table.state_slots,
        digest=table.digest(),
        files=names,
    )


def _write_file(
    path: Path, arrays: dict[str, np.ndarray], metadata: dict[str, str] | None = None
) -> FileEntry:
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    save_file(contiguous, path, metadata)
    sync(path)
    return FileEntry.of(path)


def _prune(directory: Path, max_to_keep: int | None) -> None:
    if max_to_keep is not None:
        for step in steps(directory)[:-max_to_keep]:
            shutil.rmtree(folder_of(directory, step), ignore_errors=True)
