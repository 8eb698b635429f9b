"""Lifelines: a TCP connection of every rank with rank 0, which carries the news that a rank ended.

Lifelines also carry notes: what a waiting rank reports to rank 0 (`tfhybrid/job/waits.py`). News is
a line of text, a note is a line of JSON. Nothing is sent while all is well.

A process that dies closes its connection. A silent host breaks it: the kernels probe each
connection every second (TCP keepalive), so neither a busy interpreter nor a stopped process counts
as silent.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
from collections.abc import Mapping

LEFT = "left"  # news: a rank has left the job normally

_FLUSH_SECONDS = 1.0
_NOTE = "{"  # begins a line of JSON, and no sentence


class Lifelines:
    """This process's connections: of rank 0 with every other rank, or of another rank with rank 0.

    Not thread-safe.

    Args:
        links: Connected sockets and their peers; closed by `close`.
        silence: The timeout of the links, for messages.
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
        """Adds a connection with `peer`, which is sent the earlier news."""
        link.setblocking(False)
        self._links[link] = peer
        self._received[link] = b""
        self._unsent[link] = self._told
        self._selector.register(link, selectors.EVENT_READ, link)
        self._send()

    def news(self, seconds: float) -> list[str]:
        """Waits for news and returns it: `LEFT`, or a sentence that names the rank that ended."""
        self._send()
        found = []
        for key, _ in self._selector.select(seconds):
            if news := self._read(key.data):
                found.append(news)
                self._selector.unregister(key.data)  # a rank that left closes it
        return found

    def notes(self) -> list[tuple[str, str]]:
        """Returns the notes that came with the news, each with its sender."""
        notes, self._notes = self._notes, []
        return notes

    def tell(self, line: str) -> None:
        """Sends news or a note to all connected peers; never waits."""
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
                if self._unsent[link]:  # waits behind a long note, and may be LEFT
                    link.settimeout(_FLUSH_SECONDS)
                    link.sendall(self._unsent[link])
            link.close()

    def _send(self) -> None:
        for link, unsent in self._unsent.items():
            if unsent:
                try:
                    self._unsent[link] = unsent[link.send(unsent) :]
                except BlockingIOError:
                    pass  # at the next call
                except OSError:  # the peer itself has ended
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
                "host, or the network to it, is down"
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
