"""The part that all nodes have in common: a door, and a thread for each process that asks."""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import threading
from collections.abc import Callable

from tfhybrid.core.allocator import keep_freed_memory
from tfhybrid.errors import StoreError
from tfhybrid.nodes.door import Door
from tfhybrid.nodes.greetings import Greeting, Link
from tfhybrid.nodes.messages import MessageLink
from tfhybrid.nodes.tls import Tls, accepted

_log = logging.getLogger("tfhybrid.nodes")

_LOOK_SECONDS = 0.2
_SILENCE_SECONDS = 60.0

Visit = Callable[[Greeting, MessageLink], None]
Take = Callable[[Greeting, socket.socket], None]


class NodeServer:
    """Lets processes of the job in.

    Args:
        listener: Of this process.
        token: Of the cluster.
        visit: What is done with a connection for calls, on a thread of its own, until it ends.
        take: What is done with another one; takes it over, and must not wait.
        tls: What encrypts the connections; `None` for none.
    """

    def __init__(
        self,
        listener: socket.socket,
        token: str,
        visit: Visit,
        take: Take | None = None,
        tls: Tls | None = None,
    ) -> None:
        self._door = Door(listener, token, accepted(tls, _SILENCE_SECONDS))
        self._tls = tls
        self._visit = visit
        self._take = take
        self._stopping = threading.Event()
        self._links: set[MessageLink] = set()
        self._lock = threading.Lock()

    def stop(self, *_: object) -> None:
        """Makes `run` return; may be a handler of signals."""
        self._stopping.set()

    def run(self) -> None:
        """Serves until `stop`. What a request frees stays in the process, for the next one.

        Raises:
            StoreError: Nobody can come in any more: what encrypts the connections has ended.
        """
        keep_freed_memory()
        with contextlib.closing(self._door) as front:
            while not self._stopping.is_set():
                if self._tls is not None and self._tls.ended:
                    raise StoreError("The TLS relay of this node has ended, and so does the node")
                for text, link in front.arrivals(_LOOK_SECONDS):
                    self._let_in(text, link)
        with self._lock:
            links = list(self._links)
        for each in links:
            each.close()

    def stop_at_signals(self) -> None:
        """Stops at SIGTERM and SIGINT; of the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.stop)

    def _let_in(self, text: str, link: socket.socket) -> None:
        try:
            greeting = Greeting.heard(text)
            if greeting.to in (Link.CALLS, Link.BATCHES):
                thread = threading.Thread(target=self._answer, args=(greeting, link), daemon=True)
                thread.start()
            elif self._take is not None:
                self._take(greeting, link)
            else:
                raise StoreError(f"{greeting.name} wants '{greeting.to}', which is not here")
        except (StoreError, OSError) as error:
            _log.warning("Refused: %s", error)
            link.close()

    def _answer(self, greeting: Greeting, link: socket.socket) -> None:
        messages = MessageLink(link, greeting.name)
        with self._lock:
            self._links.add(messages)
        try:
            self._visit(greeting, messages)
        except StoreError as error:
            _log.info("%s", error)
        finally:
            with self._lock:
                self._links.discard(messages)
            messages.close()
