"""Restoring: everything is checked before anything changes."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Collection
from pathlib import Path

import keras
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file

from tfhybrid import distributed, initializers
from tfhybrid.checkpoint import dense
from tfhybrid.checkpoint.manifest import DENSE, Manifest, Position, folder_of, steps
from tfhybrid.checkpoint.table_file import read_table
from tfhybrid.errors import CheckpointError, ConfigError, StoreError
from tfhybrid.store import RowBlock, Table, current_job

_log = logging.getLogger("tfhybrid.checkpoint")


def restore(
    model: keras.Model,
    directory: str | os.PathLike[str],
    *,
    step: int | None = None,
    tables: Collection[str] | None = None,
    weights: bool = True,
) -> Position:
    """Gives a model the weights, optimizer and tables of a checkpoint; every rank must call it.

    The number of ranks and hosts may be another. So may an optimizer, the dense one or a table's:
    its state is dropped then, and a warning says so.

    Args:
        model: Built and compiled; as the one that was saved, unless `tables` or `weights` leaves
            out what differs.
        directory: Where checkpoints are kept; every host must see it.
        step: Which checkpoint. Defaults to the newest.
        tables: Names of the tables to restore; others stay as they are. Defaults to all of the
            model, which the checkpoint must have, and no others.
        weights: Whether to restore the dense weights and their optimizer too.

    Returns:
        Where training goes on; `Position(0, 0)` if there is no checkpoint and none was named.

    Raises:
        CheckpointError: On all ranks: there is none of that step, a file is missing or damaged, or
            it does not fit the model. Nothing was changed.
        ConfigError: The model has no table of a name in `tables`.

    Example:

    ```python
    position = tfhybrid.checkpoint.restore(model, "checkpoints/")
    # The tables of another model's job, for a model with one more feature:
    tfhybrid.checkpoint.restore(model, "older/", tables=["user", "item"], weights=False)
    ```
    """
    path = Path(directory)
    known = distributed.broadcast_object(steps(path))
    if step is None and not known:
        return Position(0, 0)
    chosen = known[-1] if step is None else step
    if chosen not in known:
        raise CheckpointError(f"{path} has checkpoints of the steps {known}. Received: step={step}")
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)
    restoring = _Restoring(folder_of(path, chosen), model, _chosen_tables(model, tables), weights)
    try:
        manifest = distributed.together(lambda: restoring.check(all_tables=tables is None))
        distributed.together(lambda: restoring.load(manifest))
    except (StoreError, OSError, SafetensorError) as error:
        raise CheckpointError(f"{restoring.folder} could not be restored. {error}") from error
    for name, table in restoring.tables.items():
        table.set_version(manifest.tables[name].version)
    _log.info("Restored %s, going on at epoch %d, step %d", restoring.folder, *manifest.position)
    return manifest.position


def _chosen_tables(model: keras.Model, names: Collection[str] | None) -> dict[str, Table]:
    tables = dense.tables_of(model)
    if names is None:
        return tables
    unknown = sorted(set(names) - set(tables))
    if unknown:
        raise ConfigError(f"The model has the tables {sorted(tables)}. Received: tables={unknown}")
    return {name: tables[name] for name in tables if name in names}


@dataclasses.dataclass(frozen=True)
class _Restoring:
    """A checkpoint and what it is restored into, as one rank sees them."""

    folder: Path
    model: keras.Model
    tables: dict[str, Table]
    weights: bool

    def check(self, *, all_tables: bool) -> Manifest:
        manifest = Manifest.read(self.folder)
        if current_job().is_leader:
            manifest.check_files(self.folder)
        if manifest.seed != current_job().seed:
            raise CheckpointError(
                f"{self.folder} was saved with seed {manifest.seed}, from which its unseen keys "
                f"get their values. Received: seed={current_job().seed} in tfhybrid.init()"
            )
        missing = set(self.tables) - set(manifest.tables)
        if missing or (all_tables and set(manifest.tables) != set(self.tables)):
            raise CheckpointError(
                f"{self.folder} has the tables {sorted(manifest.tables)}. Received: a model with "
                f"{sorted(self.tables)}; restore(tables=[...]) takes those that both have"
            )
        for name, table in self.tables.items():
            saved = (manifest.tables[name].dim, manifest.tables[name].initializer)
            mine = (table.dim, list(initializers.get(table.config.initializer).native))
            if saved != mine:
                raise CheckpointError(
                    f"Table '{name}' of {self.folder} has dim and initializer {saved}. "
                    f"Received: {mine}"
                )
        return manifest

    def load(self, manifest: Manifest) -> None:
        if self.weights:
            self._load_weights(manifest)
        if current_job().is_leader:
            for table in self.tables.values():
                self._load_table(table, manifest)

    def _load_weights(self, manifest: Manifest) -> None:
        path = self.folder / DENSE
        with safe_open(path, "np") as file:
            saved = (file.metadata() or {}).get("optimizer")
        mine = type(self.model.optimizer).__name__
        arrays = load_file(path)
        dense.assign(self.model, arrays, manifest.ranks, optimizer=saved == mine)
        if saved != mine:
            self.model.optimizer.iterations.assign(manifest.step)
            if distributed.rank() == 0:
                _log.warning(
                    "%s was saved with the optimizer %s: its state is dropped, %s starts afresh",
                    self.folder,
                    saved,
                    mine,
                )

    def _load_table(self, table: Table, manifest: Manifest) -> None:
        entry = manifest.tables[table.name]
        blocks = read_table(self.folder, manifest, table.name)
        # The kind; other settings of an optimizer do not change what its state means.
        same_optimizer = entry.optimizer[:1] == list(table.optimizer[:1])
        if not same_optimizer and distributed.rank() == 0:
            _log.warning(
                "Table '%s' of %s was trained by another optimizer: its state is dropped",
                table.name,
                self.folder,
            )
        table.clear()
        for block in blocks:
            states = block.states if same_optimizer else None
            table.write_rows(RowBlock(block.keys, block.embeddings, states))
        table.set_version(entry.version)
        same = table.rows == entry.rows and (not same_optimizer or table.digest() == entry.digest)
        if not same:
            raise CheckpointError(
                f"Table '{table.name}' is not what was saved in {self.folder}: wanted {entry.rows} "
                f"rows with digest {entry.digest:x}. Received: {table.rows} rows, "
                f"{table.digest():x}"
            )
