"""Lifelines: a TCP connection of every rank with rank 0, which carries the news that a rank ended.

Lifelines also carry notes, the reports of waiting ranks to rank 0 (`tfhybrid/job/waits.py`). News
is a line of text, a note is a line of JSON. Nothing is sent while no rank waits or ends.

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
_NOTE = "{"  # first character of a note, but never of news


class Lifelines:
    """Connections by which ranks notice the end of others; each rank has one with rank 0.

    News are lines that tell how a rank ended; notes are other lines, in JSON. Not thread-safe.

    Args:
        links: Connected sockets and the names of their peers; closed by `close`.
        silence: Seconds after which the kernel breaks a silent link, for messages.
    """

    def __init__(self, links: Mapping[socket.socket, str], silence: float) -> None:
        self._silence = silence
        self._links: dict[socket.socket, str] = {}
        self._received: dict[socket.socket, bytearray] = {}
        self._unsent: dict[socket.socket, bytes] = {}
        self._notes: list[tuple[str, str]] = []
        self._past_news = b""
        self._selector = selectors.DefaultSelector()
        for link, peer in links.items():
            self.add(link, peer)

    def add(self, link: socket.socket, peer: str) -> None:
        """Adds a connection and sends all earlier news on it.

        Args:
            link: Connected socket; closed by `close`.
            peer: Name of the other end, for news.
        """
        link.setblocking(False)
        self._links[link] = peer
        self._received[link] = bytearray()
        self._unsent[link] = self._past_news
        self._selector.register(link, selectors.EVENT_READ, link)
        self._send()

    def news(self, seconds: float) -> list[str]:
        """Waits up to `seconds` and returns all news.

        Args:
            seconds: Maximum time to wait, in seconds.

        Returns:
            Per item, `LEFT` or a sentence that names the rank that ended.
        """
        self._send()
        items = []
        for key, _ in self._selector.select(seconds):
            if news := self._read(key.data):
                items.append(news)
                self._selector.unregister(key.data)  # the peer closes it next, which is not news
        return items

    def notes(self) -> list[tuple[str, str]]:
        """Returns the reports of waiting ranks that `news` has received since the last call.

        Per report, the name of its sender and one line of JSON.
        """
        notes, self._notes = self._notes, []
        return notes

    def tell(self, line: str) -> None:
        """Sends a line to all connected peers. Never waits and never fails.

        Keeps what a peer cannot receive yet, for the next call. A broken connection loses it.

        Args:
            line: News of a rank that ended (text), or a report of a waiting rank (JSON), without a
                line break.
        """
        message = f"{line}\n".encode()
        if not line.startswith(_NOTE):
            self._past_news += message
        for link in self._links:
            self._unsent[link] += message
        self._send()

    def close(self) -> None:
        """Sends the rest, up to 1 s per link, and closes this process's ends of the connections."""
        self._selector.close()
        for link in self._links:
            with contextlib.suppress(OSError):
                if self._unsent[link]:  # may contain LEFT, behind a long note
                    link.settimeout(_FLUSH_SECONDS)
                    link.sendall(self._unsent[link])
            link.close()

    def _send(self) -> None:
        for link, unsent in self._unsent.items():
            if unsent:
                try:
                    self._unsent[link] = unsent[link.send(unsent) :]
                except BlockingIOError:
                    pass  # the next call sends it
                except OSError:  # the peer has ended
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
        received = self._received[link]
        searched = len(received)  # a long note comes in pieces
        received += data
        while (end := received.find(b"\n", searched)) >= 0:
            text = received[:end].decode(errors="replace")
            del received[: end + 1]
            searched = 0
            if not text.startswith(_NOTE):
                return text
            self._notes.append((peer, text))
        return None
