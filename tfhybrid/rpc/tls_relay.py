"""TLS relay: a process that encrypts connections of another; `python tls_relay.py FD CERT KEY CA`.

The core sends frames over plain sockets. With TLS the core holds one end of a socket pair, and the
relay copies bytes between the other end and an encrypted connection. It is a separate process, so a
busy Python interpreter does not delay rows. It imports only the standard library, so it starts fast
(`tfhybrid.rpc.tls` starts it).

Each message on the descriptor FD is a role and the peer's name in JSON, with two descriptors: the
TCP connection and one end of a pair. The relay ends once FD is closed and all connections have
ended, so it never outlives its rank for long.
"""

from __future__ import annotations

import contextlib
import json
import logging
import select
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable

DIAL = "dial"  # the side that connects
ACCEPT = "accept"
WELL = b"\x06"  # success: from the accepting side after its handshake, and to a rank that dials

_HANDSHAKE_SECONDS = 30.0
_CHUNK_BYTES = 1 << 18
_log = logging.getLogger("tfhybrid.rpc.tls_relay")


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
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1024, 2)
        if not message:
            return
        role, peer = json.loads(message)
        link, plain = (socket.socket(fileno=each) for each in descriptors)
        arguments = (contexts[role], role, peer, link, plain)
        threading.Thread(target=_carry, args=arguments, name=peer).start()


def _carry(
    settings: ssl.SSLContext, role: str, peer: str, link: socket.socket, plain: socket.socket
) -> None:
    with link, plain:
        link.settimeout(_HANDSHAKE_SECONDS)
        try:
            secure = _secured(settings, role, link)
        except OSError as error:
            if role == DIAL:
                _tell(plain, reason(error).encode())
            else:
                _log.warning("A connection from %s is closed: %s", peer, reason(error))
            return
        with secure:
            if role == DIAL:
                _tell(plain, WELL)
            try:
                _exchange(plain, secure)
            except (BrokenPipeError, ConnectionResetError):
                pass  # one end is gone; the other one notices when its socket is closed
            except OSError as error:
                _log.warning("The connection with %s is lost: %s", peer, reason(error))


def _secured(settings: ssl.SSLContext, role: str, link: socket.socket) -> ssl.SSLSocket:
    """Makes the handshake; returns once both ends have accepted each other's certificates."""
    secure = settings.wrap_socket(link, server_side=role == ACCEPT)
    try:
        if role == ACCEPT:
            secure.sendall(WELL)
        elif secure.recv(1) != WELL:  # in TLS 1.3 this side finishes before the peer accepts it
            raise ConnectionError("it closed the connection")
    except BaseException:
        secure.close()
        raise
    return secure


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
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:])
