"""Engine of a rank whose tables lie on embedding nodes."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from typing_extensions import override

from tfhybrid.core import native
from tfhybrid.core.engine import Engine
from tfhybrid.core.frozen_table import FrozenTable
from tfhybrid.core.opened_table import OpenedTable
from tfhybrid.core.store_token import run_of, token_of
from tfhybrid.core.update import Update, UpdateChoices
from tfhybrid.embedding_nodes.node_calls import NodeCalls
from tfhybrid.embedding_nodes.owned_store import OwnedStore
from tfhybrid.embedding_nodes.recovering import come_together
from tfhybrid.errors import StoreError, TfhybridError
from tfhybrid.rpc.remote_methods import Call, call_to

_NOT_SUMMED = ("version",)  # counters that are equal on all nodes


class NodesEngine(Engine):
    """Engine of a rank in a job with embedding nodes. It owns no rows.

    Its tables hold versions, and the gradients that the ranks of this host post. Rank 0 repeats on
    all nodes what it does itself: it opens, loads and saves tables, and opens updates. All do so in
    the same order.

    On rank 0, `digest`, `table_stats` and `count_nan` cover the rows of all nodes together. On
    other ranks they cover this host alone, and `readers` is 0. A call to the nodes raises
    `TfhybridError` if a node fails or is gone, except in `close_store` and `readers`.

    Args:
        hosts: Host of each rank of the job; the ranks of a host are consecutive.
        host: Number of this host.
        nodes: Number of embedding nodes.
        calls: Connections to the nodes on rank 0. Default: `None`, as on all other ranks.

    Attributes:
        calls: Connections of rank 0 to the embedding nodes; empty on other ranks.
        dims: Dim of each open table, by name.
        first_node: Host number of the first node.
        frozen: Frozen part of each node, for every table that is being saved, by table name.
        placements: Kind of placement, and host of all rows if there is one, by table name.
    """

    takes_announcements = False  # nodes send rows batch by batch

    def __init__(
        self, hosts: Sequence[int], host: int, nodes: int, calls: NodeCalls | None = None
    ) -> None:
        super().__init__(hosts, host, nodes)
        self.calls = NodeCalls() if calls is None else calls
        self.first_node = max(self.hosts) + 1
        self.dims: dict[str, int] = {}
        self.placements: dict[str, tuple[int, int]] = {}
        self.frozen: dict[str, list[FrozenTable]] = {}
        # What opens a copy of a shard, in order: a call and the tables that it names.
        self._opening: dict[tuple[str, tuple[str, ...]], Callable[[], Call[None]]] = {}
        self._in_files: set[str] = set()  # tables with rows in files
        self._moved: dict[str, set[str]] = {}  # cursors that know of the last move, by table

    @property
    def asks(self) -> bool:
        """Whether this rank calls the nodes: true on rank 0 only."""
        return bool(self.calls)

    @override
    def open_store(
        self, directory: str, job: str, local_rank: int, description: str, token: int
    ) -> str:
        reclaimed = super().open_store(directory, job, local_rank, description, token)
        for node, caller in enumerate(self.calls):
            caller.call(OwnedStore.open_store, token_of(run_of(token), self.first_node + node))
        return reclaimed

    @override
    def recover_store(self, directory: str, job: str, description: str) -> int:
        token = super().recover_store(directory, job, description)
        if self.calls:
            come_together(self, self.calls, run_of(token), self.first_node)
        return token

    @override
    def roll_forward(self, updates: np.ndarray) -> None:
        super().roll_forward(updates)
        self.calls.each(Engine.roll_forward, updates)

    @override
    def forget_updates(self) -> None:
        super().forget_updates()
        self.calls.each(Engine.forget_updates)

    @override
    def close_store(self, *, leave: bool = False) -> None:
        super().close_store(leave=leave)
        self.dims.clear()
        self._opening.clear()
        with contextlib.suppress(TfhybridError):  # a node that is gone has no store to close
            self.calls.each(OwnedStore.close_store, leave)

    @override
    def readers(self) -> int:
        try:
            return max(self.calls.each(Engine.readers), default=0)
        except TfhybridError:  # a node is gone, which ends the job and so its reads
            return 0

    def leave_nodes(self) -> None:
        """Closes the connections of rank 0, which frees the nodes for another job.

        Does nothing on other ranks. Calls to the nodes fail afterwards.
        """
        self.calls.close()

    @override
    def open_table(self, table: OpenedTable) -> None:
        # Without the files, which lie on the nodes.
        super().open_table(dataclasses.replace(table, files=("", 0)))
        kind, host = table.placement
        self.dims[table.name] = table.dim
        self.placements[table.name] = int(kind), host
        key = "open_table", (table.name,)
        self._open(key, lambda: call_to(OwnedStore.open_table, table))
        if table.files[0]:
            self._in_files.add(table.name)

    @override
    def set_optimizer(self, name: str, **settings: float) -> None:
        super().set_optimizer(name, **settings)
        key = "set_optimizer", (name,)
        self._open(key, lambda: call_to(OwnedStore.set_optimizer, name, settings))

    @override
    def forget_optimizer(self, name: str) -> None:
        super().forget_optimizer(name)
        self.settle(name)
        self.calls.each(Engine.forget_optimizer, name)
        for call, tables in list(self._opening):
            if call != "open_table" and name in tables:
                del self._opening[call, tables]

    @override
    def digest(self, name: str) -> int:
        if not self.calls:
            return super().digest(name)
        self.settle(name)
        return sum(self.calls.each(Engine.digest, name)) % 2**64

    @override
    def table_stats(self, name: str) -> native.TableStatsStruct:
        struct = super().table_stats(name)
        if not self.calls:
            return struct
        self._wait_here(name)
        of_nodes = self.calls.each(OwnedStore.stats, name)
        for field in (field for field, *_ in struct._fields_ if field not in _NOT_SUMMED):
            setattr(struct, field, sum(each[field] for each in of_nodes))
        return struct

    @override
    def count_nan(self, name: str) -> int:
        if not self.calls:
            return super().count_nan(name)
        self._wait_here(name)
        return sum(self.calls.each(Engine.count_nan, name))

    @override
    def set_version(self, name: str, version: int, optimizer_start: int) -> None:
        super().set_version(name, version, optimizer_start)
        self.calls.each(Engine.set_version, name, version, optimizer_start)

    @override
    def open_update(
        self,
        name: str,
        tables: dict[str, int],
        choices: UpdateChoices | None = None,
        steps: int = 0,
    ) -> Update:
        opened = super().open_update(name, tables, choices, steps)
        chosen = choices or UpdateChoices()
        self._open(
            (f"open_update {name}", tuple(tables)),
            lambda: call_to(OwnedStore.open_update, name, tables, chosen, opened.steps),
        )
        return opened

    def opening(self) -> list[Call[None]]:
        """Returns the calls by which another node opens its copy of a shard, made by rank 0.

        Raises:
            StoreError: A table has rows in files, or is being saved: its rows cannot move.
        """
        if self._in_files or self.frozen:
            raise StoreError(
                f"A shard can move if no table has rows in files, and none is being saved. "
                f"Received: in files {sorted(self._in_files)}, being saved {sorted(self.frozen)}"
            )
        return [call() for call in self._opening.values()]

    @property
    def tables(self) -> list[str]:
        """Names of the open tables, in the order in which they were opened."""
        return list(self.dims)

    def wait_for_all(self) -> None:
        """Waits until every update that this rank has posted is applied.

        Raises:
            TfhybridError: One of the updates failed.
        """
        for name in self.dims:
            self.wait(name)

    def rows_have_moved(self) -> None:
        """Records that a node received rows without the marks of which rows had changed.

        The next save of each table under each cursor (the record of changed rows that one kind of
        save uses) then contains all rows.
        """
        self._moved = {name: set() for name in self.dims}

    def changes_are_lost(self, name: str, cursor: str) -> bool:
        """Returns whether a save that is about to start must contain all rows of a table.

        It must if rows moved between nodes since the last save of its kind: the marks of changed
        rows do not move with them. The call resets the answer of this table and cursor, so only a
        save may make it.

        Args:
            name: Name of the table.
            cursor: Name of the set of marks that this kind of save uses.
        """
        cursors = self._moved.get(name)
        if cursors is None or cursor in cursors:
            return False
        cursors.add(cursor)
        return True

    def settle(self, name: str) -> None:
        """Waits until all nodes have the updates of a table that this rank, rank 0, has posted.

        Args:
            name: Name of the table.

        Raises:
            TfhybridError: A node failed, is gone, or did not get there within a minute.
        """
        self.calls.each(OwnedStore.wait, *self.reached(name))

    def reached(self, name: str) -> tuple[str, int, int]:
        """Waits until this host has a table's updates; returns the arguments of `OwnedStore.wait`.

        Args:
            name: Name of the table.

        Raises:
            TfhybridError: There is no such table.
        """
        self._wait_here(name)
        return name, self.dims.get(name, 1), int(super().table_stats(name).version)

    def _wait_here(self, name: str) -> None:
        with contextlib.suppress(TfhybridError):  # a failed update changes nothing: still readable
            self.wait(name)

    def _open(self, key: tuple[str, tuple[str, ...]], call: Callable[[], Call[None]]) -> None:
        if self.calls:
            self._opening[key] = call
            self.calls.ask(call())
