"""The row service: connections by which the ranks of a job reach rows that other hosts own.

Each leader listens. A connection that sends the job's token is handed to the engine, whose threads
serve it from then on. Every rank that has a sharded table connects to the leaders of the other
hosts to read rows; leaders also connect for updates and for passes. The core defines the messages
(`custom_ops/core/exchange/connection.h`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import socket
import threading
from collections.abc import Sequence

from tfhybrid.core.engine import Engine
from tfhybrid.core.native import LinkPurpose
from tfhybrid.errors import StoreError, TfhybridError
from tfhybrid.rpc.handshake import Handshake, Purpose
from tfhybrid.rpc.listener import Listener
from tfhybrid.rpc.peer import Peer
from tfhybrid.rpc.tls import Tls, accepted

_log = logging.getLogger("tfhybrid.job")

_LOOK_SECONDS = 0.2


@dataclasses.dataclass(frozen=True)
class Leader:
    """Name of a rank, and the address of its listener if it leads a host.

    Args:
        address: Host and port of the listener; `None` for a rank that leads no host.
        name: Name of the rank, for logs and errors.
    """

    address: tuple[str, int] | None
    name: str


class RowService:
    """This process's part in the row service of a job on several hosts.

    Args:
        engine: Engine of this rank. It owns the connections, and ends them with its store.
        rank: Index of this rank in `engine.hosts`.
        listener_socket: Listening socket of a leader, closed by the service; `None` on other ranks.
        token: Token of the job.
        silence: Seconds after which a host that does not respond counts as gone.
        tls: TLS relay of this process, closed by `stop`. Default `None`: no encryption.
    """

    def __init__(
        self,
        engine: Engine,
        rank: int,
        listener_socket: socket.socket | None,
        token: str,
        silence: float,
        tls: Tls | None = None,
    ) -> None:
        self._engine = engine
        self._rank = rank
        self._token = token
        self._silence = silence
        self._ranks: Sequence[Leader] = ()
        self._stopping = threading.Event()
        self._connecting = threading.Lock()
        self._connected = False
        self._thread: threading.Thread | None = None
        self._tls = tls
        self._listener = (
            None
            if listener_socket is None
            else Listener(listener_socket, token, accepted(tls, silence))
        )

    def start(self, ranks: Sequence[Leader]) -> None:
        """Makes the other ranks known, and on a leader starts the thread that serves them.

        Args:
            ranks: Name and address of each rank of the job, in order.
        """
        self._ranks = ranks
        for host, leader in zip(self._engine.hosts, ranks, strict=True):
            if leader.address is not None and host != self._engine.host:
                self._engine.name_owner(host, leader.name)
        if self._listener is not None:
            self._thread = threading.Thread(
                target=self._serve, args=(self._listener,), name="tfhybrid-rows", daemon=True
            )
            self._thread.start()

    def connect(self) -> None:
        """Connects this rank to the leaders of all other hosts. Later calls do nothing.

        Thread-safe, after `start`.

        Raises:
            StoreError: A leader cannot be reached.
        """
        with self._connecting:
            if self._connected:
                return
            for host in sorted(set(self._engine.hosts) - {self._engine.host}):
                leader = self._ranks[self._engine.hosts.index(host)]
                assert leader.address is not None
                self._dial(host, leader, leader.address, LinkPurpose.READS)
                if self._listener is not None:
                    self._dial(host, leader, leader.address, LinkPurpose.UPDATES)
                    self._dial(host, leader, leader.address, LinkPurpose.PASSES)
            self._connected = True

    @property
    def is_connected(self) -> bool:
        """Whether this rank is connected to the leaders of all other hosts."""
        return self._connected

    def stop(self) -> None:
        """Closes the listener and the TLS relay to new connections.

        Open connections end with the engine.
        """
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        if self._tls is not None:
            self._tls.close()

    def abandon(self) -> None:
        """Lets go of listener and TLS relay; call it in a forked child only.

        Otherwise the child would keep them open after the parent has died.
        """
        if self._listener is not None:
            self._listener.abandon()
        if self._tls is not None:
            self._tls.abandon()

    def _dial(
        self, host: int, leader: Leader, address: tuple[str, int], purpose: LinkPurpose
    ) -> None:
        peer = Peer(leader.name, address, self._token, self._silence, self._tls)
        name = self._ranks[self._rank].name
        link = peer.connect(Handshake(Purpose[purpose.name], name, rank=self._rank))
        self._engine.connect_owner(host, purpose, link, leader.name)

    def _serve(self, listener: Listener) -> None:
        with contextlib.closing(listener):
            while not self._stopping.is_set():
                for handshake, link, _ in listener.arrivals(_LOOK_SECONDS):
                    self._let_in(handshake, link)

    def _let_in(self, text: str, link: socket.socket) -> None:
        try:
            handshake = Handshake.heard(text)
            purpose = LinkPurpose[handshake.to.name]
            host, name = self._engine.hosts[handshake.rank], self._ranks[handshake.rank].name
        except (StoreError, KeyError, IndexError) as error:
            _log.warning("Refused: %s", error)
            link.close()
            return
        try:
            self._engine.serve_owner(host, purpose, link, name)
        except TfhybridError as error:  # a rank of this host, or no store is open
            _log.warning("%s cannot be served: %s", name, error)
