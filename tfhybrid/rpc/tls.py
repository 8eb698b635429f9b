"""TLS for ranks and nodes, through a relay process beside each."""

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
from tfhybrid.rpc import tls_relay
from tfhybrid.rpc.listener import Wrap, probed
from tfhybrid.settings import TlsFiles, tls_files

_log = logging.getLogger("tfhybrid.rpc")

_REASON_BYTES = 4096


class Tls:
    """TLS relay of this process: encrypts its connections in a child process. Thread-safe.

    The caller closes it.

    Args:
        files: Paths of certificate, private key and CA, all PEM files.

    Raises:
        ConfigError: A file cannot be used.
    """

    def __init__(self, files: TlsFiles) -> None:
        arguments = dataclasses.astuple(files)
        try:
            tls_relay.context(tls_relay.ACCEPT, *arguments)
        except OSError as error:
            raise ConfigError(
                "TFHYBRID_TLS_CERT, TFHYBRID_TLS_KEY and TFHYBRID_TLS_CA must name PEM files: a "
                "certificate, its private key without a password, and the CA of all hosts. "
                f"Received: {files}, of which one cannot be used ({error})"
            ) from error
        self._control, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with end:
            # A session of its own, so that a signal to the rank's group does not end it first.
            self._process = subprocess.Popen(
                [sys.executable, "-I", tls_relay.__file__, str(end.fileno()), *arguments],
                pass_fds=[end.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._closed = threading.Event()
        threading.Thread(target=self._watch, name="tfhybrid-tls", daemon=True).start()

    @classmethod
    def from_environment(cls) -> Tls | None:
        """Starts a relay with the files of the `TFHYBRID_TLS_` variables; the caller closes it.

        Returns:
            The relay, or `None` if none of the variables is set.

        Raises:
            ConfigError: Only some of the variables are set, or a file cannot be used.
        """
        files = tls_files()
        return None if files is None else cls(files)

    @property
    def ended(self) -> bool:
        """True if the relay process has ended; no connection can be made then."""
        return self._process.poll() is not None

    def dial(self, link: socket.socket, peer: str) -> socket.socket:
        """Makes the handshake of the connecting side and returns the socket to use instead.

        Waits for the TLS handshake and its confirmation, up to 30 s each, or up to the timeout of
        the socket if that is less.

        Args:
            link: Connected socket; closed here, also on failure.
            peer: Name of the other end, for logs.

        Raises:
            OSError: One side refuses the other's certificate, the peer does not speak TLS, or the
                relay has ended.
        """
        seconds = link.gettimeout()
        with contextlib.ExitStack() as opened:
            plain = opened.enter_context(self._give(tls_relay.DIAL, link, peer))
            plain.settimeout(seconds)
            response = plain.recv(1)
            if response == tls_relay.WELL:
                plain.settimeout(None)
                opened.pop_all()
                return plain
            response += b"".join(iter(lambda: plain.recv(_REASON_BYTES), b""))
        raise OSError(
            response.decode() or "the TLS relay of this process has ended, or has no descriptors"
        )

    def accept(self, link: socket.socket) -> socket.socket:
        """Starts the handshake of the accepting side and returns the socket to use instead.

        Does not wait for the handshake. If it fails, the relay logs why and the returned socket
        reads as closed.

        Args:
            link: Accepted socket; closed here, also on failure.

        Raises:
            OSError: The peer is already gone, or the relay has ended.
        """
        address = link.getpeername()
        return self._give(tls_relay.ACCEPT, link, f"{address[0]} port {address[1]}")

    def close(self) -> None:
        """Makes no new connections from now on: `dial` and `accept` raise `OSError`.

        Existing connections last until one end closes them; then the relay process ends.
        """
        self._closed.set()
        self._control.close()

    def abandon(self) -> None:
        """Closes this process's end of the relay; call it in a forked child only.

        Otherwise the child would keep the relay from ending.
        """
        self._control.close()

    def _give(self, role: str, link: socket.socket, peer: str) -> socket.socket:
        with link:
            ours, theirs = socket.socketpair()
            try:
                with theirs:
                    message = json.dumps([role, peer]).encode()
                    socket.send_fds(self._control, [message], [link.fileno(), theirs.fileno()])
            except OSError:
                ours.close()
                raise
        return ours

    def _watch(self) -> None:
        with contextlib.suppress(ChildProcessError):  # other code has waited for all children
            status = self._process.wait()
            if not self._closed.is_set():
                _log.error(
                    "The TLS relay of this process has ended with status %d; its connections are "
                    "lost",
                    status,
                )


def dialled(tls: Tls | None, peer: str) -> Wrap:
    """Returns the function that prepares a connection to `peer`, before anything is sent.

    Args:
        tls: TLS relay of this process; with `None` the function returns the socket as it is.
        peer: Name of the other end, for logs.

    Returns:
        A function of a connected socket that returns the socket to use instead. Like `Tls.dial`, it
        waits up to 60 s, and raises `OSError` if there is no encrypted connection.
    """
    return lambda link: link if tls is None else tls.dial(link, peer)


def accepted(tls: Tls | None, silence: float) -> Wrap:
    """Returns the function that prepares an accepted connection, before anything is read.

    Args:
        tls: TLS relay of this process; with `None` connections are not encrypted.
        silence: Seconds without any sign of the other host after which the connection breaks.

    Returns:
        A function of an accepted socket that returns the socket to use instead. It raises `OSError`
        if the peer is already gone or the relay has ended.
    """

    def wrap(link: socket.socket) -> socket.socket:
        probed(link, silence)
        return link if tls is None else tls.accept(link)

    return wrap
