"""Metadata node: serves the states of nodes and the allocation of slots.

    tfhybrid node metadata --state FILE --token-file FILE --owners NAME,NAME ...

A registered node keeps its connection open; when the connection ends, the node is lost. If this
process dies, running jobs are not affected, but no node can register until it is back. A restarted
process loads its state from the file.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tfhybrid._deprecated import run_renamed
from tfhybrid._remote import remote
from tfhybrid.cluster.balance import Move, moves
from tfhybrid.cluster.membership import OWNING_ROLE, Membership, NodeState, View
from tfhybrid.cluster.status import StatusServer, status_of
from tfhybrid.errors import StoreError
from tfhybrid.monitoring.metrics import COUNTED_BY_NODES, rates
from tfhybrid.rpc import listener
from tfhybrid.rpc.calls import answer_calls
from tfhybrid.rpc.handshake import Handshake, checked_name
from tfhybrid.rpc.messages import MessageLink
from tfhybrid.rpc.remote_methods import served
from tfhybrid.rpc.server import NodeServer
from tfhybrid.rpc.tls import Tls
from tfhybrid.settings import tls_files

_log = logging.getLogger("tfhybrid.cluster")


class NodeStanding(NamedTuple):
    """Standing of a node in its cluster.

    Args:
        epoch: Allocation epoch.
        draining: Whether the node must not start another job.
    """

    epoch: int
    draining: bool


class MetadataNode:
    """Server of the metadata node, which knows the nodes of a cluster and the owner of each shard.

    The caller runs `server`, which also closes the listener.

    Args:
        membership: Nodes and owners of shards, kept in a file.
        server_address: Host and port to listen on; port 0 means a free one.
        token: Secret that connections must send.
        tls: TLS relay of this process. Default: `None`, connections are not encrypted.

    Attributes:
        address: Host and port of the listener.
        server: Server that accepts and answers connections.

    Raises:
        OSError: The address is not available.
        OverflowError: The port is not between 0 and 65535.
    """

    def __init__(
        self,
        membership: Membership,
        server_address: tuple[str, int],
        token: str,
        tls: Tls | None = None,
    ) -> None:
        self._membership = membership
        self._numbers: dict[str, Mapping[str, float]] = {}
        self._lock = threading.Lock()
        listener_socket = listener.listen(*server_address)
        self.address = listener_socket.getsockname()[:2]
        self.server = NodeServer(listener_socket, token, self._visit, tls=tls)

    @remote
    def status(self) -> dict[str, Any]:
        """Returns the status of the cluster as a JSON-serializable object. Thread-safe.

        Returns:
            `epoch`, the allocation epoch; `nodes`, with state, address and numbers of each;
            `allocation`, the node of each shard; `missing`, the names of the owners that are not
            ready.
        """
        with self._lock:
            return status_of(self._membership, dict(self._numbers))

    @remote
    def view(self) -> View:
        """Returns the current snapshot of the cluster. Thread-safe."""
        return self._membership.view

    @remote
    def plan(self) -> list[Move]:
        """Returns the moves of shards that would balance the cluster. Thread-safe."""
        return moves(self._membership.view)

    @remote
    def balance(self) -> list[Move]:
        """Moves shards if no job has rows in them. Thread-safe.

        A node that has sent no heartbeat since this process started may have a job.

        Returns:
            The moves that are left to the running job. Empty without a job, and if no node is
            ready to take a shard.

        Raises:
            StoreError: The cluster has changed meanwhile, and a planned move is not possible any
                more.
            OSError: The state file cannot be written.
        """
        planned = self.plan()
        if self._may_have_job():
            return planned
        for each in planned:
            self.move(each, self._membership.view.epoch)
        return []

    @remote
    def move(self, move: Move, epoch: int) -> int:
        """Stores the new owner of a shard. Thread-safe.

        Args:
            move: Shard, its owner and its new owner.
            epoch: Allocation epoch for which the move was planned.

        Returns:
            The new allocation epoch.

        Raises:
            StaleEpochError: The allocation has another epoch.
            StoreError: The shard has another owner, or the new owner is not ready.
            OSError: The state file cannot be written. Nothing was changed.
        """
        return self._membership.move(move.shard, move.origin, move.to, epoch)

    @remote
    def drain(self, name: str) -> None:
        """Marks a node as draining. Thread-safe.

        Args:
            name: Name of the node.

        Raises:
            StoreError: There is no such node, or it is lost.
            OSError: The state file cannot be written. Nothing was changed.
        """
        self._membership.drain(name)

    def hear(self, name: str, numbers: Mapping[str, float]) -> None:
        """Keeps the numbers of a node for the status page. Thread-safe.

        Args:
            name: Name of the node.
            numbers: Numbers by name.
        """
        with self._lock:
            self._numbers[name] = numbers

    def _may_have_job(self) -> bool:
        nodes = self._membership.view.nodes.values()
        living = [
            node.name for node in nodes if node.role == OWNING_ROLE and node.state != NodeState.LOST
        ]
        with self._lock:
            return any(self._numbers.get(name, {}).get("jobs", 1.0) > 0 for name in living)

    def _visit(self, _: Handshake, link: MessageLink) -> None:
        node = NodeConnection(self._membership, self.hear)
        try:
            answer_calls(link, served(self) | served(node))
        finally:
            node.end()


class NodeConnection:
    """Connection of a node to the metadata node. The thread of the connection uses it alone.

    Args:
        membership: Nodes and owners of shards.
        hear: Function that takes the name of the node and the numbers of a heartbeat.
    """

    def __init__(
        self, membership: Membership, hear: Callable[[str, Mapping[str, float]], None]
    ) -> None:
        self._membership = membership
        self._hear = hear
        self._counted: dict[str, float] = {}  # counters of the last heartbeat
        self._counted_at = 0.0
        self._name = self._incarnation = ""  # empty until the node has registered

    @remote
    def register(
        self, name: str, role: str, address: tuple[str, int], incarnation: str
    ) -> NodeStanding:
        """Registers the node.

        Args:
            name: Name, unique within the cluster.
            role: Role of the node.
            address: Host and port of its listener.
            incarnation: Random id of its process.

        Returns:
            What the cluster knows of it.

        Raises:
            NameTakenError: A living node has that name.
            StoreError: The name is too long, or logs cannot show it.
            OSError: The state file cannot be written. Nothing was changed.
        """
        epoch = self._membership.register(checked_name(name), role, address, incarnation)
        self._name, self._incarnation = name, incarnation
        _log.info("%s has registered, allocation epoch %d", name, epoch)
        return self._standing()

    @remote
    def heartbeat(self, numbers: dict[str, float]) -> NodeStanding:
        """Takes a heartbeat of the registered node.

        Args:
            numbers: Numbers for the status page, by name.

        Returns:
            What the cluster knows of it.

        Raises:
            StoreError: The node has not registered.
            OSError: The state file cannot be written.
        """
        if not self._name:
            raise StoreError("A node must register before it sends heartbeats")
        self._hear(self._name, numbers | self._rates(numbers))
        self._membership.heard_of(self._name, self._incarnation)
        return self._standing()

    def end(self) -> None:
        """Marks the node as lost, because its connection has ended.

        Raises:
            OSError: The state file cannot be written.
        """
        if self._name:
            _log.warning("%s is lost: its connection has ended", self._name)
            self._membership.set_state(self._name, self._incarnation, NodeState.LOST)

    def _rates(self, numbers: dict[str, float]) -> dict[str, float]:
        """Returns the growth per second of each counter since the last heartbeat."""
        before, at = self._counted, self._counted_at
        self._counted = {name: numbers[name] for name in COUNTED_BY_NODES if name in numbers}
        self._counted_at = time.monotonic()
        growth = rates(before, self._counted, self._counted_at - at)
        return {f"{name}_per_second": rate for name, rate in growth.items()}

    def _standing(self) -> NodeStanding:
        now = self._membership.view
        return NodeStanding(now.epoch, now.nodes[self._name].draining)


def main(
    membership: Membership, token: str, address: tuple[str, int], status_address: tuple[str, int]
) -> None:
    """Runs the metadata node until SIGTERM. Only the main thread may call it.

    Args:
        membership: Nodes and owners of shards, kept in a file.
        token: Secret of the cluster.
        address: Host and port to listen on; port 0 means a free one.
        status_address: Host and port of the status page; port 0 means a free one.

    Raises:
        ConfigError: The TLS files cannot be used.
        OSError: An address is not available, or the state file cannot be written.
    """
    node = MetadataNode(membership, address, token, Tls.from_environment())
    node.server.stop_at_signals()
    page = StatusServer(status_address, token, node.status, tls_files())
    _log.info("Listening on %s port %d; status page on port %d", *node.address, page.port)
    with contextlib.closing(page):
        node.server.run()


if __name__ == "__main__":
    run_renamed("python -m tfhybrid.cluster.metadata_node", "tfhybrid node metadata")
