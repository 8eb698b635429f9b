"""Listener of a process: admits clients that send the job's token and rejects all others."""

from __future__ import annotations

import errno
import hmac
import logging
import selectors
import socket
import time
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from tfhybrid.rpc.tls_relay import BoundedLog, bounded

_log = logging.getLogger("tfhybrid.rpc")

Wrap = Callable[[socket.socket], socket.socket]

_HANDSHAKE_BYTES = 1024  # a handshake with a host name in any encoding fits
_MAX_STRANGERS = 500  # maximum number of clients that have not sent token and handshake
_PROBE_SECONDS = 1
_FULL_SECONDS = 0.1


def listen(address: str, port: int = 0) -> socket.socket:
    """Opens a listening socket; the caller closes it.

    Args:
        address: IPv4 or IPv6 address, or host name, of this machine.
        port: Port number. Default: 0, a free port.

    Returns:
        The socket, which accepts connections.

    Raises:
        OSError: The address or the port is not available.
        OverflowError: The port is not between 0 and 65535.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family)


def dial(
    address: tuple[str, int],
    token: str,
    handshake: str,
    seconds: float,
    silence: float,
    wrap: Wrap = lambda link: link,
) -> socket.socket:
    """Connects to the listener of another process and sends token and handshake.

    The caller closes the returned socket. The listener sends no reply: it closes the connection if
    the token is wrong.

    Args:
        address: Host and port of the listener.
        token: Token that the listener expects.
        handshake: Handshake, sent behind the token; maximum 1,024 bytes.
        seconds: Timeout of the connection attempt and of sending, in seconds. The returned socket
            keeps it, unless `wrap` returns another one.
        silence: Seconds without any sign of the other host after which the connection breaks.
        wrap: Function that returns the socket to use for the connected one, e.g. through TLS.
            Default: the same.

    Raises:
        OSError: The listener cannot be reached in time, or `wrap` failed.
    """
    link = wrap(probed(socket.create_connection(address, timeout=seconds), silence))
    try:
        link.sendall(token.encode() + handshake.encode().ljust(_HANDSHAKE_BYTES))
    except OSError:
        link.close()
        raise
    return link


class Arrival(NamedTuple):
    """Client that a listener has admitted.

    Attributes:
        handshake: Text of its handshake.
        link: Its socket.
        token: Token that it has sent.
    """

    handshake: str
    link: socket.socket
    token: str


class Listener:
    """Accepts connections and admits clients that send the job's token, or one of several.

    A slow client delays no other. The oldest is closed above 500 waiting clients, or fewer if they
    take a quarter of this process's descriptors. Not thread-safe.

    Args:
        listener: Listening socket; closed by `close`.
        tokens: Token of the job, or several.
        wrap: Function that returns the socket to use for an accepted one, e.g. through TLS. It must
            not wait, as that delays all clients. Default: the same.
    """

    def __init__(
        self,
        listener: socket.socket,
        tokens: str | Collection[str],
        wrap: Wrap = lambda link: link,
    ) -> None:
        each_token = [tokens] if isinstance(tokens, str) else tokens
        self._tokens = [token.encode() for token in each_token]
        # Bytes of token and handshake. A client may send more at once, which is not ours to read.
        self._sizes = sorted({len(token) + _HANDSHAKE_BYTES for token in self._tokens})
        self._wrap = wrap
        # Clients whose token and handshake are incomplete, oldest first.
        self._received: dict[socket.socket, bytes] = {}
        self._peers: dict[socket.socket, str] = {}  # addresses of those clients, for logs
        # Without free descriptors the newest client would be lost: it is accepted before `wrap`.
        self._max_strangers = bounded(_MAX_STRANGERS, 1)
        self._refusals = BoundedLog(_log)
        self._selector = selectors.DefaultSelector()
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)
        self._socket = listener

    def arrivals(self, seconds: float) -> Iterator[Arrival]:
        """Waits for clients, and yields those that have sent a token and their handshake.

        Waits once, until a client connects or sends something, and may then yield nothing: call it
        in a loop. A client without the token is closed, and logged if it sent anything.

        Args:
            seconds: Maximum time to wait, in seconds; 0 does not wait.

        Yields:
            A client, whose socket is nonblocking. The caller closes it.
        """
        for key, _ in self._selector.select(seconds):
            if key.fileobj is self._socket:
                self._open()
            elif isinstance(key.fileobj, socket.socket):
                arrival = self._hear(key.fileobj)
                if arrival is not None:
                    yield arrival

    def close(self) -> None:
        """Stops listening and closes all clients that are not admitted yet."""
        for link in list(self._received):
            self._dismiss(link)
            link.close()
        self._selector.close()
        self._socket.close()

    def abandon(self) -> None:
        """Closes the sockets in a forked child, which would keep them open after its parent."""
        for link in (*self._received, self._socket):
            link.close()

    def _open(self) -> None:
        full = False
        try:
            link, address = self._socket.accept()
            link = self._wrap(link)
            link.setblocking(False)
            self._received[link], self._peers[link] = b"", f"{address[0]} port {address[1]}"
            self._selector.register(link, selectors.EVENT_READ)
        except OSError as error:  # the client has already gone, or there are no descriptors
            full = error.errno in (errno.EMFILE, errno.ENFILE)
        if full and not self._received:
            time.sleep(_FULL_SECONDS)  # the selector would report the client again at once
        elif full or len(self._received) > self._max_strangers:
            # Clients of the job send everything at once, so the oldest is a stranger.
            first = next(iter(self._received))
            self._dismiss(first)
            first.close()

    def _hear(self, link: socket.socket) -> Arrival | None:
        """Reads from a client; returns it once its handshake is complete and a token right."""
        if link not in self._received:
            return None  # closed since the selector reported it
        size = next(each for each in self._sizes if each > len(self._received[link]))
        try:
            data = link.recv(size - len(self._received[link]))
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        self._received[link] += data
        received, peer = self._received[link], self._peers[link]
        token = self._token_of(received)
        if data and token is None and len(received) < self._sizes[-1]:
            return None
        self._dismiss(link)
        why = "it does not show the token"
        if token is not None:
            try:
                handshake = received[len(token) :].decode().rstrip()
                return Arrival(handshake, link, token.decode())
            except UnicodeDecodeError:
                why = "its handshake is not UTF-8 text"
        if received:  # a client that sends nothing may only check whether the port is open
            self._refusals.warn("A connection from %s is closed: %s", peer, why)
        link.close()
        return None

    def _token_of(self, received: bytes) -> bytes | None:
        """Returns the token that a client has sent before its whole handshake; `None` if none."""
        for token in self._tokens:
            whole = len(received) == len(token) + _HANDSHAKE_BYTES
            if whole and hmac.compare_digest(received[: len(token)], token):
                return token
        return None

    def _dismiss(self, link: socket.socket) -> None:
        del self._received[link], self._peers[link]
        self._selector.unregister(link)


def probed(link: socket.socket, silence: float) -> socket.socket:
    """Enables keepalive probes, so that the kernel breaks a connection to a silent host.

    Args:
        link: Connected TCP socket.
        silence: Seconds without any sign of the other host after which the connection breaks.

    Returns:
        The same socket.

    Raises:
        OSError: The socket is closed.
    """
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_SECONDS)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_SECONDS)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(silence * 1000))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return link
