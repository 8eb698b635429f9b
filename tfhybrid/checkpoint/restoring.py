"""Restoring of checkpoints: everything is checked before anything changes."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError
from tensorflow import keras

from tfhybrid import distributed
from tfhybrid.checkpoint import (
    best,
    broken_epoch,
    dense,
    kept_model,
    lineage,
    storage,
)
from tfhybrid.checkpoint.manifest import DENSE, BaseEntry, Manifest, TableEntry
from tfhybrid.checkpoint.storage import Location
from tfhybrid.checkpoint.stored import StoredCheckpoint, TableUpdate, newest, steps
from tfhybrid.checkpoint.table_file import StoredRows
from tfhybrid.core import native, passes
from tfhybrid.core.native import OptimizerFlag, optimizer_settings
from tfhybrid.data.position import Position, position_of, told
from tfhybrid.errors import CheckpointError, ConfigError, StoreError
from tfhybrid.features.description import describe, difference
from tfhybrid.job.job import Job, current_job
from tfhybrid.monitoring import metrics
from tfhybrid.store import RowBlock, Table, WaitingTable, unseen_keys

_log = logging.getLogger("tfhybrid.checkpoint")


def restore(
    model: keras.Model,
    directory: str | os.PathLike[str],
    *,
    step: int | None = None,
    tables: Collection[str] | None = None,
    weights: bool = True,
) -> Any:
    """Restores a model's weights, optimizer and tables from a checkpoint; every rank must call it.

    The number of ranks and hosts may differ from the saved job. An optimizer may differ, too, the
    dense one or a table's: its state is then dropped with a warning.

    With `init(resume="memory")` the job resumes from memory instead, if the previous run left its
    state there, the configuration is the same, and this is called before the first step, without
    `step`, `tables` and `weights`. The log says which source was used.

    Args:
        model: Model, built and compiled; equal to the saved model, except for parts that `tables`
            or `weights` leave out.
        directory: Directory of the checkpoints, which every host sees, or URL for `tf.io.gfile`.
        step: Step of the checkpoint. Default: the newest.
        tables: Names of the tables to restore; other tables stay unchanged. Default: all tables,
            which must then be the same in model and checkpoint.
        weights: Whether to restore the dense weights and their optimizer, too. Default: yes.

    Returns:
        The position at which training continues: the saved one, or `tfhybrid.data.Position(0, 0)`
        if there is no checkpoint and `step` is not given.

    Raises:
        CheckpointError: On all ranks: the checkpoint is missing or damaged, or does not fit the
            model. Nothing was changed, unless loading itself failed after all checks.
        ConfigError: A name in `tables` is not a table of the model; or the job has
            `resume="memory"`, and the model no `tfhybrid.DistributedOptimizer`.
        StoreError: With `resume="memory"`, a rank has no memory for its tables or its state.
        OSError: The directory cannot be read.
        NotInitializedError: `tfhybrid.init()` was not called.

    Example:

    ```python
    position = tfhybrid.checkpoint.restore(model, "checkpoints/")
    # The tables of another model's job, for a model with one more feature:
    tfhybrid.checkpoint.restore(model, "older/", tables=["user", "item"], weights=False)
    ```
    """
    return restore_checkpoint(model, directory, step=step, tables=tables, weights=weights).position


@distributed.call("checkpoint.restore_best")
def restore_best(model: keras.Model, directory: str | os.PathLike[str]) -> Any:
    """Restores a model and its tables from the best checkpoint; every rank must call it.

    The best checkpoint is the one that `callbacks.Checkpoint(directory, monitor=...)` pinned. A
    restarted run still restores the newest one.

    Args:
        model: Model, built and compiled like the one that was saved.
        directory: Directory of the checkpoints.

    Returns:
        The position at which training would continue.

    Raises:
        CheckpointError: On all ranks: no checkpoint is pinned, or it cannot be restored. Nothing
            was changed, unless loading itself failed after all checks.
        OSError: On the ranks that cannot read the record of the best checkpoint or the directory.
        StoreError: On the other ranks, if some cannot read the record.
        ConfigError: The job has `resume="memory"`, and the model no
            `tfhybrid.DistributedOptimizer`.
        NotInitializedError: `tfhybrid.init()` was not called.

    Example:

    ```python
    save = tfhybrid.callbacks.Checkpoint("checkpoints/", monitor="val_auc", mode="max")
    model.fit(train, epochs=10, callbacks=[tfhybrid.callbacks.Evaluate(test), save])
    tfhybrid.checkpoint.restore_best(model, "checkpoints/")
    tfhybrid.export.saved_model(model, "exported/click_model")
    ```
    """
    record = distributed.together(lambda: best.read(storage.location(directory)))
    record = distributed.broadcast_object(record)
    if record is None:
        raise CheckpointError(
            "No checkpoint is pinned as the best. Train with callbacks.Checkpoint(directory, "
            f"monitor=...) to pin one. Received: {os.fspath(directory)}"
        )
    return restore(model, directory, step=record.step)


class Restored(NamedTuple):
    """Result of `restore_checkpoint`: position, and base for the next delta.

    The base is the restored checkpoint, if changed rows are tracked from there on; `None`
    otherwise, and if the model differs from the saved one.
    """

    position: Any
    base: BaseEntry | None


@distributed.call("checkpoint.restore")
def restore_checkpoint(
    model: keras.Model,
    directory: str | os.PathLike[str],
    *,
    step: int | None = None,
    tables: Collection[str] | None = None,
    weights: bool = True,
    track: bool = False,
) -> Restored:
    """Restores a checkpoint and can prepare a delta (changed rows) on it; every rank must call it.

    Args:
        model: Model, built and compiled; equal to the saved one, except for parts that are left
            out.
        directory: Directory of the checkpoints.
        step: Step of the checkpoint. Default: the newest.
        tables: Names of the tables to restore. Default: all.
        weights: Whether to restore the dense weights and their optimizer, too. Default: yes.
        track: Whether to track changed rows from now on. Default: no.

    Returns:
        The position at which training continues, and the base for the next delta.

    Raises:
        CheckpointError: On all ranks: the checkpoint is missing or damaged, or does not fit the
            model. Nothing was changed, unless loading itself failed after all checks.
        ConfigError: A name in `tables` is not a table of the model; or the job has
            `resume="memory"`, and the model no `tfhybrid.DistributedOptimizer`.
        StoreError: On all ranks, with `resume="memory"`: a table or a rank's state cannot be made.
        OSError: The directory cannot be read.
        NotInitializedError: `tfhybrid.init()` was not called.
    """
    path = storage.location(directory)
    existing = distributed.broadcast_object(steps(path))
    whole = step is None and tables is None and weights
    position = kept_model.resume(model, whole=whole)
    if distributed.rank() == 0:
        lineage.note_restored(path, step if position is None else None, existing)
    if position is not None:
        if existing:
            _adopt_unseen_of_newest(model, newest(path, existing))
        broken_epoch.note(model, position)
        return Restored(position, None)
    restored = Restored(Position(0, 0), None)
    if step is not None or existing:
        restored = _restore_files(model, newest(path, existing, step), tables, weights, track)
    kept_model.start(model, restored.position)
    broken_epoch.note(model, restored.position)
    return restored


def _restore_files(
    model: keras.Model,
    folder: Location,
    tables: Collection[str] | None,
    weights: bool,
    track: bool,
) -> Restored:
    model.optimizer.build(model.trainable_variables)
    job = current_job()
    restoring = _Restoring(job, folder, model, _chosen_tables(model, tables), weights)
    try:
        checked = distributed.together(
            lambda: restoring.check(all_tables=tables is None, track=track)
        )
        # Announced passes hold copies of the old rows.
        distributed.together(lambda: passes.end_all(job.engine))
        distributed.together(lambda: restoring.load(checked, track))
        restoring.check_rows(checked.stored.manifest)
    except (StoreError, OSError, SafetensorError) as error:
        raise CheckpointError(f"{folder} could not be restored. {error}") from error
    manifest = checked.stored.manifest
    same_optimizer = {
        name: name in manifest.tables and _same_optimizer(table, manifest)
        for name, table in restoring.tables.items()
    }
    for name, table in restoring.tables.items():
        entry = manifest.tables[_awaited(table)]
        table.set_version(entry.version, entry.optimizer_start if same_optimizer[name] else None)
    position = position_of(manifest.position)
    metrics.note(metrics.RESUMED_STEP, manifest.step, "checkpoint")
    _log.info("Restored %s, continuing at %s", folder, told(position))
    exact = tables is None and all(
        same_optimizer[name] and table.keeps_history == manifest.tables[name].history
        for name, table in restoring.tables.items()
    )
    return Restored(position, checked.base if exact else None)


def _chosen_tables(model: keras.Model, names: Collection[str] | None) -> dict[str, Table]:
    tables = dense.saved_tables_of(model)
    if names is None:
        return tables
    awaited = {_awaited(table) for table in tables.values()}
    unknown = sorted(set(names) - awaited)
    if unknown:
        raise ConfigError(f"The model's tables are {sorted(awaited)}. Received: tables={unknown}")
    return {name: table for name, table in tables.items() if _awaited(table) in names}


def _awaited(table: Table) -> str:
    """Returns the table for which this table's keys wait, or the table's own name."""
    return table.awaited if isinstance(table, WaitingTable) else table.name


class _Checked(NamedTuple):
    """Checkpoint that fits the model: its dense weights and, on leaders, each table's updates."""

    stored: StoredCheckpoint
    base: BaseEntry | None  # the base for the next delta, if changes are tracked
    updates: dict[str, list[TableUpdate]]
    weights: dense.Matched | None


@dataclasses.dataclass(frozen=True)
class _Restoring:
    """Checkpoint and the model into which it is restored, on one rank."""

    job: Job
    folder: Location
    model: keras.Model
    tables: dict[str, Table]
    weights: bool

    def check(self, *, all_tables: bool, track: bool) -> _Checked:
        """Makes all checks and reserves space for the rows; changes no weights."""
        stored = StoredCheckpoint.open(self.folder)
        manifest = stored.manifest
        self._compare(manifest, all_tables)
        updates = self._check_files(stored) if self.job.is_leader else {}
        weights = self._matched_weights(manifest) if self.weights else None
        return _Checked(stored, stored.base() if track else None, updates, weights)

    def _compare(self, manifest: Manifest, all_tables: bool) -> None:
        """Compares the checkpoint with the job and the model."""
        if manifest.seed != self.job.seed:
            raise CheckpointError(
                f"{self.folder} was saved with seed {manifest.seed}, which determines the values "
                f"of unseen keys. Received: seed={self.job.seed} in tfhybrid.init()"
            )
        # A table may have gained or lost admission since it was saved.
        saved_names = {name for name in manifest.tables if not _is_of_waiting(name, manifest)}
        mine_names = {_awaited(table) for table in self.tables.values()}
        if mine_names - saved_names or (all_tables and saved_names != mine_names):
            raise CheckpointError(
                f"{self.folder} has the tables {sorted(saved_names)}. Received: a model with "
                f"{sorted(mine_names)}; restore(tables=[...]) restores those that both have"
            )
        for name, table in self.tables.items():
            if name not in manifest.tables:
                continue
            saved = (manifest.tables[name].dim, manifest.tables[name].initializer)
            mine = (table.dim, list(table.config.initializer.native))
            if saved != mine:
                raise CheckpointError(
                    f"Table '{name}' of {self.folder} has dim and initializer {saved}. "
                    f"Received: {mine}"
                )
        if all_tables and (change := difference(manifest.features, describe(self.model))):
            raise CheckpointError(
                f"{self.folder} was saved with other features, which its weights fit: {change}. "
                "restore(tables=[...]) does not compare features"
            )

    def _check_files(self, stored: StoredCheckpoint) -> dict[str, list[TableUpdate]]:
        """Checks all files and reserves space for all tables before any of them is changed.

        At once, on two processors: the kernel clears the pages of the space.
        """
        with ThreadPoolExecutor(1) as thread:
            reserved = thread.submit(self._reserve, stored.manifest)
            updates = stored.check()
            reserved.result()
        return updates

    def load(self, checked: _Checked, track: bool) -> None:
        """Loads the checked tables, on leaders, and the dense weights."""
        manifest = checked.stored.manifest
        _adopt_unseen(self.tables, manifest, self.folder)
        if self.job.is_leader:
            self._load_tables(checked, track)
        if checked.weights is not None:
            checked.weights.assign()
            if not checked.weights.optimizer:
                self._start_optimizer(manifest)

    def check_rows(self, manifest: Manifest) -> None:
        """Checks that the hosts have all rows after `load`; every rank must call it."""
        mine = {name: table.rows for name, table in self.tables.items()}
        by_rank = distributed.allgather_object((self.job.is_leader, mine))
        leaders = [rows for leads, rows in by_rank if leads]
        for name, table in self.tables.items():
            if name not in manifest.tables:
                continue
            saved = manifest.tables[name].rows
            of_hosts = [rows[name] for rows in leaders]
            if table.owner.together(of_hosts) != {saved}:
                raise CheckpointError(
                    f"Table '{table.name}' was restored incompletely: {self.folder} has {saved} "
                    f"rows. Received: {of_hosts} rows on the hosts"
                )

    def _load_tables(self, checked: _Checked, track: bool) -> None:
        manifest = checked.stored.manifest
        for name, table in self.tables.items():
            if name in manifest.tables:
                self._load_table(table, manifest, checked.updates[name])
            else:
                table.writer.clear()
            if track:
                table.writer.track_changes(lineage.CURSOR)

    def _reserve(self, manifest: Manifest) -> None:
        for name, table in self.tables.items():
            if name in manifest.tables:
                table.reserve_shard(manifest.tables[name].rows)

    def _matched_weights(self, manifest: Manifest) -> dense.Matched:
        path = self.folder / DENSE
        try:
            arrays = safetensors.numpy.load(storage.read(path).tobytes())
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"{path} cannot be read: {error}") from error
        same = manifest.optimizer == type(self.model.optimizer).__name__
        return dense.match(self.model, arrays, manifest.ranks, optimizer=same)

    def _start_optimizer(self, manifest: Manifest) -> None:
        """Continues the count of steps of an optimizer that starts fresh; logs a warning."""
        mine = type(self.model.optimizer).__name__
        self.model.optimizer.iterations.assign(manifest.step)
        if distributed.rank() == 0:
            settings = " with other settings" if manifest.optimizer == mine else ""
            _log.warning(
                "%s was saved with the optimizer %s%s: its state is dropped, %s starts fresh",
                self.folder,
                manifest.optimizer,
                settings,
                mine,
            )

    def _load_table(self, table: Table, manifest: Manifest, updates: Sequence[TableUpdate]) -> None:
        entry = manifest.tables[table.name]
        same_optimizer = _same_optimizer(table, manifest)
        if not same_optimizer and distributed.rank() == 0:
            _log.warning(
                "Table '%s' of %s was trained with another optimizer: its state is dropped",
                table.name,
                self.folder,
            )
        writer = table.writer
        writer.clear()
        writer.set_decay(entry.decay)
        writer.set_event_time(entry.clock)
        table.reserve_shard(entry.rows)
        for update in updates:
            if len(update.evicted):
                writer.remove_keys(update.evicted)
            for block in update.blocks:
                states = block.states if same_optimizer else None
                history = _history(block, entry) if table.keeps_history else None
                writer.write_rows(RowBlock(block.keys, block.embeddings, states, history))


def _adopt_unseen(tables: dict[str, Table], manifest: Manifest, folder: Location) -> None:
    """Lets keys without a row read outside of training what they read in the job that saved."""
    for name, table in tables.items():
        if name in manifest.tables:
            unseen_keys.adopt(table, manifest.tables[name].unseen, folder)


def _adopt_unseen_of_newest(model: keras.Model, folder: Location) -> None:
    """Lets tables resumed from memory read what the newest checkpoint says, if it can be read.

    Nothing else needs that checkpoint. Rank 0 reads it, so that all ranks do the same.
    """
    manifest: Manifest | None = None
    if distributed.rank() == 0:
        with contextlib.suppress(CheckpointError):
            manifest = Manifest.read(folder)
    manifest = distributed.broadcast_object(manifest)
    if manifest is not None:
        _adopt_unseen(dense.tables_of(model), manifest, folder)


def _is_of_waiting(name: str, manifest: Manifest) -> bool:
    awaited = name.removesuffix(native.WAITING_SUFFIX)
    return awaited != name and awaited in manifest.tables


def _history(block: StoredRows, entry: TableEntry) -> np.ndarray:
    """Returns the rows' histories; if none were saved, as if all had just been updated."""
    if not entry.history:
        return entry.just_updated(len(block.keys))
    return np.ascontiguousarray(block.history).view(native.HISTORY)[:, 0]


def _same_optimizer(table: Table, manifest: Manifest) -> bool:
    """Returns whether a table's optimizer can use the saved optimizer's states.

    Settings such as the learning rate may differ: they do not change the meaning of the states.
    """
    entry = manifest.tables[table.name]
    same_kind = entry.optimizer[:1] == list(table.optimizer[:1])
    return same_kind and entry.state_shape == table.state_shape and _flags(entry) == _flags(table)


def _flags(holder: TableEntry | Table) -> int:
    """Returns the flags of an optimizer that determine the layout of its state."""
    return int(optimizer_settings(holder.optimizer).get("flags", 0.0)) & ~OptimizerFlag.EVERY_ROW
