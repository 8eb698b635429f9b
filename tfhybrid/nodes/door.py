"""The door of a process that others of its job connect to: they show a token, strangers are sent away.

The token is brought to the processes of the job alone, by Horovod.
"""

from __future__ import annotations

import contextlib
import hmac
import selectors
import socket
from collections.abc import Iterator

from tfhybrid.errors import StoreError

CONNECT_SECONDS = 30
_PROBE_SECONDS = 1
_DIGITS = 8
_MOST_STRANGERS = 500  # whose silence is borne at a time


def listen(address: str) -> socket.socket:
    """Returns a listening socket on a free port of that address."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, 0), family=family)


def dial(
    address: tuple[str, int], token: str, number: int, who: str, silence: float
) -> socket.socket:
    """Connects to a door.

    Args:
        address: Where it listens.
        token: Of the job.
        number: What to say of oneself; 0 to 99,999,999.
        who: The other process, for messages.
        silence: Seconds after which a silent host counts as gone.

    Raises:
        StoreError: It cannot be reached.
    """
    try:
        link = socket.create_connection(address, timeout=CONNECT_SECONDS)
        link.sendall(f"{token}{number:0{_DIGITS}}".encode())
    except OSError as error:
        raise StoreError(
            f"Cannot connect to {who} at {address[0]} port {address[1]} ({error}). Does a "
            "firewall close the ports between the hosts?"
        ) from error
    return probed(link, silence)


class Door:
    """Where processes of a job show their token and say a number, such as their rank.

    All at once: who says nothing keeps nobody waiting.

    Args:
        listener: Of this process.
        token: Of the job.
    """

    def __init__(self, listener: socket.socket, token: str) -> None:
        self._token = token.encode()
        self._said: dict[socket.socket, bytes] = {}  # by those who have not said it all
        self._selector = selectors.DefaultSelector()
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)
        self._listener = listener

    def arrivals(self, seconds: float) -> Iterator[tuple[int, socket.socket]]:
        """Waits for something to happen, and yields who has shown the token: its number and socket."""
        for key, _ in self._selector.select(seconds):
            if key.fileobj is self._listener:
                self._open()
            elif isinstance(key.fileobj, socket.socket):
                number = self._hear(key.fileobj)
                if number is not None:
                    yield number, key.fileobj

    def close(self) -> None:
        """Turns away who has not shown it."""
        for link in list(self._said):
            self._dismiss(link)
            link.close()
        self._selector.close()

    def _open(self) -> None:
        with contextlib.suppress(OSError):  # it has gone again
            link, _ = self._listener.accept()
            link.setblocking(False)
            self._said[link] = b""
            self._selector.register(link, selectors.EVENT_READ)
        if len(self._said) > _MOST_STRANGERS:  # who belongs here says all at once, so not the last to come
            first = next(iter(self._said))
            self._dismiss(first)
            first.close()

    def _hear(self, link: socket.socket) -> int | None:
        """Returns the number, once a link has said it."""
        if link not in self._said:
            return None  # dismissed meanwhile
        wanted = len(self._token) + _DIGITS
        try:
            data = link.recv(wanted - len(self._said[link]))
        except BlockingIOError:
            return None
        except OSError:
            data = b""
        self._said[link] += data
        said = self._said[link]
        if data and len(said) < wanted:
            return None
        self._dismiss(link)
        shown, number = said[: len(self._token)], said[len(self._token) :]
        if hmac.compare_digest(shown, self._token) and number.isdigit():
            return int(number)
        link.close()
        return None

    def _dismiss(self, link: socket.socket) -> None:
        del self._said[link]
        self._selector.unregister(link)


def probed(link: socket.socket, silence: float) -> socket.socket:
    """Has the kernel probe an idle connection, and break one whose other end is silent so long."""
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_SECONDS)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_SECONDS)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(silence * 1000))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return link
