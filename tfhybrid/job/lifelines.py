"""Lifelines: a TCP connection of every rank with rank 0, on which the news of an end travels.

Notes travel beside news: what a rank that waits tells rank 0 (`tfhybrid/job/waits.py`). News is a
line of text, a note is a line of JSON. Nothing is sent while all is well.

A process that dies closes its connection, and a host that is silent breaks it: the kernels probe it
every second (TCP keepalive), so that neither a busy interpreter nor a stopped process counts as
silence.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
from collections.abc import Mapping

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
        self._links: dict[socket.socket, str] = {}
        self._received: dict[socket.socket, bytes] = {}
        self._unsent: dict[socket.socket, bytes] = {}
        self._notes: list[tuple[str, str]] = []
        self._told = b""
        self._selector = selectors.DefaultSelector()
        for link, peer in links.items():
            self.add(link, peer)

    def add(self, link: socket.socket, peer: str) -> None:
        """Takes one more connection, with `peer` at its other end, which hears what was told."""
        link.setblocking(False)
        self._links[link] = peer
        self._received[link] = b""
        self._unsent[link] = self._told
        self._selector.register(link, selectors.EVENT_READ, link)
        self._send()

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
        told = f"{line}\n".encode()
        if not line.startswith(_NOTE):
            self._told += told
        for link in self._links:
            self._unsent[link] += told
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
