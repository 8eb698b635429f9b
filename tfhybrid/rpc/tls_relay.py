"""TLS relay: a process that encrypts connections of another; `python tls_relay.py FD CERT KEY CA`.

The core sends frames over plain sockets. With TLS the core holds one end of a socket pair, and the
relay copies bytes between the other end and an encrypted connection. It is a separate process, so a
busy Python interpreter does not delay rows. It imports only the standard library, so it starts fast
(`tfhybrid.rpc.tls` starts it).

Each message on the descriptor FD is a role and the peer's name in JSON, with two descriptors: the
TCP connection and one end of a pair. The relay ends once FD is closed and all connections have
ended, so it never outlives its rank for long. An error that it cannot survive ends it at once, with
all connections, so that its rank notices.

Strangers can connect without a certificate. Their handshakes are bounded in number and time, and a
handshake ends when the rank closes its end of the pair.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import resource
import select
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

DIAL = "dial"  # the side that connects
ACCEPT = "accept"
WELL = b"\x06"  # success: from the accepting side after its handshake, and to a rank that dials
MAX_HANDSHAKES = 200  # accepted connections without a certificate; above it, the oldest is closed

_HANDSHAKE_SECONDS = 30.0
_FULL_SECONDS = 0.1
_CHUNK_BYTES = 1 << 18
_MAX_LINES = 20  # per _LINES_SECONDS
_LINES_SECONDS = 60.0
_log = logging.getLogger("tfhybrid.rpc.tls_relay")

_T = TypeVar("_T")


class BoundedLog:
    """Log of warnings that others can cause, and cannot fill a disk with. Thread-safe.

    Writes at most 20 lines a minute. The first line after that minute counts those left out.

    Args:
        log: Logger of the warnings.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._logger = log
        self._lock = threading.Lock()
        self._begun = time.monotonic()
        self._lines = 0  # since _begun, those left out included

    def warn(self, text: str, *values: object) -> None:
        """Logs a warning, or counts it.

        Args:
            text: Format of the line, as of `logging`.
            *values: Values of the format.
        """
        with self._lock:
            now, left_out = time.monotonic(), self._lines - _MAX_LINES
            if now >= self._begun + _LINES_SECONDS:
                self._begun, self._lines = now, 0
                if left_out > 0:
                    self._logger.warning("%d more lines like the last ones", left_out)
            self._lines += 1
            if self._lines <= _MAX_LINES:
                self._logger.warning(text, *values)


def context(role: str, cert: str, key: str, ca: str) -> ssl.SSLContext:
    """Returns the TLS settings of one side. Both sides must show a certificate of the CA.

    Host names are not checked: every certificate of the CA belongs to the cluster, and the token
    identifies the job.

    Args:
        role: `DIAL` for the side that connects, `ACCEPT` for the other one.
        cert: Path of this host's certificate, a PEM file.
        key: Path of its private key, a PEM file without a password.
        ca: Path of the certificate of the CA, a PEM file.

    Raises:
        OSError: A file cannot be read, or is not a valid PEM file (`ssl.SSLError`).
    """
    settings = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT if role == DIAL else ssl.PROTOCOL_TLS_SERVER)
    settings.minimum_version = ssl.TLSVersion.TLSv1_3
    settings.check_hostname = False
    settings.verify_mode = ssl.CERT_REQUIRED
    settings.load_cert_chain(cert, key)
    settings.load_verify_locations(ca)
    return settings


def reason(error: OSError) -> str:
    """Returns the reason for a failed TLS handshake or a lost connection, for messages.

    Args:
        error: Error of the handshake or the connection.

    Returns:
        A clause about the peer, such as "it does not speak TLS", if a certificate or the protocol
        is the reason. Otherwise the text of the error.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason is not None:
        words = error.reason.lower().replace("_", " ")
        if "alert" in words:  # sent by the other end, about our certificate
            return f"it refuses our certificate: {words}"
        if words in ("http request", "wrong version number", "record layer failure"):
            return "it does not speak TLS"
        return words
    return str(error) or type(error).__name__


def serve(control: socket.socket, files: list[str]) -> None:
    """Takes connections until the other end of `control` is closed.

    Threads carry each one until it ends.

    Args:
        control: Unix socket that receives the connections; see the module.
        files: Paths of certificate, key and CA.

    Raises:
        OSError: A file cannot be used.
    """
    contexts = {role: context(role, *files) for role in (DIAL, ACCEPT)}
    strangers, refusals = _Strangers(), BoundedLog(_log)
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1024, 2)
        if not message:
            return
        role, peer = json.loads(message)
        ends = [socket.socket(fileno=each) for each in descriptors]
        if len(ends) == 2:
            relayed = _Relayed(contexts[role], role == ACCEPT, peer, *ends)
            if _started(relayed, strangers, refusals):
                continue
        refusals.warn("A connection with %s is closed: no free descriptors or threads", peer)
        for end in ends:
            end.close()
        strangers.close_oldest()


class _Relayed(NamedTuple):
    """Connection to relay: its TLS settings, side and peer, the TCP socket and that of the pair."""

    settings: ssl.SSLContext
    accepts: bool
    peer: str
    link: socket.socket
    plain: socket.socket


def bounded(connections: int, descriptors: int) -> int:
    """Returns how many connections of strangers this process may hold.

    They take at most a quarter of its descriptors, so that they leave some for all else.

    Args:
        connections: Maximum number of connections; above 0.
        descriptors: Number of descriptors of each connection.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return connections
    return max(min(connections, limit // 4 // descriptors), 1)


class _Strangers:
    """Accepted connections that have shown no certificate yet. Thread-safe."""

    def __init__(self) -> None:
        self._maximum = bounded(MAX_HANDSHAKES, 2)
        self._changed = threading.Condition()
        self._count = 0  # guarded by _changed, as is _open
        self._open: dict[socket.socket, None] = {}  # those that are not being closed, oldest first

    def add(self, plain: socket.socket) -> None:
        """Counts a connection; closes the oldest one, and waits for it, if there are too many."""
        with self._changed:
            while self._count >= self._maximum:
                self.close_oldest()
                self._changed.wait(_FULL_SECONDS)
            self._count += 1
            self._open[plain] = None

    def remove(self, plain: socket.socket) -> None:
        """Stops counting a connection, which is closed or has shown its certificate."""
        with self._changed:
            self._count -= 1
            self._open.pop(plain, None)
            self._changed.notify()

    def close_oldest(self) -> None:
        """Makes the oldest handshake fail, if there is one; its thread closes the connection."""
        with self._changed:
            if self._open:
                oldest = next(iter(self._open))
                del self._open[oldest]
                oldest.shutdown(socket.SHUT_RDWR)  # as if the rank had closed its end


def _started(relayed: _Relayed, strangers: _Strangers, refusals: BoundedLog) -> bool:
    """Starts the thread of a connection; returns whether there was one."""
    if relayed.accepts:
        strangers.add(relayed.plain)
    arguments = (relayed, strangers, refusals)
    try:
        threading.Thread(target=_carry, args=arguments, name=relayed.peer).start()
    except RuntimeError:
        if relayed.accepts:
            strangers.remove(relayed.plain)
        return False
    return True


def _carry(relayed: _Relayed, strangers: _Strangers, refusals: BoundedLog) -> None:
    plain, peer = relayed.plain, relayed.peer
    with relayed.link, plain:
        try:
            secure = _secured(relayed)
        except OSError as error:
            if relayed.accepts:
                refusals.warn("A connection from %s is closed: %s", peer, reason(error))
            else:
                _tell(plain, reason(error).encode())
            return
        finally:
            if relayed.accepts:
                strangers.remove(plain)
        with secure:
            if not relayed.accepts:
                _tell(plain, WELL)
            try:
                _exchange(plain, secure)
            except (BrokenPipeError, ConnectionResetError):
                pass  # one end is gone; the other one notices when its socket is closed
            except OSError as error:
                _log.warning("The connection with %s is lost: %s", peer, reason(error))


def _secured(relayed: _Relayed) -> ssl.SSLSocket:
    """Makes the handshake; returns once both ends have accepted each other's certificates."""
    plain = relayed.plain
    secure = relayed.settings.wrap_socket(
        relayed.link, server_side=relayed.accepts, do_handshake_on_connect=False
    )
    secure.setblocking(False)
    try:
        _finished(secure.do_handshake, secure, plain)
        if relayed.accepts:
            _finished(lambda: secure.send(WELL), secure, plain)
        # In TLS 1.3 this side finishes before the peer accepts it.
        elif _finished(lambda: secure.recv(1), secure, plain) != WELL:
            raise ConnectionError("it closed the connection")
    except BaseException:
        secure.close()
        raise
    return secure


def _finished(move: Callable[[], _T], secure: ssl.SSLSocket, plain: socket.socket) -> _T:
    """Repeats a nonblocking step of a handshake until it is done, and returns its result.

    Raises:
        OSError: The step failed or took too long, or the rank has closed its end of the pair.
    """
    until = time.monotonic() + _HANDSHAKE_SECONDS
    while True:
        try:
            return move()
        except OSError as error:
            end, event = _event_of(error, secure, select.POLLIN)
        waiting = select.poll()
        waiting.register(end, event)
        waiting.register(plain, 0)  # only reports that its other end is closed
        ready = dict(waiting.poll(max(until - time.monotonic(), 0) * 1000))
        if plain.fileno() in ready:
            raise ConnectionError("this process has closed it")
        if not ready:
            raise TimeoutError(f"no TLS handshake in {_HANDSHAKE_SECONDS:.0f} s")


def _tell(plain: socket.socket, words: bytes) -> None:
    with contextlib.suppress(OSError):  # the rank may have closed its end
        plain.sendall(words)


class _Flow:
    """One direction of a connection: bytes that were read and not written yet.

    Attributes:
        ended: True once the source is closed.
        waits: Socket and event to wait for after a `move` that moved nothing.
    """

    def __init__(
        self,
        source: socket.socket,
        read: Callable[[int], bytes],
        target: socket.socket,
        write: Callable[[memoryview], int],
    ) -> None:
        self._source, self._read = source, read
        self._target, self._write = target, write
        self._held = memoryview(b"")
        self.ended = False
        self.waits: tuple[socket.socket, int] = (source, select.POLLIN)

    def move(self) -> bool:
        """Reads or writes without blocking; returns False if it must wait for `waits`.

        Raises:
            OSError: The connection is lost.
        """
        try:
            if not self._held:
                self._held = memoryview(self._read(_CHUNK_BYTES))
                self.ended = not self._held
                return True
        except OSError as error:
            self.waits = _event_of(error, self._source, select.POLLIN)
            return False
        try:
            self._held = self._held[self._write(self._held) :]
        except OSError as error:
            self.waits = _event_of(error, self._target, select.POLLOUT)
            return False
        return True


def _event_of(error: OSError, end: socket.socket, event: int) -> tuple[socket.socket, int]:
    """Returns the socket and event to wait for before a retry; raises any other error."""
    if isinstance(error, ssl.SSLWantReadError):
        return end, select.POLLIN
    if isinstance(error, ssl.SSLWantWriteError):
        return end, select.POLLOUT
    if isinstance(error, BlockingIOError):
        return end, event
    raise error


def _exchange(plain: socket.socket, secure: ssl.SSLSocket) -> None:
    """Copies bytes in both directions until one end is closed, after delivering what it sent."""
    plain.setblocking(False)
    secure.setblocking(False)
    out = _Flow(plain, plain.recv, secure, secure.send)
    back = _Flow(secure, secure.recv, plain, plain.send)
    while not out.ended and not back.ended:
        # Moves both every time, so that neither direction waits for the other.
        moved = [out.move(), back.move()]
        if any(moved):
            continue
        events: dict[socket.socket, int] = {}
        for end, event in (out.waits, back.waits):
            events[end] = events.get(end, 0) | event
        waiting = select.poll()
        for end, event in events.items():
            waiting.register(end, event)
        waiting.poll()


if __name__ == "__main__":
    # The relay ends with its rank, which may linger after a signal to report why it ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    try:
        serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:])
    except BaseException:
        _log.exception("The TLS relay ends with all of its connections")
        os._exit(1)  # the threads of connections would keep a process that takes no more
