"""The door of a process: others of its job who show a token come in, strangers are turned away."""

from __future__ import annotations

import contextlib
import hmac
import logging
import selectors
import socket
from collections.abc import Callable, Iterator

_log = logging.getLogger("tfhybrid.nodes")

Wrap = Callable[[socket.socket], socket.socket]

_GREETING_BYTES = 1024  # enough for a host's name in any encoding
_MOST_STRANGERS = 500  # whose silence is borne at a time
_PROBE_SECONDS = 1


def listen(address: str, port: int = 0) -> socket.socket:
    """Returns a listening socket, on that port of the address or on a free one."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family)


def dial(
    address: tuple[str, int],
    token: str,
    greeting: str,
    seconds: float,
    silence: float,
    wrap: Wrap = lambda link: link,
) -> socket.socket:
    """Connects this process to the door of another one.

    Args:
        address: Where it listens.
        token: What it wants to be shown.
        greeting: What it is told behind that; 1,024 bytes at most.
        seconds: How long it may take.
        silence: After how many seconds without an answer the connection breaks.
        wrap: What puts a socket in the connection's place before anything is said.

    Raises:
        OSError: It cannot be reached.
    """
    link = wrap(probed(socket.create_connection(address, timeout=seconds), silence))
    try:
        link.sendall(token.encode() + greeting.encode().ljust(_GREETING_BYTES))
    except OSError:
        link.close()
        raise
    return link


class Door:
    """Where others show their token. All at once: who says nothing keeps nobody waiting.

    Args:
        listener: Of this process; closed by `close`.
        token: Of the job.
        wrap: What puts a socket in the place of a connection that was accepted.
    """

    def __init__(
        self,
        listener: socket.socket,
        token: str,
        wrap: Wrap = lambda link: link,
    ) -> None:
        self._token = token.encode()
        self._wrap = wrap
        self._said: dict[socket.socket, bytes] = {}  # by those who have not said it all
        self._peers: dict[socket.socket, str] = {}  # where those come from
        self._selector = selectors.DefaultSelector()
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)
        self._listener = listener

    def arrivals(self, seconds: float) -> Iterator[tuple[str, socket.socket]]:
        """Waits for something to happen, and yields who has shown the token: greeting, socket."""
        for key, _ in self._selector.select(seconds):
            if key.fileobj is self._listener:
                self._open()
            elif isinstance(key.fileobj, socket.socket):
                greeting = self._hear(key.fileobj)
                if greeting is not None:
                    yield greeting, key.fileobj

    def close(self) -> None:
        """Turns away who has not shown it, and lets nobody in any more."""
        for link in list(self._said):
            self._dismiss(link)
            link.close()
        self._selector.close()
        self._listener.close()

    def abandon(self) -> None:
        """Leaves the door to the parent, in a forked child, which would keep it open."""
        for link in (*self._said, self._listener):
            link.close()

    def _open(self) -> None:
        with contextlib.suppress(OSError):  # it has gone again
            link, address = self._listener.accept()
            link = self._wrap(link)
            link.setblocking(False)
            self._said[link], self._peers[link] = b"", f"{address[0]} port {address[1]}"
            self._selector.register(link, selectors.EVENT_READ)
        if (
            len(self._said) > _MOST_STRANGERS
        ):  # who belongs here says all at once, so not the last to come
            first = next(iter(self._said))
            self._dismiss(first)
            first.close()

    def _hear(self, link: socket.socket) -> str | None:
        """Returns the greeting, once a link has said it all."""
        if link not in self._said:
            return None  # dismissed meanwhile
        wanted = len(self._token) + _GREETING_BYTES
        try:
            data = link.recv(wanted - len(self._said[link]))
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        self._said[link] += data
        said, peer = self._said[link], self._peers[link]
        if data and len(said) < wanted:
            return None
        self._dismiss(link)
        shown, greeting = said[: len(self._token)], said[len(self._token) :]
        why = "it does not show the token"
        if hmac.compare_digest(shown, self._token):
            try:
                return greeting.decode().rstrip()
            except UnicodeDecodeError:
                why = "its greeting is no text"
        if said:  # else somebody looked whether anything listens here
            _log.warning("A connection from %s is closed: %s", peer, why)
        link.close()
        return None

    def _dismiss(self, link: socket.socket) -> None:
        del self._said[link], self._peers[link]
        self._selector.unregister(link)


def probed(link: socket.socket, silence: float) -> socket.socket:
    """Has the kernel probe an idle connection, and break one whose other end is silent so long."""
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_SECONDS)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_SECONDS)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(silence * 1000))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return link
