"""HTTP server of a process's own pages, with limits on connections, bytes and times."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import io
import logging
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from typing_extensions import override

from tfhybrid.rpc import tls_relay
from tfhybrid.settings import TlsFiles

_log = logging.getLogger("tfhybrid.monitoring")
_refusals = tls_relay.BoundedLog(_log)

App = Callable[..., Any]  # a WSGI application

_MAX_WAITING = 32  # above it, the oldest connection is closed
_MAX_THREADS = 64  # connections that are closed may still have a thread
_MAX_BYTES = 1 << 16  # of a request; Python alone would read 6.5 MB of headers
_REQUEST_SECONDS = 10.0
_PAUSE_SECONDS = 0.1


def refuse(address: str, why: str) -> None:
    """Logs that a request is refused; of many refusals in a minute, only the first ones.

    Args:
        address: Address of the client.
        why: Reason, such as "it does not speak HTTP".
    """
    _refusals.warn("A request from %s is refused: %s", address, why)


class _RequestLines(io.BufferedReader):
    """Bytes of one request, which may not have more than `_MAX_BYTES` in its lines."""

    _left = _MAX_BYTES

    @override
    def readline(self, size: int | None = -1, /) -> bytes:
        line = super().readline(self._left + 1)
        self._left -= len(line)
        if self._left < 0:
            raise http.client.LineTooLong("request")  # the base answers all but the first
        return line


class _Handler(WSGIRequestHandler):
    rbufsize = 0  # `_RequestLines` is the buffer

    @override
    def setup(self) -> None:
        super().setup()
        self.rfile = _RequestLines(self.rfile)

    @override
    def log_message(self, *_: object) -> None:
        pass  # the URL may contain a token

    @override
    def send_error(self, code: int, *more: str | None) -> None:
        if code == 400:  # the client sent no HTTP request
            refuse(self.client_address[0], "it does not speak HTTP")
        super().send_error(code, *more)


class _Server(ThreadingMixIn, WSGIServer):
    """Server with a thread per connection, and a bound on both.

    Strangers may hold connections without a request. So a connection is closed after
    `_REQUEST_SECONDS`, or once `_MAX_WAITING` newer ones are open.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._lock = threading.RLock()
        self._running: set[socket.socket] = set()  # guarded by _lock
        self._deadlines: dict[socket.socket, float] = {}  # oldest first; guarded by _lock
        super().__init__(address, _Handler)

    @override
    def get_request(self) -> Any:
        try:
            return super().get_request()
        except OSError:
            time.sleep(_PAUSE_SECONDS)  # without descriptors, the next select returns at once
            raise

    @override
    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if len(self._running) >= _MAX_THREADS:
                self.shutdown_request(request)
                return
            self._running.add(request)
            self._deadlines[request] = time.monotonic() + _REQUEST_SECONDS
            for link in list(self._deadlines)[:-_MAX_WAITING]:
                self._cut(link)
        super().process_request(request, client_address)

    @override
    def service_actions(self) -> None:
        now = time.monotonic()
        with self._lock:
            for link in [each for each, until in self._deadlines.items() if until <= now]:
                self._cut(link)

    @override
    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._running.discard(request)
            self._deadlines.pop(request, None)
            super().shutdown_request(request)

    @override
    def server_close(self) -> None:
        super().server_close()
        with self._lock:
            for link in list(self._deadlines):
                self._cut(link)

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exc_info()[1]
        why = tls_relay.reason(error) if isinstance(error, OSError) else repr(error)
        refuse(client_address[0], why)

    def _cut(self, link: socket.socket) -> None:
        """Ends a connection, whose thread then closes it. The caller holds `_lock`."""
        del self._deadlines[link]
        with contextlib.suppress(OSError):  # the client has already gone
            link.shutdown(socket.SHUT_RDWR)


class WebServer:
    """HTTP server of a WSGI application, on threads of its own. The caller closes it.

    Args:
        app: Application; called on several threads.
        address: Host and port to listen on; port 0 means a free one.
        tls: Certificate files for HTTPS; clients need no certificate. Default: `None`, plain HTTP.

    Attributes:
        port: Port on which the server listens.

    Raises:
        OSError: The address is not available, or a certificate file cannot be used.
        OverflowError: The port is not between 0 and 65535.
    """

    def __init__(self, app: App, address: tuple[str, int], tls: TlsFiles | None = None) -> None:
        secure = None  # read first: a server that is not returned would keep its port
        if tls is not None:
            secure = tls_relay.context(tls_relay.ACCEPT, *dataclasses.astuple(tls))
            secure.verify_mode = ssl.CERT_NONE
        self._server = _Server(address)
        self._server.set_app(app)
        self.port = int(self._server.server_port)
        if secure is not None:
            # The connection's own thread makes the handshake when it reads the first byte.
            self._server.socket = secure.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops the server, and waits for its thread."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
