"""Access of one rank to the rows of its job's tables: what connects, and what leaves at the end."""

from __future__ import annotations

from typing_extensions import override

from tfhybrid import distributed
from tfhybrid.config.placement import Placement, Sharded
from tfhybrid.core.engine import Engine
from tfhybrid.core.native import PlacementKind
from tfhybrid.embedding_nodes.moving import Mover
from tfhybrid.embedding_nodes.node_links import NodeLinks
from tfhybrid.embedding_nodes.nodes_engine import NodesEngine
from tfhybrid.job import row_links
from tfhybrid.job.row_owner import NodeRows, ReplicatedRows, RowOwner, ShardedRows
from tfhybrid.job.row_service import RowService


class RowAccess:
    """Access to rows that the hosts of the ranks own.

    Args:
        engine: Engine of this rank.
        rows: Row service between hosts. Default: `None`, a job on one host.

    Attributes:
        engine: The argument.
        links: Links of this rank to the nodes of the job; `None` if it has none.
        neighbours: Local ranks for which a leader waits at the end.
    """

    links: NodeLinks | None = None

    def __init__(self, engine: Engine, rows: RowService | None = None) -> None:
        self.engine = engine
        self._rows = rows
        self._whole_tables = 0  # tables with `Sharded(by="table")` so far
        self.neighbours = range(1, distributed.local_size())

    def owner_of(self, placement: Placement | str) -> RowOwner:
        """Returns the owner of a new table's rows.

        All ranks must call it for the same tables in the same order, because tables with
        `Sharded(by="table")` are distributed in turn.

        Args:
            placement: Placement that the user chose.
        """
        owners = len(set(self.engine.hosts))
        if not isinstance(placement, Sharded) or owners == 1:
            return ReplicatedRows(self.engine, (PlacementKind.REPLICATED, 0))
        return ShardedRows(self.engine, self._placement(placement, owners), self.connect)

    def connect(self) -> None:
        """Connects this rank to the owners of sharded rows and to hosts that need its updates.

        Any thread may call it; later calls do nothing.

        Raises:
            StoreError: An owner cannot be reached.
        """
        if self._rows is not None:
            self._rows.connect()

    def follow(self) -> int:
        """Moves rows away from draining nodes and to new ones; returns the number of shards moved.

        Every rank must call it, between two steps.

        Raises:
            TfhybridError: On all ranks: an update has failed, a node cannot be reached, a data node
                is gone, or nobody knows whether a shard has moved.
        """
        return 0

    @property
    def serves(self) -> bool:
        """Whether others may still need rows that this rank, or its host, can reach."""
        return self._rows is not None and self._rows.is_connected

    def leave(self, *, exits: bool) -> None:
        """Waits until nobody needs the rows of this host any more, if they were served.

        Args:
            exits: Whether Python exits.

        Raises:
            StoreError: The store is closed.
        """
        if self.serves:
            row_links.leave(self.engine, self.neighbours, exits=exits)

    def stop(self) -> None:
        """Closes listeners and relays to new connections, before the store is closed."""
        if self._rows is not None:
            self._rows.stop()

    def end(self) -> None:
        """Frees what others own for this job, after the store is closed."""

    def abandon(self) -> None:
        """Lets go of listeners and relays in a forked child, which does not own them."""
        if self._rows is not None:
            self._rows.abandon()
        self._rows = None

    def _placement(self, placement: Placement | str, owners: int) -> tuple[PlacementKind, int]:
        if not isinstance(placement, Sharded) or placement.by == "key":
            return PlacementKind.BY_KEY, 0
        self._whole_tables += 1
        return PlacementKind.WHOLE, (self._whole_tables - 1) % owners


class NodeAccess(RowAccess):
    """Access to rows that embedding nodes own.

    Args:
        engine: Engine of this rank.
        links: Links of this rank to the nodes.
        mover: Mover of rows between nodes; `None` on ranks other than 0.
        rows: Row service between hosts. Default: `None`, a job on one host.
    """

    links: NodeLinks

    def __init__(
        self,
        engine: NodesEngine,
        links: NodeLinks,
        mover: Mover | None,
        rows: RowService | None = None,
    ) -> None:
        super().__init__(engine, rows)
        self._nodes = engine
        self.links = links
        self._mover = mover
        self.neighbours = range(0)  # the nodes serve until rank 0 leaves

    @override
    def owner_of(self, placement: Placement | str) -> RowOwner:
        return NodeRows(self._nodes, self._placement(placement, self._nodes.nodes), self.connect)

    @override
    def connect(self) -> None:
        super().connect()
        self.links.connect()

    @override
    @distributed.call("the move of rows to other nodes")
    def follow(self) -> int:
        mover, links = self._mover, self.links
        planned = distributed.broadcast_object([] if mover is None else mover.planned())
        if not planned:
            return 0

        def settle() -> None:
            links.settle()
            self._nodes.wait_for_all()

        # Batches of data nodes that a rank holds stay valid: the new nodes get their keys.
        with links.paused():
            distributed.together(settle)
            before = links.nodes
            moved = distributed.together(
                lambda: None if mover is None else mover.move(before, planned)
            )
            nodes = distributed.broadcast_object(moved)
            distributed.together(lambda: links.follow(nodes))
        return sum(one != other for one, other in zip(before.names, nodes.names, strict=True))

    @property
    @override
    def serves(self) -> bool:
        return True

    @override
    def stop(self) -> None:
        super().stop()
        self.links.stop()

    @override
    def end(self) -> None:
        self._nodes.leave_nodes()

    @override
    def abandon(self) -> None:
        super().abandon()
        self.links.abandon()
