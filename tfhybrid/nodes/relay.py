"""A process that carries the connections of one rank through TLS: `python relay.py FD CERT KEY CA`.

The core sends frames over plain sockets. With TLS it holds one end of a socket pair, and this
process carries what comes from the other end through an encrypted connection. It is a process of
its own so that a rank's busy interpreter does not hold up its rows, and a script of the standard
library alone so that it starts at once (`tfhybrid.nodes.tls` starts it).

Each message on the descriptor FD is a role with two descriptors, the TCP connection and the end of
a pair. The process ends with its rank: when FD is closed and all connections have ended.
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
WELL = b"\x06"  # told by the accepting side behind its handshake, and to a rank that dials

_HANDSHAKE_SECONDS = 30.0
_CHUNK_BYTES = 1 << 18
_log = logging.getLogger("tfhybrid.nodes.relay")


def context(role: str, cert: str, key: str, ca: str) -> ssl.SSLContext:
    """Returns the settings of one side: both sides show a certificate of the CA.

    Who has one belongs to the cluster, whatever its name: the job's token tells who is who.

    Raises:
        OSError: A file cannot be read, or is not what it should be (`ssl.SSLError`).
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT if role == DIAL else ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.check_hostname = False
    made.verify_mode = ssl.CERT_REQUIRED
    made.load_cert_chain(cert, key)
    made.load_verify_locations(ca)
    return made


def reason(error: OSError) -> str:
    """Returns what a handshake failed by, in a few words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason is not None:
        words = error.reason.lower().replace("_", " ")
        if "alert" in words:  # of the other end, about what it was shown
            return f"it refuses our certificate: {words}"
        if words in ("http request", "wrong version number", "record layer failure"):
            return "it does not speak TLS"
        return words
    return str(error) or type(error).__name__


def serve(control: socket.socket, files: list[str]) -> None:
    """Carries whatever connections come, until `control` is closed."""
    contexts = {role: context(role, *files) for role in (DIAL, ACCEPT)}
    while True:
        said, descriptors, _, _ = socket.recv_fds(control, 1024, 2)
        if not said:
            return
        role, peer = json.loads(said)
        link, plain = (socket.socket(fileno=each) for each in descriptors)
        arguments = (contexts[role], role, peer, link, plain)
        threading.Thread(target=_carry, args=arguments, name=peer).start()


def _carry(
    settings: ssl.SSLContext, role: str, peer: str, link: socket.socket, plain: socket.socket
) -> None:
    with link, plain:
        link.settimeout(_HANDSHAKE_SECONDS)
        try:
            secure = _greeted(settings, role, link)
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
                pass  # one end is gone, which the other end learns when both are closed
            except OSError as error:
                _log.warning("The connection with %s is lost: %s", peer, reason(error))


def _greeted(settings: ssl.SSLContext, role: str, link: socket.socket) -> ssl.SSLSocket:
    """Returns a connection on which both ends have accepted each other's certificates."""
    secure = settings.wrap_socket(link, server_side=role == ACCEPT)
    try:
        if role == ACCEPT:
            secure.sendall(WELL)
        elif secure.recv(1) != WELL:  # TLS 1.3 lets this side through before it is accepted
            raise ConnectionError("it closed the connection")
    except BaseException:
        secure.close()
        raise
    return secure


def _tell(plain: socket.socket, words: bytes) -> None:
    with contextlib.suppress(OSError):  # nobody waits for it any more
        plain.sendall(words)


class _Flow:
    """One direction: what was read and is not written yet."""

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
        """Moves what can be moved; returns whether anything was."""
        try:
            if not self._held:
                self._held = memoryview(self._read(_CHUNK_BYTES))
                self.ended = not self._held
                return True
        except OSError as error:
            self.waits = _wanted(error, self._source, select.POLLIN)
            return False
        try:
            self._held = self._held[self._write(self._held) :]
        except OSError as error:
            self.waits = _wanted(error, self._target, select.POLLOUT)
            return False
        return True


def _wanted(error: OSError, end: socket.socket, event: int) -> tuple[socket.socket, int]:
    """Returns what to wait for before a call is tried again, or raises why it failed."""
    if isinstance(error, ssl.SSLWantReadError):
        return end, select.POLLIN
    if isinstance(error, ssl.SSLWantWriteError):
        return end, select.POLLOUT
    if isinstance(error, BlockingIOError):
        return end, event
    raise error


def _exchange(plain: socket.socket, secure: ssl.SSLSocket) -> None:
    """Moves bytes both ways until an end is closed; what came before is delivered."""
    plain.setblocking(False)
    secure.setblocking(False)
    out = _Flow(plain, plain.recv, secure, secure.send)
    back = _Flow(secure, secure.recv, plain, plain.send)
    while not out.ended and not back.ended:
        # Both, each time: neither direction waits for the other.
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
    # It ends with its rank, which may linger to say why it ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s")
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:])
