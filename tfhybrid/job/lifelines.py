"""Lifelines: a TCP connection of every rank with rank 0, on which the news of an end travels.

Notes travel beside news: what a rank that waits tells rank 0 (`tfhybrid/job/waits.py`). News is a
line of text, a note is a line of JSON. Nothing is sent while all is well.

A process that dies closes its connection, and a host that is silent breaks it: the kernels probe it
every second (TCP keepalive), so that neither a busy interpreter nor a stopped process counts as
silence. Who connects shows a token that Horovod has brought to the ranks of the job alone.
"""

from __future__ import annotations

import contextlib
import hmac
import selectors
import socket
import time
from collections.abc import Iterable, Iterator, Mapping

from tfhybrid.errors import StoreError

LEFT = "left"  # news: a rank has left the job in order

_CONNECT_SECONDS = 30
_PROBE_SECONDS = 1
_RANK_DIGITS = 8
_FLUSH_SECONDS = 1.0
_NOTE = "{"  # what a line of JSON begins with, and no sentence
_MOST_STRANGERS = 500  # whose silence is borne at a time


class Lifelines:
    """This process's connections: rank 0 has one with every other rank, the others have its.

    Not thread-safe.

    Args:
        links: Connected sockets, and who is at their other end; closed by `close`.
        silence: The limit that the links were made with, for messages.
    """

    def __init__(self, links: Mapping[socket.socket, str], silence: float) -> None:
        self._silence = silence
        self._links = dict(links)
        self._received = dict.fromkeys(links, b"")
        self._unsent = dict.fromkeys(links, b"")
        self._notes: list[tuple[str, str]] = []
        self._selector = selectors.DefaultSelector()
        for link in links:
            link.setblocking(False)
            self._selector.register(link, selectors.EVENT_READ, link)

    def news(self, seconds: float) -> list[str]:
        """Waits for news, and returns them: each `LEFT`, or a sentence that says who is gone."""
        self._send()
        found = []
        for key, _ in self._selector.select(seconds):
            if news := self._read(key.data):
                found.append(news)
                self._selector.unregister(key.data)  # who has left closes it
        return found

    def notes(self) -> list[tuple[str, str]]:
        """Returns the notes that came with the news: who sent each, and the note."""
        notes, self._notes = self._notes, []
        return notes

    def tell(self, line: str) -> None:
        """Passes news or a note on to all that are connected; never waits."""
        for link in self._links:
            self._unsent[link] += f"{line}\n".encode()
        self._send()

    def close(self) -> None:
        """Closes this process's ends of the connections."""
        self._selector.close()
        for link in self._links:
            with contextlib.suppress(OSError):
                if self._unsent[link]:  # behind a long note, and it may be what says LEFT
                    link.settimeout(_FLUSH_SECONDS)
                    link.sendall(self._unsent[link])
            link.close()

    def _send(self) -> None:
        for link, unsent in self._unsent.items():
            if unsent:
                try:
                    self._unsent[link] = unsent[link.send(unsent) :]
                except BlockingIOError:
                    pass  # with the next look
                except OSError:  # it is gone itself
                    self._unsent[link] = b""

    def _read(self, link: socket.socket) -> str | None:
        peer = self._links[link]
        try:
            data = link.recv(65536)
        except BlockingIOError:
            return None
        except ConnectionError:
            data = b""
        except OSError:
            return (
                f"{peer} has not answered for {self._silence:g} s (TFHYBRID_SILENCE_SECONDS): its "
                "host is down, or the network to it"
            )
        if not data:
            return f"{peer} has died"
        self._received[link] += data
        while b"\n" in self._received[link]:
            line, _, self._received[link] = self._received[link].partition(b"\n")
            text = line.decode(errors="replace")
            if not text.startswith(_NOTE):
                return text
            self._notes.append((peer, text))
        return None


def listen(address: str) -> socket.socket:
    """Returns rank 0's listening socket, on a free port."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, 0), family=family)


def accept(
    listener: socket.socket, token: str, ranks: Iterable[int], silence: float
) -> dict[int, socket.socket]:
    """Waits until those ranks have connected; strangers are turned away.

    Raises:
        StoreError: Some have not come.
    """
    links: dict[int, socket.socket] = {}
    missing = set(ranks)
    deadline = time.monotonic() + _CONNECT_SECONDS
    with contextlib.closing(_Door(listener, token)) as door:
        while missing:
            seconds = deadline - time.monotonic()
            if seconds <= 0:
                raise StoreError(
                    f"No connection from rank(s) {', '.join(map(str, sorted(missing)))} within "
                    f"{_CONNECT_SECONDS} s. Does a firewall close the ports between the hosts?"
                )
            for rank, link in door.arrivals(seconds):
                if rank in missing:
                    links[rank] = _probed(link, silence)
                    missing.remove(rank)
                else:
                    link.close()
    return links


def dial(address: tuple[str, int], token: str, rank: int, silence: float) -> socket.socket:
    """Connects this rank to rank 0.

    Raises:
        StoreError: It cannot be reached.
    """
    try:
        link = socket.create_connection(address, timeout=_CONNECT_SECONDS)
        link.sendall(f"{token}{rank:0{_RANK_DIGITS}}".encode())
    except OSError as error:
        raise StoreError(
            f"Cannot connect to rank 0 at {address[0]} port {address[1]} ({error}). Does a "
            "firewall close the ports between the hosts?"
        ) from error
    return _probed(link, silence)


class _Door:
    """Where ranks show their token. All at once: who says nothing keeps nobody waiting.

    Args:
        listener: Of rank 0.
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
        """Waits for something to happen, and yields who has shown the token."""
        for key, _ in self._selector.select(seconds):
            if key.fileobj is self._listener:
                self._open()
            elif isinstance(key.fileobj, socket.socket):
                rank = self._hear(key.fileobj)
                if rank is not None:
                    yield rank, key.fileobj

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
        if len(self._said) > _MOST_STRANGERS:  # a rank says all at once, so not the last to come
            first = next(iter(self._said))
            self._dismiss(first)
            first.close()

    def _hear(self, link: socket.socket) -> int | None:
        """Returns the rank, once a link has said it."""
        if link not in self._said:
            return None  # dismissed meanwhile
        wanted = len(self._token) + _RANK_DIGITS
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
        shown, rank = said[: len(self._token)], said[len(self._token) :]
        if hmac.compare_digest(shown, self._token) and rank.isdigit():
            return int(rank)
        link.close()
        return None

    def _dismiss(self, link: socket.socket) -> None:
        del self._said[link]
        self._selector.unregister(link)


def _probed(link: socket.socket, silence: float) -> socket.socket:
    """Has the kernel probe an idle connection, and break one whose other end is silent so long."""
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_SECONDS)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_SECONDS)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(silence * 1000))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return link
