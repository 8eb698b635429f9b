"""The engine of a rank whose tables lie on embedding nodes.

It owns no rows: its tables tell versions, and carry what ranks of this host post. Rank 0 has the
nodes do what it does itself: tables and updates are opened in one order everywhere, loaded and
saved.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

import numpy as np

from tfhybrid.core import native
from tfhybrid.core.engine import Engine
from tfhybrid.core.frozen_table import FrozenTable
from tfhybrid.core.store_token import run_of, token_of
from tfhybrid.core.update import Update, UpdateChoices
from tfhybrid.embedding_nodes.node_calls import NodeCalls
from tfhybrid.embedding_nodes.recovering import come_together
from tfhybrid.errors import NotInitializedError, TfhybridError

_OF_ALL = ("version",)  # counters that are no sums


class NodesEngine(Engine):
    """An engine of a job with embedding nodes.

    Args:
        hosts: As of `Engine`.
        host: As of `Engine`.
        nodes: Embedding nodes.
        calls: Of rank 0, to the nodes; `None` on other ranks.

    Attributes:
        frozen: What each node has frozen of a table that is being saved.
        dims: Of each open table.
        placements: Of each table, on the nodes.
        first_node: The host number of the first node.
    """

    def __init__(
        self, hosts: Sequence[int], host: int, nodes: int, calls: NodeCalls | None
    ) -> None:
        super().__init__(hosts, host, nodes)
        self._calls = calls
        self.first_node = max(self.hosts) + 1
        self.dims: dict[str, int] = {}  # of open tables
        self.placements: dict[str, tuple[int, int]] = {}  # likewise
        self.frozen: dict[str, list[FrozenTable]] = {}  # tables being saved, by node
        self._updates: dict[tuple[str, tuple[str, ...]], Update] = {}
        self._moved: dict[str, set[str]] = {}  # who knows, by table

    @property
    def calls(self) -> NodeCalls:
        """What the nodes are asked by.

        Raises:
            NotInitializedError: This is not rank 0.
        """
        if self._calls is None:
            raise NotInitializedError("Rank 0 alone asks embedding nodes")
        return self._calls

    @property
    def asks(self) -> bool:
        """Whether this rank asks the nodes."""
        return self._calls is not None

    def open_store(
        self, directory: str, job: str, local_rank: int, description: str, token: int
    ) -> str:
        """As of `Engine`; rank 0 has the nodes open theirs."""
        reclaimed = super().open_store(directory, job, local_rank, description, token)
        for node in range(self.nodes if self._calls is not None else 0):
            its = {"token": token_of(run_of(token), self.first_node + node)}
            self.calls.ask(node, "open_store", its)
        return reclaimed

    def recover_store(self, directory: str, job: str, description: str) -> int:
        """As of `Engine`; rank 0 has the nodes recover theirs, all at one version."""
        token = super().recover_store(directory, job, description)
        if self._calls is not None:
            come_together(self, self._calls, run_of(token), self.first_node)
        return token

    def roll_forward(self, updates: np.ndarray) -> None:
        """As of `Engine`."""
        super().roll_forward(updates)
        if self._calls is not None:
            self._calls.ask_all("roll_forward", {}, {"updates": updates})

    def forget_updates(self) -> None:
        """As of `Engine`."""
        super().forget_updates()
        if self._calls is not None:
            self._calls.ask_all("forget_updates", {})

    def close_store(self, *, leave: bool = False) -> None:
        """As of `Engine`; rank 0 has the nodes close theirs."""
        super().close_store(leave=leave)
        self.dims.clear()
        if self._calls is not None:
            with contextlib.suppress(TfhybridError):  # a node that is gone has no store to close
                self._calls.ask_all("close_store", {"leave": leave})

    def readers(self) -> int:
        """Returns how many ranks may still read rows of nodes; on rank 0, and 0 on other ranks."""
        try:
            return 0 if self._calls is None else max(self._calls.results("readers", {}))
        except TfhybridError:  # a node is gone, and so is the job
            return 0

    def leave_nodes(self) -> None:
        """Ends the connections of rank 0: the nodes are free for another job."""
        if self._calls is not None:
            self._calls.close()

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
        """As of `Engine`; files lie on the nodes."""
        super().open_table(name, dim, initializer, seed=seed, policy=policy, placement=placement)
        self.dims[name] = dim
        self.placements[name] = int(placement[0]), placement[1]
        if self._calls is not None:
            asked = {
                "table": name,
                "dim": dim,
                "initializer": list(initializer),
                "seed": seed,
                "policy": policy or {},
                "placement": list(placement),
                "files": list(files),
            }
            self._calls.ask_all("open_table", asked)

    def set_optimizer(self, name: str, **settings: float) -> None:
        """As of `Engine`."""
        super().set_optimizer(name, **settings)
        if self._calls is not None:
            self._calls.ask_all("set_optimizer", {"table": name, "settings": settings})

    def forget_optimizer(self, name: str) -> None:
        """As of `Engine`."""
        super().forget_optimizer(name)
        if self._calls is not None:
            self._calls.ask_all("forget_optimizer", self.named(name))

    def digest(self, name: str) -> int:
        """As of `Engine`; on rank 0 of the rows of all nodes."""
        if self._calls is None:
            return super().digest(name)
        return sum(self._calls.results("digest", self.named(name))) % 2**64

    def table_stats(self, name: str) -> native.TableStatsStruct:
        """As of `Engine`; on rank 0 of all nodes together."""
        struct = super().table_stats(name)
        if self._calls is None:
            return struct
        of_nodes = self._calls.results("stats", self.named(name))
        for field in (field for field, *_ in struct._fields_ if field not in _OF_ALL):
            setattr(struct, field, sum(each[field] for each in of_nodes))
        return struct

    def count_nan(self, name: str) -> int:
        """As of `Engine`; on rank 0 of all nodes together."""
        if self._calls is None:
            return super().count_nan(name)
        return sum(self._calls.results("count_nan", self.named(name)))

    def set_version(self, name: str, version: int, optimizer_start: int) -> None:
        """As of `Engine`."""
        super().set_version(name, version, optimizer_start)
        if self._calls is not None:
            asked = {"table": name, "version": version, "start": optimizer_start}
            self._calls.ask_all("set_version", asked)

    def open_update(
        self,
        name: str,
        tables: dict[str, int],
        choices: UpdateChoices | None = None,
        steps: int = 0,
    ) -> Update:
        """As of `Engine`."""
        opened = super().open_update(name, tables, choices, steps)
        self._updates[name, tuple(tables)] = opened
        if self._calls is not None:
            chosen = vars(choices or UpdateChoices())
            asked = {"name": name, "tables": tables, "choices": chosen, "steps": steps}
            self._calls.ask_all("open_update", asked)
        return opened

    @property
    def tables(self) -> list[str]:
        """The open tables."""
        return list(self.dims)

    def steps_of(self, name: str, tables: Iterable[str]) -> int:
        """Returns how many steps the job has done of an update."""
        return self._updates[name, tuple(tables)].steps

    def wait_for_all(self) -> None:
        """Waits until all updates that this rank has posted are applied.

        Raises:
            TfhybridError: One has failed.
        """
        for name in self.dims:
            self.wait(name)

    def rows_have_moved(self) -> None:
        """Notes that a node has rows of which it does not know what changed before."""
        self._moved = {name: set() for name in self.dims}

    def changes_are_lost(self, name: str, cursor: str) -> bool:
        """Returns whether all rows of a table must be saved next; once for each cursor."""
        told = self._moved.get(name)
        if told is None or cursor in told:
            return False
        told.add(cursor)
        return True

    def named(self, name: str) -> dict[str, object]:
        """Returns how a table is told to nodes, and which version of it this rank has."""
        with contextlib.suppress(TfhybridError):  # the table is as it was before, and may be read
            self.wait(name)
        version = int(super().table_stats(name).version)
        return {"table": name, "dim": self.dims.get(name, 1), "version": version}
