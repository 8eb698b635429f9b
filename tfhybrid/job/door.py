"""The door of rank 0: where ranks come in who show a token, and all others are turned away."""

from __future__ import annotations

import contextlib
import dataclasses
import hmac
import json
import selectors
import socket
from collections.abc import Iterator

_GREETING_BYTES = 1024  # enough for a host's name in any encoding
_MOST_STRANGERS = 500  # whose silence is borne at a time
_PROBE_SECONDS = 1


@dataclasses.dataclass(frozen=True)
class Member:
    """A rank, as it introduces itself to another one.

    Args:
        rank: Its number.
        pid: Its process.
        host: Its host.
        neighbours: The first and the last rank of its host.
        secret: What it alone knows. Once Horovod has brought all together, they compare it.
    """

    rank: int
    pid: int
    host: str
    neighbours: tuple[int, int]
    secret: str

    def __str__(self) -> str:
        return f"rank {self.rank} (pid {self.pid} on {self.host})"

    def to_json(self) -> str:
        """Returns it as one line."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Member:
        """Returns what `to_json` has written.

        Raises:
            ValueError: Something else has.
        """
        try:
            told = json.loads(text)
            first, last = map(int, told["neighbours"])
            return cls(
                int(told["rank"]),
                int(told["pid"]),
                str(told["host"]),
                (first, last),
                str(told["secret"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"A rank introduces itself in JSON. Received: {text!r}") from error


def listen(address: str) -> socket.socket:
    """Returns rank 0's listening socket, on a free port."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, 0), family=family)


def dial(
    address: tuple[str, int], token: str, member: Member, seconds: float, silence: float
) -> socket.socket:
    """Connects this rank to rank 0.

    Args:
        address: Where rank 0 listens.
        token: What it wants to be shown.
        member: This rank.
        seconds: How long it may take.
        silence: After how many seconds without an answer the connection breaks.

    Raises:
        OSError: It cannot be reached.
    """
    link = socket.create_connection(address, timeout=seconds)
    try:
        link.sendall(token.encode() + member.to_json().encode().ljust(_GREETING_BYTES))
    except OSError:
        link.close()
        raise
    return probed(link, silence)


class Door:
    """Where ranks show their token. All at once: who says nothing keeps nobody waiting.

    Args:
        listener: Of rank 0; closed by `close`.
        token: Of the job.
    """

    def __init__(self, listener: socket.socket, token: str) -> None:
        self._token = token.encode()
        self._said: dict[socket.socket, bytes] = {}  # by those who have not said it all
        self._selector = selectors.DefaultSelector()
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)
        self._listener = listener

    def arrivals(self, seconds: float) -> Iterator[tuple[Member, socket.socket]]:
        """Waits for something to happen, and yields who has shown the token."""
        for key, _ in self._selector.select(seconds):
            if key.fileobj is self._listener:
                self._open()
            elif isinstance(key.fileobj, socket.socket):
                member = self._hear(key.fileobj)
                if member is not None:
                    yield member, key.fileobj

    def close(self) -> None:
        """Turns away who has not shown it, and lets nobody in any more."""
        for link in list(self._said):
            self._dismiss(link)
            link.close()
        self._selector.close()
        self._listener.close()

    def _open(self) -> None:
        with contextlib.suppress(OSError):  # it has gone again
            link, _ = self._listener.accept()
            link.setblocking(False)
            self._said[link] = b""
            self._selector.register(link, selectors.EVENT_READ)
        if len(self._said) > _MOST_STRANGERS:  # a rank says all at once, so not the last to come
            first = next(iter(self._said))
            self._dismiss(first)
            first.close()

    def _hear(self, link: socket.socket) -> Member | None:
        """Returns the rank, once a link has said it."""
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
        said = self._said[link]
        if data and len(said) < wanted:
            return None
        self._dismiss(link)
        shown, greeting = said[: len(self._token)], said[len(self._token) :]
        if hmac.compare_digest(shown, self._token):
            with contextlib.suppress(ValueError):
                return Member.from_json(greeting.decode())
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
