"""The embedding node: a process without TensorFlow that owns rows of one job at a time.

    tfhybrid node embedding --name NAME --metadata HOST:PORT --token-file FILE ...

The node registers at the metadata node. A job's rank 0 connects and calls `begin`, which makes a
store for one shard; the store lives as long as that connection. Ranks of the job connect to read
rows, and leaders to send updates.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Mapping

from tfhybrid._deprecated import run_renamed
from tfhybrid._remote import remote
from tfhybrid.cluster.node_options import NodeOptions
from tfhybrid.cluster.registration import Registration
from tfhybrid.core import native, split_batches
from tfhybrid.core.native import LinkPurpose
from tfhybrid.data_nodes.key_links import KeyCalls
from tfhybrid.embedding_nodes.owned_store import OwnedStore, ShardOfJob
from tfhybrid.embedding_nodes.store_copy import (
    receive_batches,
    receive_store,
    send_batches,
    send_store,
)
from tfhybrid.errors import NameTakenError, StaleEpochError, StoreError, TfhybridError
from tfhybrid.monitoring.metrics import COUNTED_BY_NODES
from tfhybrid.rpc import listener
from tfhybrid.rpc.calls import answer_calls
from tfhybrid.rpc.handshake import Handshake, Purpose
from tfhybrid.rpc.messages import MessageLink
from tfhybrid.rpc.peer import Peer
from tfhybrid.rpc.remote_methods import served
from tfhybrid.rpc.server import NodeServer
from tfhybrid.settings import shm_directory

_log = logging.getLogger("tfhybrid.embedding_nodes")

_COPYING = "copy a shard"

ACCEPTED = b"+"  # the node's first byte on a connection that it serves


class EmbeddingNode:
    """Embedding node, with a store for each shard that the job has given it.

    The node listens once it is constructed, and a thread registers it; `run` serves the
    connections.

    Args:
        options: Options of the node, as on its command line.

    Attributes:
        server: Server of the connections, whose `stop` ends `run`; any thread may call it.

    Raises:
        OSError: The address or the port is not available.
    """

    def __init__(self, options: NodeOptions) -> None:
        self._name = options.name
        listener_socket = listener.listen(options.listen, options.port)
        host, port = listener_socket.getsockname()[:2]
        self._described = f"{self._name}, pid {os.getpid()} on {socket.gethostname()}"
        self._lock = threading.Lock()
        self._token, self._tls = options.token, options.tls
        self._stores: dict[int, OwnedStore] = {}  # of one job, by shard; guarded by _lock
        self._session = ""  # of that job; guarded by _lock
        self.server = NodeServer(
            listener_socket, options.token, self._visit, self._take, options.tls
        )
        self._registration = Registration(options, "embedding", (host, port), self._numbers)

    def run(self) -> None:
        """Serves until `server.stop` is called, by another thread or a signal handler.

        Call it once. When it returns or raises, the registration has ended and the stores are
        closed.

        Raises:
            StoreError: The TLS relay of this process has ended.
        """
        try:
            self.server.run()
        finally:
            self._registration.stop()
            with self._lock:
                stores, self._stores = list(self._stores.values()), {}
            for store in stores:
                store.close()

    def _numbers(self) -> Mapping[str, float]:
        with self._lock:
            stores = list(self._stores.values())
        counters = native.counters()
        counted = {name: float(counters[name]) for name in COUNTED_BY_NODES if name in counters}
        if not stores:
            return counted | {"jobs": 0.0, "shares": 0.0}
        of_shards = [store.numbers() for store in stores]
        numbers = counted | {"jobs": 1.0, "shares": float(len(stores))}
        for name in ("rows", "bytes"):
            if any(name in each for each in of_shards):
                numbers[name] = sum(each.get(name, 0.0) for each in of_shards)
        updates = [each["updates"] for each in of_shards if "updates" in each]
        return numbers | ({"updates": max(updates)} if updates else {})

    def _visit(self, handshake: Handshake, link: MessageLink) -> None:
        """Answers the calls of a job's rank 0, or of a data node, until it is gone."""
        if handshake.to == Purpose.BATCHES:
            answer_calls(link, served(KeyCalls(self._of_session(handshake).engine)))
        connection = JobConnection(self, handshake.name)
        try:
            answer_calls(link, connection.calls)
        finally:
            connection.end()

    @property
    def described(self) -> str:
        """Description of this process, for the messages of others."""
        return self._described

    def begin(self, shard: ShardOfJob, caller: str) -> OwnedStore:
        """Makes the store of a shard, which is not open yet. Thread-safe.

        Args:
            shard: Shard of a job.
            caller: Name of rank 0 of the job.

        Raises:
            StaleEpochError: This node knows another allocation epoch.
            NameTakenError: Another job uses this node, or the node has this shard already.
            StoreError: This node is draining.
        """
        epoch = self._registration.allocation_epoch(at_least=shard.epoch)
        if shard.epoch != epoch:
            raise StaleEpochError(f"The allocation is at epoch {epoch}. Received: {shard.epoch}")
        if self._registration.draining:
            raise StoreError(
                "This node is draining: it serves no further job until it is restarted"
            )
        with self._lock:
            for other in self._stores.values():
                if shard.session != self._session or shard.number in self._stores:
                    raise NameTakenError(
                        f"Job '{other.job}' uses this node. Received: job '{shard.job}'"
                    )
            store = OwnedStore(shm_directory(), self._name, self._described, shard)
            self._stores[shard.number] = store
            self._session = shard.session
            _log.info(
                "%s serves shard %d of job '%s' to %s", self._name, shard.number, store.job, caller
            )
        # The metadata node must know of the job: from now on only the job may move its shards.
        self._registration.tell()
        return store

    def end(self, store: OwnedStore, caller: str) -> None:
        """Closes the store of a shard. Thread-safe.

        Args:
            store: Store that `begin` made.
            caller: Name of rank 0 of the job.
        """
        _log.info("%s closes a shard of job '%s' for %s", self._name, store.job, caller)
        store.close()
        with self._lock:
            self._stores = {
                shard: other for shard, other in self._stores.items() if other is not store
            }

    def copy_shard(
        self, store: OwnedStore, shard: ShardOfJob, node: str, address: tuple[str, int]
    ) -> int:
        """Copies a shard's batches and store from the node that has it.

        Args:
            store: Store of the shard on this node, not open yet.
            shard: The shard.
            node: Name of the other node.
            address: Host and port of the other node.

        Returns:
            Bytes of the copied store.

        Raises:
            StoreError: The other node cannot be reached, refuses, or sent something else.
            OSError: A file of the copy cannot be written.
        """
        handshake = Handshake(Purpose.STORE, self._name, shard.session, 0, shard.number)
        link = Peer(node, address, self._token, tls=self._tls).connect(handshake)
        with contextlib.closing(MessageLink(link, node, purpose=_COPYING)) as messages:
            store.take_batches(receive_batches(messages))
            received = receive_store(messages, store.directory)
        _log.info("%s has copied shard %d from %s", self._name, shard.number, node)
        return received

    def _give(self, store: OwnedStore, handshake: Handshake, link: socket.socket) -> None:
        with contextlib.closing(MessageLink(link, handshake.name, purpose=_COPYING)) as target:
            try:
                send_batches(target, store.engine)
                send_store(target, store.directory)
            except (TfhybridError, OSError) as error:
                _log.warning("Copying a shard to %s failed: %s", handshake.name, error)

    def _of_session(self, handshake: Handshake) -> OwnedStore:
        """Returns the store of the shard that a handshake names.

        Raises:
            StoreError: This node serves another job, none, or not that shard.
        """
        with self._lock:
            store, session = self._stores.get(handshake.shard), self._session
        if store is None or handshake.session != session:
            raise StoreError(
                f"This node does not serve shard {handshake.shard} of session "
                f"'{handshake.session}' to {handshake.name}. The node's session: '{session}'"
            )
        return store

    def _take(self, handshake: Handshake, link: socket.socket) -> None:
        store = self._of_session(handshake)
        if handshake.to == Purpose.STORE:
            arguments = (store, handshake, link)
            threading.Thread(target=self._give, args=arguments, daemon=True).start()
            return
        try:
            link.setblocking(True)
            link.sendall(ACCEPTED)
            if handshake.to == Purpose.ROWS:
                split_batches.send_rows(store.engine, handshake.rank, link, handshake.name)
            elif handshake.to == Purpose.STAGED:
                store.engine.connect_owner(
                    handshake.host, LinkPurpose.UPDATES, link, handshake.name
                )
            else:
                purpose = LinkPurpose[handshake.to.name]
                store.engine.serve_owner(handshake.host, purpose, link, handshake.name)
        except TfhybridError as error:
            raise StoreError(f"{handshake.name} cannot be served: {error}") from error


class JobConnection:
    """Connection of a job's rank 0, over which it controls a shard. One thread uses it.

    Args:
        node: This node.
        caller: Name of rank 0.

    Attributes:
        calls: Function for each call that rank 0 can make, by the call's name. From `begin` on,
            the calls of the shard's store (`OwnedStore.calls`) are among them.
    """

    def __init__(self, node: EmbeddingNode, caller: str) -> None:
        self._node = node
        self._caller = caller
        self._begun: tuple[OwnedStore, ShardOfJob] | None = None
        self.calls = served(self)

    @remote
    def begin(self, shard: ShardOfJob) -> str:
        """Makes the store of a shard, which lives as long as this connection.

        Args:
            shard: The shard.

        Returns:
            Description of the node's process.

        Raises:
            StaleEpochError: The node knows another allocation epoch.
            NameTakenError: Another job uses the node, or the node has this shard already.
            StoreError: The node is draining, or the connection has a shard already.
        """
        if self._begun is not None:
            raise StoreError("A connection serves one shard. Received: a second one")
        store = self._node.begin(shard, self._caller)
        self._begun = store, shard
        self.calls.update(store.calls())
        return self._node.described

    @remote
    def describe(self) -> str:
        """Returns a description of the node's process. A node that runs answers at any time."""
        return self._node.described

    @remote
    def take_over(self, node: str, address: tuple[str, int]) -> int:
        """Copies the shard from the node that has it, before the store is opened.

        Args:
            node: Name of the other node.
            address: Host and port of the other node.

        Returns:
            Bytes of the copied store.

        Raises:
            StoreError: No shard has begun; or the other node cannot be reached, refuses, or sent
                something else.
            OSError: A file of the copy cannot be written.
        """
        if self._begun is None:
            raise StoreError("A shard must begin first. Received: take_over before begin")
        return self._node.copy_shard(*self._begun, node, address)

    def end(self) -> None:
        """Closes the store, because the connection has ended."""
        if self._begun is not None:
            self._node.end(self._begun[0], self._caller)


def main(options: NodeOptions) -> None:
    """Runs an embedding node until SIGTERM or SIGINT. Only the main thread may call it.

    Args:
        options: Options of the node, as on its command line.

    Raises:
        OSError: The address or the port to listen on is not available.
        StoreError: The TLS relay of this process has ended.
    """
    node = EmbeddingNode(options)
    node.server.stop_at_signals()
    with contextlib.suppress(KeyboardInterrupt):
        node.run()


if __name__ == "__main__":
    run_renamed("python -m tfhybrid.embedding_nodes.embedding_node", "tfhybrid node embedding")
