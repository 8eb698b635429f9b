"""Owners of a table's rows: every host has all of them, each host a part, or embedding nodes do."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Sequence

from typing_extensions import override

from tfhybrid.core.engine import Engine
from tfhybrid.core.native import PlacementKind
from tfhybrid.core.table_writer import TableWriter
from tfhybrid.embedding_nodes.nodes_engine import NodesEngine
from tfhybrid.embedding_nodes.nodes_table_writer import NodesTableWriter

_UNEVENNESS = 1.05  # factor for hosts whose part is larger than the mean: a hash assigns rows


class RowOwner(abc.ABC):
    """Owner of a table's rows, as seen by one rank.

    Args:
        engine: Engine of this rank.
        placement: Kind and owner of the table's placement, in the engine's terms.
        connect: Function that connects this rank to the other owners. Later calls do nothing.

    Attributes:
        placement: The argument.
        sharded: Whether other hosts have rows that this host does not have.
        owns_here: Whether rows may lie in this host's memory.
    """

    sharded = True
    owns_here = True
    _writer: type[TableWriter] = TableWriter

    def __init__(
        self,
        engine: Engine,
        placement: tuple[PlacementKind, int],
        connect: Callable[[], None] = lambda: None,
    ) -> None:
        self._engine = engine
        self.placement = placement
        self._connect = connect

    def connect(self) -> None:
        """Connects this rank to the other owners, before the table is opened.

        Raises:
            StoreError: An owner cannot be reached.
        """
        self._connect()

    @property
    def others(self) -> list[int]:
        """Numbers of the owners to ask for rows that this rank's host does not have.

        These are all other hosts, even if one host has all rows of the table; or, with embedding
        nodes, the nodes, whose numbers follow those of the hosts. Empty if every host has all rows.
        """
        return self._engine.other_owners

    def writer(
        self,
        name: str,
        dim: int,
        state_shape: tuple[int, int],
        waiting: TableWriter | None,
        allocated_as: str,
    ) -> TableWriter:
        """Returns the writer of the table.

        Args:
            name: Name of the table.
            dim: Length of an embedding.
            state_shape: Shape of a row's optimizer state: vectors, and floats in each.
            waiting: Writer of the keys that wait for admission; `None` without admission.
            allocated_as: Name whose hash determines the keys' owners.
        """
        owned_as = allocated_as if self.sharded else None
        return self._writer(self._engine, name, dim, state_shape, waiting, owned_as)

    @abc.abstractmethod
    def part_of(self, rows: int) -> int:
        """Returns how many rows this rank, a leader, reserves for a table of `rows` rows."""

    def together(self, rows: Sequence[int]) -> set[int]:
        """Returns the number of rows of the whole table; several numbers if hosts differ.

        Args:
            rows: Number of rows on each host.
        """
        return {sum(rows)}


class ReplicatedRows(RowOwner):
    """Every host has all rows."""

    sharded = False

    @property
    @override
    def others(self) -> list[int]:
        return []

    @override
    def part_of(self, rows: int) -> int:
        return rows

    @override
    def together(self, rows: Sequence[int]) -> set[int]:
        return set(rows)


class ShardedRows(RowOwner):
    """Each host has a part of the rows, or one host has all of them."""

    @override
    def part_of(self, rows: int) -> int:
        kind, host = self.placement
        if kind == PlacementKind.BY_KEY:
            return math.ceil(rows / len(set(self._engine.hosts)) * _UNEVENNESS)
        return rows if host == self._engine.host else 0


class NodeRows(RowOwner):
    """Embedding nodes have all rows.

    Args:
        engine: Engine of this rank.
        placement: Kind and owner of the table's placement, in the engine's terms.
        connect: Function that connects this rank to the nodes. Later calls do nothing.
    """

    owns_here = False

    def __init__(
        self,
        engine: NodesEngine,
        placement: tuple[PlacementKind, int],
        connect: Callable[[], None],
    ) -> None:
        super().__init__(engine, placement, connect)
        self._calls_nodes = bool(engine.calls)
        if self._calls_nodes:
            self._writer = NodesTableWriter

    @override
    def part_of(self, rows: int) -> int:
        return rows if self._calls_nodes else 0  # rank 0 has each node reserve its part
