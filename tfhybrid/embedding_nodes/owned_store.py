"""Store of an embedding node for one shard of a job, and what rank 0 calls there.

Rank 0 calls the methods of `Engine` and `TableWriter` here, and those of `OwnedStore` where a node
does more. Reads and updates of rows do not pass through this module: the core serves their
connections.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tfhybrid._remote import remote
from tfhybrid.core import native, split_batches
from tfhybrid.core.engine import Engine
from tfhybrid.core.opened_table import OpenedTable
from tfhybrid.core.table_set import TableSet
from tfhybrid.core.table_writer import TableWriter
from tfhybrid.core.update import UpdateChoices
from tfhybrid.embedding_nodes.logged_waits import TrainerWaits
from tfhybrid.rpc.remote_methods import Called, served, served_of

_log = logging.getLogger("tfhybrid.embedding_nodes")

_LONGEST_NAME = 64  # characters, of a job's name as the core takes it
_UNEVENNESS = 1.05  # rows of the largest shard over the mean, as a hash spreads them


@dataclasses.dataclass(frozen=True)
class ShardOfJob:
    """Description of a shard of a job, which a node shall serve.

    Args:
        job: Name of the job.
        hosts: Host of each rank.
        nodes: Number of embedding nodes.
        number: Number of the shard.
        session: Session of the job.
        epoch: Allocation epoch under which the node owns the shard.
        resumes: Whether the store is kept for the job's next run if this one dies.
    """

    job: str
    hosts: Sequence[int]
    nodes: int
    number: int
    session: str
    epoch: int
    resumes: bool


class WriterOf(NamedTuple):
    """Arguments of a `TableWriter`, which name it in calls.

    Args:
        table: Name of the table.
        dim: Length of an embedding.
        state_shape: Shape of a row's optimizer state: vectors, and floats in each.
        waiting: Whether keys wait for admission.
        owned_as: Name of the sharded table whose placement decides which keys the node keeps.
    """

    table: str
    dim: int
    state_shape: tuple[int, int]
    waiting: bool
    owned_as: str | None


class Recovered(NamedTuple):
    """A store that was recovered.

    Args:
        token: Token of the store.
        versions: Version of each table, by the name of its file.
    """

    token: int
    versions: dict[str, int]


class OwnedStore:
    """Tables of one shard of a job, on an embedding node.

    The remote methods run on the thread that serves rank 0. `numbers` may be called on any thread.

    Args:
        directory: Directory in shared memory. It may hold the stores of other nodes too, so the
            store is named after job, node and shard.
        node: Name of this node.
        described: Description of this process, for the messages of others.
        shard: Shard of the job.
    """

    def __init__(self, directory: str, node: str, described: str, shard: ShardOfJob) -> None:
        self._nodes = shard.nodes
        self._number = shard.number
        self.job = shard.job
        self.engine = Engine(shard.hosts, max(shard.hosts) + 1 + shard.number, shard.nodes)
        self._tables = TableSet(self.engine)
        self._directory = directory
        self._described = described
        suffix = f".{node}.{shard.number}"
        self._name = f"{self.job[: _LONGEST_NAME - len(suffix)]}{suffix}"
        self._resumes = shard.resumes
        self._placements: dict[str, tuple[native.PlacementKind, int]] = {}
        self._closing = threading.Lock()
        self._is_open = False
        self._waits: TrainerWaits | None = None  # of the open store
        self._batches = np.empty(0, np.int64)  # copied from another node, until the store is open

    @property
    def directory(self) -> Path:
        """Folder with the files of the store; made when rank 0 opens the store."""
        return Path(self._directory) / f"tfhybrid-{os.geteuid()}-{self._name}"

    def calls(self) -> dict[str, Called]:
        """Returns a function for each call that rank 0 can make to this store, by the call's name.

        These are the remote methods of `Engine`, of this class and of `TableWriter`.
        """
        of_engine, own = served(self.engine), served(self)
        return of_engine | own | served_of(TableWriter, WriterOf, self._writer)

    def numbers(self) -> dict[str, float]:
        """Returns rows, bytes and updates of the store for the status page; empty if closed."""
        with self._closing:
            if not self._is_open:
                return {}
            stats = self._tables.stats().values()
        return {
            "rows": sum(each.rows for each in stats),
            "bytes": sum(each.bytes for each in stats),
            "updates": max((each.version for each in stats), default=0),
        }

    def take_batches(self, words: np.ndarray) -> None:
        """Keeps the batches of the node that had the rows before; `recover_store` restores them.

        Args:
            words: Batches as `split_batches.copied` returns them, int64.
        """
        self._batches = words

    def close(self) -> None:
        """Closes the store and its connections, unless rank 0 has closed them already.

        The files stay for the job's next run if `resumes` was set.
        """
        self._end(leave=self._resumes)

    def _end(self, *, leave: bool) -> None:
        with self._closing:
            if self._is_open:
                self._is_open = False
                if self._waits is not None:
                    self._waits.stop()
                self._tables.close(leave=leave)
                self._tables, self._placements = TableSet(self.engine), {}

    def _begin(self) -> None:
        self._is_open = True
        self._waits = TrainerWaits(self.engine)

    @remote
    def open_store(self, token: int) -> None:
        """Creates the store.

        Args:
            token: Token of the store.

        Raises:
            TfhybridError: The store cannot be created.
        """
        reclaimed = self.engine.open_store(self._directory, self._name, 0, self._described, token)
        self._begin()
        for line in reclaimed.splitlines():
            _log.warning(
                "Removed the store of a dead job, %s. It can resume from checkpoints alone", line
            )

    @remote
    def recover_store(self) -> Recovered:
        """Recovers the store that a dead job, or another node's copy, left here.

        Raises:
            TfhybridError: There is no such store, or it cannot be recovered.
        """
        token = self.engine.recover_store(self._directory, self._name, self._described)
        self._begin()
        split_batches.restore(self.engine, self._batches)
        self._batches = np.empty(0, np.int64)
        return Recovered(token, self.engine.store_versions())

    @remote
    def close_store(self, leave: bool) -> None:
        """Closes the store, if it is open.

        Args:
            leave: Whether the files stay for the job's next run.
        """
        self._end(leave=leave)

    @remote
    def open_table(self, table: OpenedTable) -> None:
        """Opens a table; see `Engine.open_table`.

        Args:
            table: Settings of the table.

        Raises:
            TfhybridError: The table is open with another configuration.
        """
        self._tables.open_table(table)
        self._placements[table.name] = table.placement

    @remote
    def set_optimizer(self, name: str, settings: dict[str, Any]) -> None:
        """Sets a table's optimizer.

        Args:
            name: Name of the table.
            settings: Fields of `native.OptimizerConfigStruct`.

        Raises:
            TfhybridError: A setting is invalid.
        """
        self.engine.set_optimizer(name, **settings)

    @remote
    def open_update(
        self, name: str, tables: dict[str, int], choices: UpdateChoices, steps: int
    ) -> None:
        """Opens an update of some tables; see `Engine.open_update`.

        Args:
            name: Name of the update.
            tables: Dim of each table, by its name.
            choices: Settings of the update.
            steps: Number of steps that the job has already done.

        Raises:
            TfhybridError: A setting is invalid, or a table is not open.
        """
        self.engine.open_update(name, tables, choices, steps)

    @remote
    def versions(self) -> dict[str, int]:
        """Returns the version of each open table, by name."""
        return {name: int(each.version) for name, each in self._tables.stats().items()}

    @remote
    def wait(self, name: str, dim: int, version: int) -> None:
        """Waits until a table has reached a version or a later one, for a minute at the longest.

        Args:
            name: Name of the table.
            dim: Length of an embedding.
            version: Number of updates that must be applied to the table.

        Raises:
            StoreError: The version was not reached within a minute, or the table is not open.
        """
        self.engine.read({name: dim}, [np.empty(0, np.int64)], min_versions=[version])

    @remote
    def stats(self, name: str) -> dict[str, int]:
        """Returns the counts of a table on this node, by the fields of `native.TableStatsStruct`.

        Args:
            name: Name of the table.
        """
        struct = self.engine.table_stats(name)
        return {field: getattr(struct, field) for field, *_ in struct._fields_}

    @remote
    def reserve(self, writer: WriterOf, rows: int) -> None:
        """Reserves space for this shard's part of a table's rows.

        Args:
            writer: Writer of the table.
            rows: Number of rows of all shards, existing ones included.

        Raises:
            OutOfSpaceError: Shared memory is full. The table is unchanged.
        """
        kind, owner = self._placements[writer.table.removesuffix(native.WAITING_SUFFIX)]
        if kind == native.PlacementKind.WHOLE:
            rows = rows if owner == self._number else 0
        elif self._nodes > 1:
            rows = -int(-rows * _UNEVENNESS // self._nodes)
        self._writer(writer).reserve(rows)

    def _writer(self, of: WriterOf) -> TableWriter:
        waiting = None
        if of.waiting:
            name = of.table + native.WAITING_SUFFIX
            waiting = TableWriter(self.engine, name, 1, (0, 1), None, of.owned_as)
        return TableWriter(self.engine, of.table, of.dim, of.state_shape, waiting, of.owned_as)
