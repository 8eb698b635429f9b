"""Registration of nodes with the metadata node, and lookup of nodes there."""

from __future__ import annotations

import dataclasses
import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping

from tfhybrid.cluster.membership import NodeState, View
from tfhybrid.cluster.metadata_node import MetadataNode, NodeConnection, NodeStanding
from tfhybrid.cluster.node_options import NodeOptions
from tfhybrid.errors import PeerDiedError, StoreError, TfhybridError
from tfhybrid.rpc.calls import Caller
from tfhybrid.rpc.handshake import Handshake, Purpose
from tfhybrid.rpc.messages import LostError
from tfhybrid.rpc.peer import Peer
from tfhybrid.rpc.tls import Tls

_log = logging.getLogger("tfhybrid.cluster")

_CONNECT_SECONDS = 10.0
_SILENCE_SECONDS = 5.0
_BEAT_SECONDS = 0.5
_TOLD_SECONDS = 5.0


@dataclasses.dataclass(frozen=True)
class ClusterMember:
    """This process as a member of a cluster: what it needs to reach the others.

    Args:
        metadata: Host and port of the metadata node.
        token: Token of the cluster.
        name: Name of this process, for logs and errors.
        silence: Seconds after which a process that does not respond counts as gone. Default: 60.
        tls: TLS relay of this process. Default: `None`, connections are not encrypted.
    """

    metadata: tuple[str, int]
    token: str
    name: str
    silence: float = 60.0
    tls: Tls | None = None

    def call_metadata(self, limit: float | None = None) -> Caller:
        """Connects to the metadata node; the caller closes the connection.

        Args:
            limit: Maximum time in seconds for which the metadata node may be silent during a call.
                Default: `None`, no limit.

        Returns:
            The connection, over which one thread at a time may send requests.

        Raises:
            PeerDiedError: The metadata node cannot be reached. A wrong token shows at the first
                request, as a lost connection.
        """
        host, port = self.metadata
        described = f"the metadata node at {host} port {port}"
        peer = Peer(
            *(described, self.metadata, self.token, _SILENCE_SECONDS, self.tls, _CONNECT_SECONDS),
            limit=limit,
        )
        try:
            return peer.caller(Handshake(Purpose.CALLS, self.name))
        except LostError as error:
            raise PeerDiedError(f"The metadata node cannot be reached: {error}") from error

    def peer(self, name: str, address: tuple[str, int]) -> Peer:
        """Returns another process of the cluster, to connect to.

        Args:
            name: Name of the process, for errors.
            address: Host and port of its listener.
        """
        return Peer(name, address, self.token, self.silence, self.tls)


def look_up(member: ClusterMember, seconds: float) -> View:
    """Waits until all owners of slots are ready and returns the cluster's snapshot.

    Args:
        member: This process.
        seconds: Maximum time to wait for nodes that are not ready, in seconds.

    Returns:
        The snapshot, in which every shard has a ready owner.

    Raises:
        StoreError: The metadata node cannot be reached or refuses this process, or a node was not
            ready in time.
    """
    deadline = time.monotonic() + seconds
    caller = member.call_metadata()
    try:
        while True:
            view = caller.call(MetadataNode.view)
            missing = view.missing()
            if not missing:
                return view
            if any(view.nodes[name].draining for name in missing if name in view.nodes):
                # Moves its shards, if the job that used them has ended.
                caller.call(MetadataNode.balance)
            if time.monotonic() > deadline:
                states = {name: node.state.value for name, node in view.nodes.items()}
                raise StoreError(
                    f"The nodes {list(view.owners)} own slots and must all be ready. Read the logs "
                    f"of the others. Received: {states}"
                )
            time.sleep(0.1)
    finally:
        caller.close()


def address_of(member: ClusterMember, node: str) -> tuple[str, int]:
    """Returns host and port of a node, from the metadata node.

    Args:
        member: This process.
        node: Name of the node to look up.

    Raises:
        StoreError: The metadata node cannot be reached, or the node is lost or has never
            registered.
    """
    caller = member.call_metadata()
    try:
        entry = caller.call(MetadataNode.view).nodes.get(node)
    finally:
        caller.close()
    if entry is None or entry.state == NodeState.LOST:
        raise StoreError(f"Node {node} is lost or has never registered. Read its log")
    return entry.address


class Registration:
    """Registration of this node with the metadata node, kept up by a thread. Thread-safe.

    If the metadata node dies, the node keeps working and registers again once it is back.

    Args:
        options: Options with which this node was started.
        role: Role of this node.
        address: Host and port of this node's listener.
        numbers: Function that returns the numbers for the status page. The registration's thread
            calls it at each heartbeat.
    """

    def __init__(
        self,
        options: NodeOptions,
        role: str,
        address: tuple[str, int],
        numbers: Callable[[], Mapping[str, float]],
    ) -> None:
        self._member = ClusterMember(options.metadata, options.token, options.name, tls=options.tls)
        self._role = role
        self._address = address
        self._numbers = numbers
        self._incarnation = secrets.token_hex(8)
        self._stopping = threading.Event()
        self._allocation_epoch = 0
        self._draining = False
        self._changed = threading.Condition()
        self._wake = threading.Event()
        self._begun = self._acknowledged = 0  # heartbeats; guarded by _changed
        self._thread = threading.Thread(target=self._run, name="tfhybrid-registration", daemon=True)
        self._thread.start()

    def allocation_epoch(self, at_least: int) -> int:
        """Returns the allocation epoch that this node knows; 0 before the first registration.

        Args:
            at_least: Allocation epoch to wait for, because another process knows it. The wait ends
                after 5 s, so the result may be lower.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._allocation_epoch >= at_least, _TOLD_SECONDS)
            return self._allocation_epoch

    def tell(self) -> None:
        """Reports the current numbers to the metadata node; waits up to 5 s for its response.

        Does not raise if the metadata node cannot be reached: it moves no shards then.
        """
        with self._changed:
            number = self._begun + 1
            self._wake.set()
            self._changed.wait_for(lambda: self._acknowledged >= number, _TOLD_SECONDS)

    @property
    def draining(self) -> bool:
        """True if the node must not start another job."""
        return self._draining

    def stop(self) -> None:
        """Closes the connection and ends the registration's thread.

        The metadata node then marks this node as lost.
        """
        self._stopping.set()
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        failed = False
        while not self._stopping.is_set():
            try:
                self._stay_known()
                failed = False
            except TfhybridError as error:
                if not failed and not self._stopping.is_set():
                    _log.warning(
                        "%s: %s. The node keeps running and retries", self._member.name, error
                    )
                failed = True
                self._stopping.wait(_BEAT_SECONDS)

    def _hear(self, standing: NodeStanding) -> None:
        with self._changed:
            self._allocation_epoch, self._draining = standing
            self._changed.notify_all()

    def _beat(self, caller: Caller) -> None:
        with self._changed:
            self._begun += 1
            number = self._begun
        self._hear(caller.call(NodeConnection.heartbeat, dict(self._numbers())))
        with self._changed:
            self._acknowledged = number
            self._changed.notify_all()

    def _stay_known(self) -> None:
        caller = self._member.call_metadata()
        try:
            self._hear(
                caller.call(
                    NodeConnection.register,
                    self._member.name,
                    self._role,
                    self._address,
                    self._incarnation,
                )
            )
            while not self._stopping.is_set():
                self._beat(caller)
                self._wake.wait(_BEAT_SECONDS)
                self._wake.clear()
        finally:
            caller.close()
