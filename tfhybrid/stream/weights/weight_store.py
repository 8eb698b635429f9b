"""Store of a target model's weights, in the core's engine of this process, without TensorFlow."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from tfhybrid.checkpoint import storage, table_file
from tfhybrid.checkpoint.storage import Location
from tfhybrid.core import native
from tfhybrid.core.opened_table import OpenedTable
from tfhybrid.core.table_set import TableSet
from tfhybrid.core.update import UpdateChoices
from tfhybrid.store import FrozenTable, RowBlock, TableFile, TableWriter
from tfhybrid.stream.weights.first_weights import FirstWeights
from tfhybrid.stream.weights.model_spec import DENSE_TABLE, ModelSpec
from tfhybrid.stream.weights.weight_base import WeightBase


class WeightStore(TableSet):
    """Tables and dense weights of one target model; the dense weights are rows of further tables.

    Not thread-safe, except for `read`. The owner must call `close`.

    Args:
        spec: Specification of the model, with policies.
        directory: Directory of the store, in shared memory; created if it does not exist.
        name: Name of the model.

    Attributes:
        version: Number of updates in the weights.
        event_time: Latest event time of all updates, in seconds since 1970; `None` without any.
        optimizer_starts: Version at which each table's optimizer started, as
            `WeightBase.optimizer_starts`.

    Raises:
        ConfigError: The store has no such tables or optimizers.
        OutOfSpaceError: Shared memory is full.
        NameTakenError: A store of that model is open in this process.
        OSError: The directory cannot be made.
    """

    def __init__(self, spec: ModelSpec, directory: str | os.PathLike[str], name: str) -> None:
        super().__init__()
        self.spec = spec
        self._tables = spec.all_tables
        self._stored = spec.stored_tables
        self.create_store(directory, f"sync-{name}-{os.getpid()}", f"sync unit of {name}")
        with self.closed_on_error():
            for table, of in self._tables.items():
                self.open_table(OpenedTable(table, of.dim, of.initializer, spec.seed, of.policy))
                self.engine.set_optimizer(table, **of.settings)
            choices = UpdateChoices(reduction="sum")
            self._update = self.engine.open_update("sync", self.dims, choices)
        self.version = 0
        self.event_time: int | None = None
        self.optimizer_starts: dict[str, int] = {}

    def set_dense(self, weights: list[np.ndarray], states: np.ndarray | None = None) -> None:
        """Writes the initial dense weights, and the states of their optimizer.

        Args:
            weights: Dense weights, one for each of `ModelSpec.shapes`.
            states: Optimizer states, as returned by `ModelSpec.rows_of_states`. Default: `None`,
                the states of new rows.

        Raises:
            OutOfSpaceError: Shared memory is full.
            ConfigError: The weights or states have wrong shapes.
        """
        for table, (keys, rows) in self.spec.rows_of(weights).items():
            block = RowBlock(keys, rows, states if table == DENSE_TABLE else None)
            self._writer(table).write_rows(block)

    def reserve(self, rows: Mapping[str, int]) -> None:
        """Reserves space for new rows, so that applying updates cannot fail.

        Args:
            rows: Maximum number of new rows, by table.

        Raises:
            OutOfSpaceError: Shared memory is full. Nothing was changed.
        """
        for name in self._stored:
            more = rows.get(name.removesuffix(native.WAITING_SUFFIX), 0)
            self._writer(name).reserve(self.rows(name) + more)

    def apply(
        self,
        keys: Mapping[str, np.ndarray],
        values: Mapping[str, np.ndarray],
        rates: Mapping[str, float],
        samples: int,
        event_time: int | None,
    ) -> None:
        """Applies an update: adds deltas, or runs the tables' optimizers on gradients.

        Tables then evict rows. Eviction by event time uses the latest event time of all updates, so
        a late update does not turn the clock back. Call `update_check.check_shapes` and `reserve`
        before, so that this cannot fail. Waits until the update is applied.

        Args:
            keys: Keys by table, as `WeightUpdate.keys`.
            values: Values by table, as `WeightUpdate.values`.
            rates: Learning rates by table, as `WeightUpdate.rates`.
            samples: Number of samples of the update, as `WeightUpdate.rows`.
            event_time: Event time of the update's latest sample, as `WeightUpdate.event_time`.
        """
        adds = {name: spec.adds for name, spec in self._tables.items()}
        self._update.post(
            [keys[name] for name in self._tables],
            [-values[name] if adds[name] else values[name] for name in self._tables],
            [1.0 if adds[name] else rates[name] for name in self._tables],
            samples=samples,
            event_time=native.NO_TIME if event_time is None else event_time,
        )
        for name in self._tables:
            self.engine.wait(name)
        self.version += 1
        if event_time is not None:
            latest = self.event_time
            self.event_time = event_time if latest is None else max(latest, event_time)

    def read(self, keys: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], int]:
        """Returns rows of tables, all at the same version, and that version. Thread-safe.

        Args:
            keys: Keys by table name, int64 `[n]`; the rows have their order.

        Raises:
            KeyError: There is no such table.
        """
        dims = {name: self.dims[name] for name in keys}
        rows, versions = self.engine.read(dims, list(keys.values()))
        return dict(zip(dims, rows, strict=True)), versions[0] if versions else self.version

    def digests(self) -> dict[str, int]:
        """Returns a hash of each table's rows and optimizer states, by table.

        Tables of keys that wait for admission are included.
        """
        return {name: self.engine.digest(name) for name in self._stored}

    def track_changes(self, cursor: str) -> None:
        """Starts to record which rows change, for `frozen` with the same cursor. No update may run.

        Args:
            cursor: Name of the record of changed rows; several may exist side by side.
        """
        for name in self._tables:
            self._writer(name).track_changes(cursor)

    @contextlib.contextmanager
    def frozen(
        self, cursor: str = "", *, only_changed: bool = False
    ) -> Iterator[dict[str, FrozenTable]]:
        """Freezes all tables, so that `write` sees one version of them while updates go on.

        No update may be applied while the block is entered; within the block updates may be
        applied. If the block raises, the cursor gets the changed rows back.

        Args:
            cursor: Name of a cursor of `track_changes`, whose changed rows are taken. Default:
                none, for a base, which also has the keys that wait for admission.
            only_changed: Whether to freeze only the changed rows. Default: all rows.

        Yields:
            The frozen tables by name. They are thawed when the block ends.
        """
        frozen: dict[str, FrozenTable] = {}
        try:
            # Publications have no keys that wait for admission.
            for name in self._tables if cursor else self._stored:
                frozen[name] = self._writer(name).freeze(cursor, only_changed=only_changed)
            yield frozen
        except BaseException:
            for name in frozen:
                self._writer(name).return_changes()
            raise
        finally:
            for name in frozen:
                self._writer(name).thaw()

    def write(
        self, frozen: Mapping[str, FrozenTable], folder: Location
    ) -> list[tuple[str, str, TableFile]]:
        """Writes frozen tables, one file for each part.

        Args:
            frozen: Frozen tables by name, as `frozen` yields them.
            folder: Folder to write to.

        Returns:
            The table, the file name and the description of each file.

        Raises:
            OSError: The folder cannot be written.
            StoreError: A file cannot be written; an `OutOfSpaceError` if the disk is full.
        """
        written = []
        for name, of_table in frozen.items():
            for part in range(of_table.parts):
                file = table_file.file_name(name, part)
                with storage.local_file(folder / file) as path:
                    written.append((name, file, self._writer(name).write_part(part, path)))
        return written

    def write_part(self, name: str, part: int, path: Path) -> TableFile:
        """Writes a part of a frozen table to a file.

        Args:
            name: Name of the table.
            part: Number of the part, below `FrozenTable.parts`.
            path: Path of the file.

        Returns:
            Description of the file: its size, checksum and number of rows.

        Raises:
            StoreError: The file cannot be written, or the table is not frozen; an `OutOfSpaceError`
                if the disk is full.
        """
        return self._writer(name).write_part(part, path)

    def removed_keys(self, name: str, frozen: FrozenTable) -> np.ndarray:
        """Returns the keys whose rows were removed before the table was frozen, int64 `[n]`.

        A key may have got a new row since; readers must remove the old rows first.

        Args:
            name: Name of the table.
            frozen: The frozen table.
        """
        return self._writer(name).removed_keys(frozen)

    def load(self, files: list[tuple[str, Path]], base: WeightBase) -> None:
        """Reads a base into empty tables; the versions continue from the base.

        Args:
            files: Table and path of each file, as `weight_base.read` returns them.
            base: Metadata of the base.

        Raises:
            CheckpointError: A file is missing or damaged, or does not fit the model.
            OutOfSpaceError: Shared memory is full.
        """
        for name, path in files:
            spec = self._stored[name]
            has_history = bool(spec.policy)
            rows = table_file.read_rows(path, spec.dim, spec.state_shape, history=has_history)
            history = None
            if has_history:
                history = np.ascontiguousarray(rows.history).view(native.HISTORY)[:, 0]
            block = RowBlock(rows.keys, rows.embeddings, rows.states, history)
            self._writer(name).write_rows(block)
        self._set_versions(base.version, base.optimizer_starts)
        self.event_time = base.event_time
        if base.event_time is not None:
            for name in self._stored:
                self._writer(name).set_event_time(base.event_time)

    def load_checkpoint(self, first: FirstWeights) -> None:
        """Writes the rows of a checkpoint to empty tables; the versions continue from its step.

        Args:
            first: Rows of the checkpoint.

        Raises:
            OutOfSpaceError: Shared memory is full.
            ConfigError: Rows or states have wrong shapes.
        """
        for name, table in first.tables.items():
            for block in table.blocks:
                self._writer(name).write_rows(block)
        dense = dict.fromkeys(self.spec.keys_of_weights(), first.version)
        if first.dense_states is not None:
            dense[DENSE_TABLE] = 0
        starts = {name: table.optimizer_start for name, table in first.tables.items()}
        self._set_versions(first.version, {**dense, **starts})

    def _set_versions(self, version: int, optimizer_starts: Mapping[str, int]) -> None:
        for name in self._stored:
            self.engine.set_version(name, version, optimizer_starts.get(name, 0))
        self.version = version
        self.optimizer_starts = dict(optimizer_starts)

    def _writer(self, name: str) -> TableWriter:
        spec = self._stored[name]
        return TableWriter(self.engine, name, spec.dim, spec.state_shape, None)
