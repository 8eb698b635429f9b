"""Server of a node: a listener, and a thread for each connection with calls."""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import threading
from collections.abc import Callable, Mapping

from tfhybrid.core.allocator import keep_freed_memory
from tfhybrid.errors import StoreError
from tfhybrid.rpc.calls import refusal
from tfhybrid.rpc.handshake import Handshake, Purpose
from tfhybrid.rpc.listener import Listener
from tfhybrid.rpc.messages import LostError, MessageLink
from tfhybrid.rpc.running_calls import running_calls
from tfhybrid.rpc.tls import Tls, accepted

_log = logging.getLogger("tfhybrid.rpc")

_LOOK_SECONDS = 0.2
_SILENCE_SECONDS = 60.0

_CALLS = (Purpose.CALLS, Purpose.BATCHES)

Visit = Callable[[Handshake, MessageLink], None]
Take = Callable[[Handshake, socket.socket], None]


class NodeServer:
    """Server that admits processes with the cluster's token and hands over their connections.

    Args:
        listener: Listening socket; closed when `run` returns.
        tokens: Token of the cluster; or the right of each token, by token.
        visit: Function that serves a connection for calls (`CALLS`, `BATCHES`) until it ends. It
            runs on a thread of its own; the server closes the connection afterwards.
        take: Function that becomes the owner of any other connection. It runs on the thread of
            `run` and must not wait. Default: `None`, such connections are refused.
        tls: TLS relay of this process. Default: `None`, connections are not encrypted.
        check: Function that `run` calls several times a second. Its errors end `run`. Default:
            none.
    """

    def __init__(
        self,
        listener: socket.socket,
        tokens: str | Mapping[str, str],
        visit: Visit,
        take: Take | None = None,
        tls: Tls | None = None,
        check: Callable[[], object] = lambda: None,
    ) -> None:
        self._rights = {} if isinstance(tokens, str) else dict(tokens)
        self._listener = Listener(listener, tokens, accepted(tls, _SILENCE_SECONDS))
        self._tls = tls
        self._visit = visit
        self._take = take
        self._check = check
        self._stopping = threading.Event()
        self._links: set[MessageLink] = set()
        self._lock = threading.Lock()

    def stop(self, *_: object) -> None:
        """Makes `run` return; can be called by any thread and as a signal handler."""
        self._stopping.set()

    def run(self) -> None:
        """Serves until `stop` is called, then closes the listener and all connections for calls.

        Call it once. Freed memory stays in the process, ready for the next request.

        Raises:
            StoreError: The TLS relay has ended, so no connection can be accepted any more. Errors
                of `check` propagate, too.
        """
        keep_freed_memory()
        with contextlib.closing(self._listener) as listener:
            while not self._stopping.is_set():
                if self._tls is not None and self._tls.ended:
                    raise StoreError("The TLS relay of this node has ended, so the node stops")
                self._check()
                for text, link, token in listener.arrivals(_LOOK_SECONDS):
                    self._let_in(text, link, self._rights.get(token))
                running_calls.look()
        with self._lock:
            links = list(self._links)
        for each in links:
            each.close()

    def stop_at_signals(self) -> None:
        """Makes SIGTERM and SIGINT call `stop`. Only the main thread may call this.

        Raises:
            ValueError: Another thread called it.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.stop)

    def _let_in(self, text: str, link: socket.socket, right: str | None) -> None:
        try:
            handshake = Handshake.heard(text)
            if handshake.to in _CALLS:
                arguments = (handshake, link, right)
                threading.Thread(target=self._answer, args=arguments, daemon=True).start()
            elif self._take is not None:
                self._take(handshake, link)
            else:
                raise StoreError(
                    f"This node accepts no connections for '{handshake.to}'. "
                    f"Received: one from {handshake.name}"
                )
        except (StoreError, OSError, RuntimeError) as error:  # RuntimeError: no more threads
            _log.warning("Refused: %s", error)
            if Handshake.purpose_of(text) in _CALLS:
                with contextlib.suppress(StoreError):  # the caller has gone
                    MessageLink(link, "a caller").send(refusal(StoreError(str(error))))
            link.close()

    def _answer(self, handshake: Handshake, link: socket.socket, right: str | None) -> None:
        messages = MessageLink(link, handshake.name)
        messages.right = right
        with self._lock:
            self._links.add(messages)
        try:
            self._visit(handshake, messages)
        except LostError as error:
            _log.debug("%s", error)  # as every process that has done its work
        except StoreError as error:
            _log.info("%s", error)
        finally:
            with self._lock:
                self._links.discard(messages)
            messages.close()
