"""The weights of a target model in an engine of this process, without TensorFlow."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from tfhybrid.checkpoint import storage, table_file
from tfhybrid.checkpoint.storage import Location
from tfhybrid.core import native
from tfhybrid.core.engine import Engine
from tfhybrid.core.update import UpdateChoices
from tfhybrid.errors import ConfigError
from tfhybrid.store import FrozenTable, RowBlock, TableFile, TableWriter
from tfhybrid.stream.weights.first_weights import FirstWeights
from tfhybrid.stream.weights.model_spec import DENSE_TABLE, ModelSpec
from tfhybrid.stream.weights.weight_base import Base


class WeightStore:
    """Tables and dense weights of one target model, dense ones as rows of one more table.

    Not thread-safe but for `read`.

    Args:
        spec: What the model consists of.
        directory: Of its store, in shared memory.
        name: Of the model.

    Attributes:
        version: Updates that were applied.
        event_time: The latest that came with one of them, if any did.
        optimizer_starts: As of `Base`.
    """

    def __init__(self, spec: ModelSpec, directory: str | os.PathLike[str], name: str) -> None:
        self.spec = spec
        self._tables = spec.all_tables
        self._stored = spec.stored_tables
        self._engine = Engine()
        token = secrets.randbits(63) | 1
        Path(directory).mkdir(parents=True, exist_ok=True)
        job = f"sync-{name}-{os.getpid()}"
        self._engine.open_store(str(directory), job, 0, f"sync unit of {name}", token)
        for table, each in self._tables.items():
            self._engine.open_table(
                table, each.dim, each.initializer, seed=spec.seed, policy=dict(each.policy)
            )
            self._engine.set_optimizer(table, **each.settings)
        self._dims = {table: each.dim for table, each in self._tables.items()}
        self._update = self._engine.open_update("sync", self._dims, UpdateChoices(reduction="sum"))
        self.version = 0
        self.event_time: int | None = None
        self.optimizer_starts: dict[str, int] = {}

    def set_dense(self, weights: list[np.ndarray], states: np.ndarray | None = None) -> None:
        """Writes the initial dense weights, and the states of their optimizer.

        Args:
            weights: As many as the model has.
            states: As of `ModelSpec.rows_of_states`; by default those of new rows.
        """
        for table, (keys, rows) in self.spec.rows_of(weights).items():
            block = RowBlock(keys, rows, states if table == DENSE_TABLE else None)
            self._writer(table).write_rows(block)

    def check(
        self,
        keys: Mapping[str, np.ndarray],
        values: Mapping[str, np.ndarray],
        rates: Mapping[str, float],
    ) -> None:
        """Checks an update.

        Raises:
            ConfigError: Its arrays are not those of this model's tables, a value is not finite, or
                a table with an optimizer has no learning rate.
        """
        missing = [
            name
            for name, spec in self._tables.items()
            if not spec.adds and not math.isfinite(rates.get(name, math.nan))
        ]
        if missing:
            raise ConfigError(
                f"An update has the learning rate of each table with an optimizer, here of "
                f"{missing}. Received: {dict(rates)}"
            )
        found = {name: (keys[name].dtype, keys[name].shape[0]) for name in keys}
        for name, spec in self._tables.items():
            wanted = (found.get(name, (None, 0))[1], spec.dim)
            value = values.get(name)
            if name not in found or value is None or value.shape != wanted:
                raise ConfigError(
                    f"An update has keys [n] and values [n, dim] of {self._dims}. Received: "
                    f"{ {each: array.shape for each, array in values.items()} }"
                )
            if not np.isfinite(value).all():
                row = int(np.flatnonzero(~np.isfinite(value).all(axis=1))[0])
                raise ConfigError(
                    f"The values of an update are finite. Received: key {int(keys[name][row])} of "
                    f"table '{name}' has {value[row]}"
                )

    def reserve(self, rows: Mapping[str, int]) -> None:
        """Makes room for so many more rows of tables, so that applying updates cannot fail.

        Raises:
            OutOfSpaceError: Shared memory is full. Nothing was changed.
        """
        for name in self._stored:
            more = rows.get(name.removesuffix(native.WAITING_SUFFIX), 0)
            self._writer(name).reserve(self._rows(name) + more)

    def apply(
        self,
        keys: Mapping[str, np.ndarray],
        values: Mapping[str, np.ndarray],
        rates: Mapping[str, float],
        samples: int,
        event_time: int | None,
    ) -> None:
        """Applies an update: adds deltas, or runs the tables' optimizers on gradients.

        Then tables evict rows. By event time they do so where the latest one that ever came says
        it, which a late update does not turn back.

        Args:
            keys: As of `WeightUpdate`.
            values: Likewise.
            rates: Likewise.
            samples: Its rows.
            event_time: Likewise.
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
            self._engine.wait(name)
        self.version += 1
        if event_time is not None:
            latest = self.event_time
            self.event_time = event_time if latest is None else max(latest, event_time)

    def read(self, keys: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], int]:
        """Returns rows of some tables as they all are after one update, and its number."""
        dims = {name: self._dims[name] for name in keys}
        rows, versions = self._engine.read(dims, list(keys.values()))
        return dict(zip(dims, rows, strict=True)), versions[0] if versions else self.version

    def digests(self) -> dict[str, int]:
        """Returns a hash of each table's rows and optimizer states."""
        return {name: self._engine.digest(name) for name in self._stored}

    def track_changes(self, cursor: str) -> None:
        """Notes from now on which rows change; see `TableWriter.track_changes`."""
        for name in self._tables:
            self._writer(name).track_changes(cursor)

    @contextlib.contextmanager
    def frozen(
        self, cursor: str = "", *, only_changed: bool = False
    ) -> Iterator[dict[str, FrozenTable]]:
        """Keeps all tables as they are meanwhile, for `write`; see `TableWriter.freeze`.

        Beginning must not be beside an update; the block may. If it raises, the cursor has again
        what was taken from it.
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
        """Writes frozen tables; returns table, file, and what is known of it, of each part."""
        written = []
        for name, of_table in frozen.items():
            for part in range(of_table.parts):
                file = table_file.file_name(name, part)
                with storage.local_file(folder / file) as path:
                    written.append((name, file, self._writer(name).write_part(part, path)))
        return written

    def write_part(self, name: str, part: int, path: Path) -> TableFile:
        """Writes a part of a frozen table; see `TableWriter.write_part`."""
        return self._writer(name).write_part(part, path)

    def removed_keys(self, name: str, frozen: FrozenTable) -> np.ndarray:
        """Returns the keys of a frozen table whose rows were removed, before the rows came."""
        return self._writer(name).removed_keys(frozen)

    def load(self, files: list[tuple[str, Path]], base: Base) -> None:
        """Reads the rows of a base into tables that are empty, and goes on from its version."""
        for name, path in files:
            spec = self._stored[name]
            keeps = bool(spec.policy)
            rows = table_file.read_rows(path, spec.dim, spec.state_shape, history=keeps)
            history = None
            if keeps:
                history = np.ascontiguousarray(rows.history).view(native.HISTORY)[:, 0]
            block = RowBlock(rows.keys, rows.embeddings, rows.states, history)
            self._writer(name).write_rows(block)
        self._go_on(base.version, base.optimizer_starts)
        self.event_time = base.event_time
        if base.event_time is not None:
            for name in self._stored:
                self._writer(name).set_event_time(base.event_time)

    def begin_with(self, first: FirstWeights) -> None:
        """Gives tables that are empty the rows of a checkpoint, and goes on from its step.

        Raises:
            OutOfSpaceError: Shared memory is full.
        """
        for name, table in first.tables.items():
            for block in table.blocks:
                self._writer(name).write_rows(block)
        dense = dict.fromkeys(self.spec.keys_of_weights(), first.version)
        if first.dense_states is not None:
            dense[DENSE_TABLE] = 0
        starts = {name: table.optimizer_start for name, table in first.tables.items()}
        self._go_on(first.version, {**dense, **starts})

    def _go_on(self, version: int, optimizer_starts: Mapping[str, int]) -> None:
        for name in self._stored:
            self._engine.set_version(name, version, optimizer_starts.get(name, 0))
        self.version = version
        self.optimizer_starts = dict(optimizer_starts)

    def close(self) -> None:
        """Frees the memory."""
        self._engine.close_store()

    def _rows(self, name: str) -> int:
        struct = native.TableStatsStruct()
        self._engine.call("table_stats_get", name.encode(), ctypes.byref(struct))
        return int(struct.rows)

    def _writer(self, name: str) -> TableWriter:
        spec = self._stored[name]
        return TableWriter(self._engine, name, spec.dim, spec.state_shape, None)
