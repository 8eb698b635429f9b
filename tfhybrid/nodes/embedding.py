"""The embedding node: owns rows of one job at a time, in a process without TensorFlow.

    python -m tfhybrid.nodes.embedding --metadata HOST:PORT --token-file FILE --name NAME

It tells the metadata node where it listens. A job's rank 0 connects and says `begin`; its store
lives as long as that connection. Ranks of the job connect for rows, leaders for updates.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Mapping

from tfhybrid.config import shm_directory
from tfhybrid.core import batches
from tfhybrid.core.native import LinkPurpose
from tfhybrid.errors import NameTakenError, StoreError, TfhybridError
from tfhybrid.nodes import door
from tfhybrid.nodes.calls import Answer, answer_calls
from tfhybrid.nodes.greetings import Greeting, Link
from tfhybrid.nodes.key_links import key_calls
from tfhybrid.nodes.messages import MessageLink
from tfhybrid.nodes.node_options import NodeOptions
from tfhybrid.nodes.owned_store import Arguments, Found, OwnedStore
from tfhybrid.nodes.registration import Registration
from tfhybrid.nodes.server import NodeServer

_log = logging.getLogger("tfhybrid.nodes")

ACCEPTED = b"+"  # says that a connection for rows has reached the store


class EmbeddingNode:
    """The state of an embedding node.

    Args:
        options: With which it was started.
    """

    def __init__(self, options: NodeOptions) -> None:
        self._name = options.name
        listener = door.listen(options.listen, options.port)
        host, port = listener.getsockname()[:2]
        self._described = f"{self._name}, pid {os.getpid()} on {socket.gethostname()}"
        self._lock = threading.Lock()
        self._store: OwnedStore | None = None  # guarded by _lock
        self._session = ""  # likewise
        self.server = NodeServer(listener, options.token, self._visit, self._take)
        self._registration = Registration(
            options.metadata, options.token, self._name, "embedding", (host, port), self._numbers
        )

    def run(self) -> None:
        """Serves until it is stopped."""
        try:
            self.server.run()
        finally:
            self._registration.stop()
            with self._lock:
                store, self._store = self._store, None
            if store is not None:
                store.close()

    def _numbers(self) -> Mapping[str, float]:
        with self._lock:
            store = self._store
        if store is None:
            return {"jobs": 0.0}
        return {"jobs": 1.0} | store.numbers()

    def _visit(self, greeting: Greeting, link: MessageLink) -> None:
        """Serves the rank 0 of a job, or a data node, until it is gone."""
        if greeting.to == Link.BATCHES:
            answer_calls(link, key_calls(self._of_session(greeting).engine))
        calls: dict[str, OwnedStore] = {}

        def begin(its: Arguments, _: Found) -> Answer:
            store = self._begin(greeting, its)
            calls["store"] = store
            served.update(store.calls())
            return self._described, {}

        served = {"begin": begin}
        try:
            answer_calls(link, served)
        finally:
            if "store" in calls:
                self._end(calls["store"], greeting)

    def _begin(self, greeting: Greeting, its: Arguments) -> OwnedStore:
        epoch = self._registration.epoch(at_least=int(its["epoch"]))
        if its["epoch"] != epoch:
            raise StoreError(f"The allocation is of epoch {epoch}. Received: {its['epoch']}")
        if self._registration.draining:
            raise StoreError("This node is draining: it begins no job until it is started again")
        with self._lock:
            if self._store is not None:
                raise NameTakenError(
                    f"Job '{self._store.job}' uses this node. Received: job '{its['job']}'"
                )
            self._store = OwnedStore(shm_directory(), self._name, self._described, its)
            self._session = str(its["session"])
            _log.info("%s begins job '%s' for %s", self._name, self._store.job, greeting.name)
            return self._store

    def _end(self, store: OwnedStore, greeting: Greeting) -> None:
        _log.info("%s ends job '%s': %s is gone", self._name, store.job, greeting.name)
        store.close()
        with self._lock:
            if self._store is store:
                self._store, self._session = None, ""

    def _of_session(self, greeting: Greeting) -> OwnedStore:
        """Returns the store that a process of the job wants.

        Raises:
            StoreError: This node works for another job, or for none.
        """
        with self._lock:
            store, session = self._store, self._session
        if store is None or greeting.session != session:
            raise StoreError(
                f"{greeting.name} belongs to session '{greeting.session}'. This node is in "
                f"'{session}'"
            )
        return store

    def _take(self, greeting: Greeting, link: socket.socket) -> None:
        store = self._of_session(greeting)
        try:
            link.setblocking(True)
            link.sendall(ACCEPTED)
            if greeting.to == Link.ROWS:
                batches.send_rows(store.engine, greeting.rank, link, greeting.name)
            elif greeting.to == Link.STAGED:
                store.engine.connect_owner(greeting.host, LinkPurpose.UPDATES, link, greeting.name)
            else:
                purpose = LinkPurpose[greeting.to.name]
                store.engine.serve_owner(greeting.host, purpose, link, greeting.name)
        except TfhybridError as error:
            raise StoreError(f"{greeting.name} cannot be served: {error}") from error


def main() -> None:
    """Runs an embedding node until SIGTERM."""
    options = NodeOptions.from_command_line(__doc__ or "")
    node = EmbeddingNode(options)
    node.server.stop_at_signals()
    with contextlib.suppress(KeyboardInterrupt):
        node.run()


if __name__ == "__main__":
    main()
