"""Restoring: everything is checked before anything changes."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import keras
from safetensors import SafetensorError
from safetensors.numpy import load_file

from tfhybrid import distributed, initializers
from tfhybrid.checkpoint import dense
from tfhybrid.checkpoint.manifest import Manifest, Position, TableEntry, folder_of, steps
from tfhybrid.errors import CheckpointError, StoreError
from tfhybrid.store import RowBlock, Table, current_job

_log = logging.getLogger("tfhybrid.checkpoint")


def restore(
    model: keras.Model, directory: str | os.PathLike[str], *, step: int | None = None
) -> Position:
    """Gives a model the weights, optimizer and tables of a checkpoint; every rank must call it.

    Args:
        model: Built and compiled as the one that was saved.
        directory: Where checkpoints are kept; every host must see it.
        step: Which checkpoint. Defaults to the newest.

    Returns:
        Where training goes on; `Position(0, 0)` if there is no checkpoint and none was named.

    Raises:
        CheckpointError: On all ranks: there is none of that step, a file is missing or damaged, or
            it does not fit the model. Nothing was changed.

    Example:

    ```python
    position = tfhybrid.checkpoint.restore(model, "checkpoints/")
    ```
    """
    path = Path(directory)
    known = distributed.broadcast_object(steps(path))
    if step is None and not known:
        return Position(0, 0)
    chosen = known[-1] if step is None else step
    if chosen not in known:
        raise CheckpointError(f"{path} has checkpoints of the steps {known}. Received: step={step}")
    folder = folder_of(path, chosen)
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    tables = dense.tables_of(model)
    try:
        manifest = distributed.together(lambda: _check(folder, tables))
        distributed.together(lambda: _load(folder, manifest, model, tables))
    except (StoreError, OSError, SafetensorError) as error:
        raise CheckpointError(f"{folder} could not be restored. {error}") from error
    for name, table in tables.items():
        table.set_version(manifest.tables[name].version)
    _log.info("Restored %s, going on at epoch %d, step %d", folder, *manifest.position)
    return manifest.position


def _check(folder: Path, tables: dict[str, Table]) -> Manifest:
    manifest = Manifest.read(folder)
    if current_job().is_leader:
        manifest.check_files(folder)
    if manifest.seed != current_job().seed:
        raise CheckpointError(
            f"{folder} was saved with seed {manifest.seed}, from which its unseen keys get their "
            f"values. Received: seed={current_job().seed} in tfhybrid.init()"
        )
    if set(manifest.tables) != set(tables):
        raise CheckpointError(
            f"{folder} has the tables {sorted(manifest.tables)}. Received: a model with "
            f"{sorted(tables)}"
        )
    for name, table in tables.items():
        saved = _shape(manifest.tables[name])
        mine = (
            table.dim,
            list(initializers.get(table.config.initializer).native),
            list(table.optimizer),
        )
        if saved != mine:
            raise CheckpointError(
                f"Table '{name}' of {folder} has dim, initializer and optimizer {saved}. "
                f"Received: {mine}"
            )
    return manifest


def _shape(entry: TableEntry) -> tuple[int, list[float], list[float]]:
    return entry.dim, entry.initializer, entry.optimizer


def _load(folder: Path, manifest: Manifest, model: keras.Model, tables: dict[str, Table]) -> None:
    dense.assign(model, load_file(folder / "dense.safetensors"), manifest.ranks)
    if not current_job().is_leader:
        return
    for name, table in tables.items():
        entry = manifest.tables[name]
        table.clear()
        for file in entry.files:
            arrays = load_file(folder / file)
            table.write_rows(RowBlock(arrays["keys"], arrays["embeddings"], arrays["states"]))
        table.set_version(entry.version)
        if table.stats().rows != entry.rows or table.digest() != entry.digest:
            raise CheckpointError(
                f"Table '{name}' is not what was saved in {folder}: wanted {entry.rows} rows with "
                f"digest {entry.digest:x}. Received: {table.stats().rows} rows, {table.digest():x}"
            )
