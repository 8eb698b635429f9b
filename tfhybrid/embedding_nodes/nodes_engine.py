"""Engine of a rank whose tables lie on embedding nodes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

import numpy as np
from typing_extensions import override

from tfhybrid.core import native
from tfhybrid.core.engine import Engine
from tfhybrid.core.frozen_table import FrozenTable
from tfhybrid.core.store_token import run_of, token_of
from tfhybrid.core.update import Update, UpdateChoices
from tfhybrid.embedding_nodes.node_calls import NodeCalls
from tfhybrid.embedding_nodes.recovering import come_together
from tfhybrid.errors import NotInitializedError, TfhybridError

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
        calls: Connections to the nodes; `None` on all ranks but rank 0.

    Attributes:
        dims: Dim of each open table, by name.
        first_node: Host number of the first node.
        frozen: Frozen part of each node, for every table that is being saved, by table name.
        placements: Kind of placement, and host of all rows if there is one, by table name.
    """

    def __init__(
        self, hosts: Sequence[int], host: int, nodes: int, calls: NodeCalls | None
    ) -> None:
        super().__init__(hosts, host, nodes)
        self._calls = calls
        self.first_node = max(self.hosts) + 1
        self.dims: dict[str, int] = {}
        self.placements: dict[str, tuple[int, int]] = {}
        self.frozen: dict[str, list[FrozenTable]] = {}
        self._updates: dict[tuple[str, tuple[str, ...]], Update] = {}
        self._moved: dict[str, set[str]] = {}  # cursors that know of the last move, by table

    @property
    def calls(self) -> NodeCalls:
        """Connections of rank 0 to the embedding nodes.

        Raises:
            NotInitializedError: This is not rank 0.
        """
        if self._calls is None:
            raise NotInitializedError("Only rank 0 has connections to call the embedding nodes")
        return self._calls

    @property
    def asks(self) -> bool:
        """Whether this rank calls the nodes: true on rank 0 only."""
        return self._calls is not None

    @override
    def open_store(
        self, directory: str, job: str, local_rank: int, description: str, token: int
    ) -> str:
        reclaimed = super().open_store(directory, job, local_rank, description, token)
        for node in range(self.nodes if self._calls is not None else 0):
            arguments = {"token": token_of(run_of(token), self.first_node + node)}
            self.calls.ask(node, "open_store", arguments)
        return reclaimed

    @override
    def recover_store(self, directory: str, job: str, description: str) -> int:
        token = super().recover_store(directory, job, description)
        if self._calls is not None:
            come_together(self, self._calls, run_of(token), self.first_node)
        return token

    @override
    def roll_forward(self, updates: np.ndarray) -> None:
        super().roll_forward(updates)
        if self._calls is not None:
            self._calls.ask_all("roll_forward", {}, {"updates": updates})

    @override
    def forget_updates(self) -> None:
        super().forget_updates()
        if self._calls is not None:
            self._calls.ask_all("forget_updates", {})

    @override
    def close_store(self, *, leave: bool = False) -> None:
        super().close_store(leave=leave)
        self.dims.clear()
        if self._calls is not None:
            with contextlib.suppress(TfhybridError):  # a node that is gone has no store to close
                self._calls.ask_all("close_store", {"leave": leave})

    @override
    def readers(self) -> int:
        try:
            return 0 if self._calls is None else max(self._calls.results("readers", {}))
        except TfhybridError:  # a node is gone, which ends the job and so its reads
            return 0

    def leave_nodes(self) -> None:
        """Closes the connections of rank 0, which frees the nodes for another job.

        Does nothing on other ranks. Calls to the nodes fail afterwards.
        """
        if self._calls is not None:
            self._calls.close()

    @override
    def open_table(
        self,
        name: str,
        dim: int,
        initializer: tuple[int, float, float],
        *,
        seed: int = 0,
        policy: dict[str, float] | None = None,
        placement: tuple[native.PlacementKind, int] = (native.PlacementKind.BY_KEY, 0),
        files: tuple[str, int] = ("", 0),
    ) -> None:
        # Without the files, which lie on the nodes.
        super().open_table(name, dim, initializer, seed=seed, policy=policy, placement=placement)
        self.dims[name] = dim
        self.placements[name] = int(placement[0]), placement[1]
        if self._calls is not None:
            arguments = {
                "table": name,
                "dim": dim,
                "initializer": list(initializer),
                "seed": seed,
                "policy": policy or {},
                "placement": list(placement),
                "files": list(files),
            }
            self._calls.ask_all("open_table", arguments)

    @override
    def set_optimizer(self, name: str, **settings: float) -> None:
        super().set_optimizer(name, **settings)
        if self._calls is not None:
            self._calls.ask_all("set_optimizer", {"table": name, "settings": settings})

    @override
    def forget_optimizer(self, name: str) -> None:
        super().forget_optimizer(name)
        if self._calls is not None:
            self._calls.ask_all("forget_optimizer", self.named(name))

    @override
    def digest(self, name: str) -> int:
        if self._calls is None:
            return super().digest(name)
        return sum(self._calls.results("digest", self.named(name))) % 2**64

    @override
    def table_stats(self, name: str) -> native.TableStatsStruct:
        struct = super().table_stats(name)
        if self._calls is None:
            return struct
        of_nodes = self._calls.results("stats", self.named(name))
        for field in (field for field, *_ in struct._fields_ if field not in _NOT_SUMMED):
            setattr(struct, field, sum(each[field] for each in of_nodes))
        return struct

    @override
    def count_nan(self, name: str) -> int:
        if self._calls is None:
            return super().count_nan(name)
        return sum(self._calls.results("count_nan", self.named(name)))

    @override
    def set_version(self, name: str, version: int, optimizer_start: int) -> None:
        super().set_version(name, version, optimizer_start)
        if self._calls is not None:
            arguments = {"table": name, "version": version, "start": optimizer_start}
            self._calls.ask_all("set_version", arguments)

    @override
    def open_update(
        self,
        name: str,
        tables: dict[str, int],
        choices: UpdateChoices | None = None,
        steps: int = 0,
    ) -> Update:
        opened = super().open_update(name, tables, choices, steps)
        self._updates[name, tuple(tables)] = opened
        if self._calls is not None:
            chosen = vars(choices or UpdateChoices())
            arguments = {"name": name, "tables": tables, "choices": chosen, "steps": steps}
            self._calls.ask_all("open_update", arguments)
        return opened

    @property
    def tables(self) -> list[str]:
        """Names of the open tables, in the order in which they were opened."""
        return list(self.dims)

    def steps_of(self, name: str, tables: Iterable[str]) -> int:
        """Returns the number of steps that the job has done of an update.

        Args:
            name: Name of the update.
            tables: Names of its tables, in the order in which `open_update` got them.

        Raises:
            KeyError: No such update is open.
        """
        return self._updates[name, tuple(tables)].steps

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

    def named(self, name: str) -> dict[str, object]:
        """Returns the arguments that name a table in a call to the nodes.

        Waits first until the updates that this rank has posted are applied, or have failed. The
        arguments contain the version that this rank has then, for which the nodes can wait.

        Args:
            name: Name of the table.

        Returns:
            The arguments, as JSON can represent them.

        Raises:
            TfhybridError: There is no such table.
        """
        with contextlib.suppress(TfhybridError):  # a failed update changes nothing: still readable
            self.wait(name)
        version = int(super().table_stats(name).version)
        return {"table": name, "dim": self.dims.get(name, 1), "version": version}
