"""Connections of one rank to the embedding nodes and the data nodes of its job.

Every rank connects to each embedding node to read rows. Leaders also connect for updates, and rank
0 once more, to hear which updates a node has staged. Nodes never connect to ranks.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

from tfhybrid.cluster.registration import ClusterMember, address_of
from tfhybrid.core import split_batches
from tfhybrid.core.native import LinkPurpose
from tfhybrid.data_nodes.data_request import DataRequest, Trainer
from tfhybrid.data_nodes.feed import Feed, TrainerParts
from tfhybrid.data_nodes.key_links import PULL
from tfhybrid.data_nodes.open_epochs import OpenEpochs, Pausing
from tfhybrid.data_nodes.pushed_rows import EngineRows
from tfhybrid.data_nodes.read_log import ReadLog
from tfhybrid.data_nodes.tickets import TicketBook
from tfhybrid.embedding_nodes.embedding_node import ACCEPTED
from tfhybrid.embedding_nodes.node_session import NodeSession
from tfhybrid.embedding_nodes.node_waits import NodeWaits
from tfhybrid.embedding_nodes.nodes_engine import NodesEngine
from tfhybrid.errors import StoreError
from tfhybrid.rpc.calls import Caller
from tfhybrid.rpc.handshake import Handshake, Purpose
from tfhybrid.rpc.peer import Peer

_log = logging.getLogger("tfhybrid.embedding_nodes")


class NodeLinks:
    """Connections of one rank to the nodes of its job, for rows, updates and batches.

    The engine owns the connections to embedding nodes. A `Feed` owns those to data nodes. One
    thread at a time may call the methods, except for `connect`.

    Args:
        engine: Engine of this rank.
        nodes: Nodes of the job.
        member: This process. Its TLS relay is closed by `stop`.
        leads: Whether this rank is the leader of its host.
    """

    def __init__(
        self, engine: NodesEngine, nodes: NodeSession, member: ClusterMember, *, leads: bool
    ) -> None:
        self._engine = engine
        self._nodes = nodes
        self._member = member
        self._leads = leads
        self._lock = threading.Lock()
        self._connected = False
        self._book: TicketBook | None = None
        self._feeds = 0
        self._epochs = OpenEpochs()
        self._log = ReadLog(lambda: split_batches.reads(engine))
        self._rank: int | None = None  # set once owners can push rows to this rank
        self._waits: NodeWaits | None = None

    def connect(self) -> None:
        """Connects this rank to all embedding nodes. Later calls do nothing. Thread-safe.

        Raises:
            StoreError: A node cannot be reached, or refuses this rank.
            TfhybridError: The engine has no open store.
        """
        with self._lock:
            if self._connected:
                return
            shards = range(len(self._nodes.names))
            for shard in shards:
                self._name(shard)
            for shard in shards:
                self._connect(shard)
            self._connected = True
            self._waits = NodeWaits(self._engine, self._peers, self._member.name)

    @property
    def engine(self) -> NodesEngine:
        """Engine of this rank."""
        return self._engine

    @property
    def nodes(self) -> NodeSession:
        """Nodes of the job; another object after shards have moved to other nodes."""
        return self._nodes

    @property
    def data(self) -> tuple[str, ...]:
        """Names of the data nodes."""
        return self._nodes.data

    @property
    def read_log(self) -> ReadLog:
        """Log of the versions that this rank has read, for batches whose rows may miss updates."""
        return self._log

    def feed(self, request: DataRequest, rank: int, size: int) -> Feed:
        """Returns a data set that data nodes read for this rank.

        Args:
            request: The data set to read, and the way its rows are delivered.
            rank: Number of this rank; the same in every call.
            size: Number of ranks.

        Returns:
            The data set, which connects to the data nodes when it first needs them.

        Raises:
            StoreError: The embedding nodes shall push rows and one of them cannot be reached, or
                the read log cannot be written.
        """
        if self._book is None:
            self._book = TicketBook(lambda: split_batches.looked_up(self._engine), rank, size)
        if request.read_log is not None:
            self._log.write_to(Path(request.read_log) / f"reads-{rank}.jsonl")
        session, silence = self._nodes.session, self._member.silence
        trainer = Trainer(session, rank, size, self._owners, self.data, silence)
        if request.delivery != PULL:
            self._take_rows(rank)
        self._feeds += 1
        rows = EngineRows(self._engine, self._engine.dims, self._log)
        parts = TrainerParts(self._dial_data, self._book, rows, self._epochs)
        return Feed(trainer, request, self._feeds, parts)

    @contextlib.contextmanager
    def paused(self) -> Iterator[list[Pausing]]:
        """Pauses this rank's data sets during the block; one thread at a time.

        Waits first until no data set is busy with a data node.

        Yields:
            The data sets that have an epoch in progress.
        """
        with self._epochs.paused() as feeds:
            yield feeds

    def settle(self) -> None:
        """Receives the outstanding answers of data nodes; only while the data sets are paused.

        Raises:
            PeerDiedError: A data node is gone, and does not come back in 60 s.
            TfhybridError: A data node that came back cannot read a data set again, or the read log
                cannot be written.
        """
        for feed in self._epochs.under_way:
            feed.settle()

    def follow(self, nodes: NodeSession) -> None:
        """Connects this rank to the new nodes of shards that have moved; between two steps.

        Call it while the data sets are paused. Those with an epoch in progress learn of the new
        nodes here, the others when their next epoch begins. Rows of received batches that a node
        has not pushed yet are requested, because another node has them now.

        Args:
            nodes: Nodes of the job after the move.

        Raises:
            StoreError: A node cannot be reached, or refuses this rank.
        """
        with self._lock:
            before, self._nodes = self._nodes, nodes
            for shard, owner in enumerate(zip(nodes.names, nodes.addresses, strict=True)):
                if owner == (before.names[shard], before.addresses[shard]):
                    continue
                if self._connected:
                    self._name(shard)
                    self._connect(shard)
                if self._rank is not None:
                    self._connect_rows(shard, self._rank)
                    split_batches.ask_for_all(self._engine)
        for feed in self._epochs.under_way:
            feed.follow()

    def stop(self) -> None:
        """Writes the rest of the read log, and closes the TLS relay to new connections.

        A log that cannot be written is logged, not raised. Open connections end with the engine.
        """
        try:
            self._log.note()
        except StoreError:  # the job has ended: an incomplete log does not make it fail
            _log.exception(
                "The last reads of %s could not be written to the read log", self._member.name
            )
        if self._waits is not None:
            self._waits.stop()
        if self._member.tls is not None:
            self._member.tls.close()

    def abandon(self) -> None:
        """Lets go of the TLS relay; call it in a forked child only.

        Otherwise the child would keep connections open after the parent has died.
        """
        if self._member.tls is not None:
            self._member.tls.abandon()

    def _peers(self) -> list[Peer]:
        return [self._member.peer(node, address) for node, address in self._owners()]

    def _owners(self) -> list[tuple[str, tuple[str, int]]]:
        nodes = self._nodes
        return list(zip(nodes.names, nodes.addresses, strict=True))

    def _take_rows(self, rank: int) -> None:
        """Connects this rank to all embedding nodes for pushed rows. Later calls do nothing."""
        with self._lock:
            if self._rank is None:
                for shard in range(len(self._nodes.names)):
                    self._connect_rows(shard, rank)
                self._rank = rank

    def _connect_rows(self, shard: int, rank: int) -> None:
        link = self._dialled(shard, Purpose.ROWS, rank)
        owner, node = self._engine.first_node + shard, self._nodes.names[shard]
        split_batches.receive_rows(self._engine, owner, link, node)

    def _dial_data(self, node: str) -> Caller:
        member = self._member
        handshake = Handshake(Purpose.CALLS, member.name, self._nodes.session)
        return member.peer(node, address_of(member, node)).caller(handshake)

    def _name(self, shard: int) -> None:
        self._engine.name_owner(self._engine.first_node + shard, self._nodes.names[shard])

    def _connect(self, shard: int) -> None:
        host, node = self._engine.first_node + shard, self._nodes.names[shard]
        self._engine.connect_owner(
            host, LinkPurpose.READS, self._dialled(shard, Purpose.READS), node
        )
        if not self._leads:
            return
        if self._engine.host == 0:  # before updates: the node answers the first one on this link
            link = self._dialled(shard, Purpose.STAGED)
            self._engine.serve_owner(host, LinkPurpose.UPDATES, link, node)
        link = self._dialled(shard, Purpose.UPDATES)
        self._engine.connect_owner(host, LinkPurpose.UPDATES, link, node)

    def _dialled(self, shard: int, to: Purpose, rank: int = 0) -> socket.socket:
        node, address = self._nodes.names[shard], self._nodes.addresses[shard]
        session, host = self._nodes.session, self._engine.host
        handshake = Handshake(to, self._member.name, session, host, shard, rank)
        link = self._member.peer(node, address).connect(handshake)
        try:
            accepted = link.recv(1)
        except OSError as error:
            link.close()
            raise StoreError(f"{node} does not answer {self._member.name}: {error}") from error
        if accepted != ACCEPTED:
            link.close()
            raise StoreError(
                f"{node} refused {self._member.name}. See the node's log for the reason"
            )
        return link
