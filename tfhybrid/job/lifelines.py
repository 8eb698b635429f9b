"""Lifelines: a TCP connection of every rank with rank 0, on which the news of an end travels.

Notes travel beside news: what a rank that waits tells rank 0 (`tfhybrid/job/waits.py`). News is a
line of text, a note is a line of JSON. Nothing is sent while all is well.

A process that dies closes its connection, and a host that is silent breaks it: the kernels probe it
every second (TCP keepalive), so that neither a busy interpreter nor a stopped process counts as
silence. Who connects shows a token that Horovod has brought to the ranks of the job alone.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections.abc import Iterable, Iterator, Mapping

from tfhybrid.errors import StoreError
from tfhybrid.nodes import door
from tfhybrid.nodes.door import CONNECT_SECONDS, Door

LEFT = "left"  # news: a rank has left the job in order

_FLUSH_SECONDS = 1.0
_NOTE = "{"  # what a line of JSON begins with, and no sentence


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


def accept(
    listener: socket.socket, token: str, ranks: Iterable[int], silence: float
) -> dict[int, socket.socket]:
    """Waits until those ranks have connected; strangers are turned away.

    Raises:
        StoreError: Some have not come.
    """
    links: dict[int, socket.socket] = {}
    missing = set(ranks)
    deadline = time.monotonic() + CONNECT_SECONDS
    with contextlib.closing(Door(listener, token)) as front:
        while missing:
            seconds = deadline - time.monotonic()
            if seconds <= 0:
                raise StoreError(
                    f"No connection from rank(s) {', '.join(map(str, sorted(missing)))} within "
                    f"{CONNECT_SECONDS} s. Does a firewall close the ports between the hosts?"
                )
            for rank, link in front.arrivals(seconds):
                if rank in missing:
                    links[rank] = door.probed(link, silence)
                    missing.remove(rank)
                else:
                    link.close()
    return links


def dial(address: tuple[str, int], token: str, rank: int, silence: float) -> socket.socket:
    """Connects this rank to rank 0.

    Raises:
        StoreError: It cannot be reached.
    """
    return door.dial(address, token, rank, "rank 0", silence)
