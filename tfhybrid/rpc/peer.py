"""Peer: another process that listens, and how to connect to it."""

from __future__ import annotations

import dataclasses
import socket

from tfhybrid.rpc import listener
from tfhybrid.rpc.calls import Caller
from tfhybrid.rpc.handshake import Handshake
from tfhybrid.rpc.messages import LostError
from tfhybrid.rpc.tls import Tls, dialled

_CONNECT_SECONDS = 30.0
_SILENCE_SECONDS = 60.0


@dataclasses.dataclass(frozen=True)
class Peer:
    """Another process that listens.

    Args:
        name: Name of the process, for errors.
        address: Host and port of its listener.
        token: Token that it expects.
        silence: Seconds without a sign of its host after which a connection breaks. Default: 60.
        tls: TLS relay of this process. Default: `None`, no encryption.
        patience: Timeout of a connection attempt, in seconds. Default: 30.
        limit: Maximum time in seconds for which the process may be silent during a call. Default:
            `None`, no limit.
    """

    name: str
    address: tuple[str, int]
    token: str
    silence: float = _SILENCE_SECONDS
    tls: Tls | None = None
    patience: float = _CONNECT_SECONDS
    limit: float | None = None

    def connect(self, handshake: Handshake) -> socket.socket:
        """Connects to the process and sends token and handshake.

        Args:
            handshake: Purpose of the connection, and who connects.

        Returns:
            A connected socket, owned by the caller. Without TLS it has the timeout `patience`. The
            process may still refuse the handshake.

        Raises:
            LostError: The process cannot be reached.
        """
        wrap = dialled(self.tls, self.name)
        try:
            return listener.dial(
                self.address, self.token, handshake.text(), self.patience, self.silence, wrap
            )
        except OSError as error:
            raise LostError(
                f"Cannot connect to {self.name} at {self.address[0]} port {self.address[1]} "
                f"({error}). Does a firewall close the ports between the hosts?"
            ) from error

    def caller(self, handshake: Handshake) -> Caller:
        """Connects to the process for calls.

        Args:
            handshake: Purpose of the connection, and who connects.

        Returns:
            The connection, closed by the caller.

        Raises:
            LostError: The process cannot be reached.
        """
        return Caller(self.connect(handshake), self.name, self.limit)
