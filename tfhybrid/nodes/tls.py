"""TLS for ranks and nodes: a process beside each carries its connections through it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import socket
import subprocess
import sys
import threading

from tfhybrid.errors import ConfigError
from tfhybrid.nodes import relay
from tfhybrid.nodes.door import Wrap, probed
from tfhybrid.settings import TlsFiles, tls_files

_log = logging.getLogger("tfhybrid.nodes")

_MOST_WORDS = 4096  # of a reason


class Tls:
    """Carries connections of this process through TLS. Thread-safe.

    Args:
        files: What it needs.

    Raises:
        ConfigError: A file cannot be used.
    """

    def __init__(self, files: TlsFiles) -> None:
        arguments = dataclasses.astuple(files)
        try:
            relay.context(relay.ACCEPT, *arguments)
        except OSError as error:
            raise ConfigError(
                "TFHYBRID_TLS_CERT, TFHYBRID_TLS_KEY and TFHYBRID_TLS_CA are PEM files: a "
                "certificate, its private key without a password, and the CA of all hosts. "
                f"Received: {files}, of which one cannot be used ({error})"
            ) from error
        self._control, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            # In a session of its own: a signal to the rank's group must not end it first.
            self._process = subprocess.Popen(
                [sys.executable, "-I", relay.__file__, str(its.fileno()), *arguments],
                pass_fds=[its.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="tfhybrid-tls", daemon=True).start()

    @classmethod
    def from_environment(cls) -> Tls | None:
        """Returns what the `TFHYBRID_TLS_` variables ask for; `None` where they are not set.

        Raises:
            ConfigError: Some are missing, or a file cannot be used.
        """
        files = tls_files()
        return None if files is None else cls(files)

    @property
    def ended(self) -> bool:
        """Whether the process that carries the connections has ended."""
        return self._process.poll() is not None

    def dial(self, link: socket.socket, peer: str) -> socket.socket:
        """Returns a socket in place of a connected one; what it sends goes through TLS.

        Args:
            link: The connected one; closed here.
            peer: Who is at its other end, for messages.

        Raises:
            OSError: One side refuses the other's certificate, or does not speak TLS.
        """
        plain = self._give(relay.DIAL, link, peer)
        said = plain.recv(1)
        if said == relay.WELL:
            return plain
        with plain:
            said += b"".join(iter(lambda: plain.recv(_MOST_WORDS), b""))
        raise OSError(said.decode() or "the TLS relay of this process has ended")

    def accept(self, link: socket.socket) -> socket.socket:
        """The same for a connection that was accepted. Its handshake goes on in the background.

        One that fails is logged, and its socket reads as closed.
        """
        address = link.getpeername()
        return self._give(relay.ACCEPT, link, f"{address[0]} port {address[1]}")

    def close(self) -> None:
        """Takes no more connections. What is connected goes on until one end closes it."""
        self._closed.set()
        self._control.close()

    def abandon(self) -> None:
        """Leaves the relay to the parent, in a forked child, which would keep it from ending."""
        self._control.close()

    def _give(self, role: str, link: socket.socket, peer: str) -> socket.socket:
        ours, its = socket.socketpair()
        try:
            with link, its:
                message = json.dumps([role, peer]).encode()
                socket.send_fds(self._control, [message], [link.fileno(), its.fileno()])
        except OSError:
            ours.close()
            raise
        return ours

    def _watch(self) -> None:
        with contextlib.suppress(ChildProcessError):  # somebody else waited for all children
            status = self._process.wait()
            if not self._closed.is_set():
                _log.error(
                    "The process that carries this process's TLS connections has ended (status %d)",
                    status,
                )


def dialled(tls: Tls | None, peer: str) -> Wrap:
    """Returns what a connection to `peer` goes through before anything is said."""
    return lambda link: link if tls is None else tls.dial(link, peer)


def accepted(tls: Tls | None, silence: float) -> Wrap:
    """Returns what a connection that was accepted goes through; it breaks after that silence."""

    def wrap(link: socket.socket) -> socket.socket:
        probed(link, silence)
        return link if tls is None else tls.accept(link)

    return wrap
