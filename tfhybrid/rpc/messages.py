"""Messages between the Python sides of nodes: a JSON object with arrays.

    8 bytes, little-endian: number of bytes that follow
    safetensors data: the JSON text as bytes under the name "message", and the arrays

They carry rare requests: registering, opening tables, loading, saving. Rows and gradients of steps
travel as frames of the core (`custom_ops/core/exchange/connection.h`).
"""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import struct
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from tfhybrid.errors import StoreError

_log = logging.getLogger("tfhybrid.rpc")

WAIT_SECONDS = 10.0
"""Time after which a process logs for whom it waits, in seconds."""

_LENGTH = struct.Struct("<Q")
_MAX_BYTES = 1 << 33  # limits what a broken peer makes us allocate; a block of rows is smaller
_MESSAGE = "message"

Arrays = Mapping[str, np.ndarray]


class LostError(StoreError):
    """A connection is lost, or its other end cannot be reached.

    Nobody knows whether the other end has done what the last request asked for.
    """


class SilentError(LostError):
    """The other end has been silent for longer than it may be."""


class MessageLink:
    """Connection that carries messages in both directions.

    One thread may send while another receives.

    Args:
        link: Connected socket; closed by `close`, or when the last reference to this object goes.
        peer: Name of the other end, for errors.
        limit: Maximum time in seconds for which the other end may be silent while it is waited for
            with a purpose. Default: `None`, no limit.
        purpose: Words for what the other end is waited for, such as "answer the call". Default:
            `None`, only waits with a purpose of their own are logged: the other end may have
            nothing to say.

    Attributes:
        right: Right of the token that the other end has shown, one of `RIGHTS`; `None` for every
            right.
    """

    def __init__(
        self,
        link: socket.socket,
        peer: str,
        limit: float | None = None,
        purpose: str | None = None,
    ) -> None:
        self._link = link
        self.peer = peer
        self._limit = limit
        self._purpose = purpose
        self.right: str | None = None
        # Time without any bytes after which a wait is noted.
        self._seconds = WAIT_SECONDS if limit is None else min(limit, WAIT_SECONDS)
        link.setblocking(True)
        # A client of a stream has no `close`. Without `shutdown`, which would end the connection of
        # the parent of a forked child that lets go of it.
        weakref.finalize(self, link.close).atexit = False
        # Timeouts of the kernel: with those of Python each send and receive is two system calls.
        whole = int(self._seconds)
        timeout = struct.pack("@ll", whole, round((self._seconds - whole) * 1e6))
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            link.setsockopt(socket.SOL_SOCKET, option, timeout)

    def send(
        self,
        message: Mapping[str, Any],
        arrays: Arrays | None = None,
        purpose: str | None = None,
    ) -> None:
        """Sends a message. Blocks while the other end does not read.

        Args:
            message: JSON-serializable object.
            arrays: Arrays by name; the name "message" is reserved. Default: none.
            purpose: Words for what the other end is waited for. Default: those of the link.

        Raises:
            SilentError: The limit is reached.
            LostError: The connection is lost.
        """
        text = np.frombuffer(json.dumps(message).encode(), np.uint8)
        whole = {name: _plain(array) for name, array in (arrays or {}).items()}
        content = safetensors.numpy.save({**whole, _MESSAGE: text})
        failure = f"Cannot send a message to {self.peer}"
        for part in (_LENGTH.pack(len(content)), content):
            view, sent = memoryview(part), 0
            while sent < len(view):
                sent += self._moved(self._link.send, view[sent:], purpose, failure)

    def receive(self, purpose: str | None = None) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Waits for a message; returns its JSON object and its arrays.

        Args:
            purpose: Words for what the other end is waited for. Default: those of the link.

        Raises:
            SilentError: The limit is reached.
            LostError: The connection is lost.
            StoreError: The data is not a message.
        """
        (size,) = _LENGTH.unpack(self._bytes(_LENGTH.size, purpose))
        if size > _MAX_BYTES:
            raise StoreError(
                f"A message from {self.peer} must have at most {_MAX_BYTES} bytes. Received: {size}"
            )
        content = self._bytes(size, purpose)
        try:
            arrays = safetensors.numpy.load(bytes(content))
            message = json.loads(arrays.pop(_MESSAGE).tobytes())
        except (SafetensorError, KeyError, ValueError, RecursionError) as error:
            raise StoreError(f"{self.peer} sent data that is not a message: {error!r}") from error
        if not isinstance(message, dict):
            raise StoreError(
                f"A message from {self.peer} must be a JSON object. Received: {message!r}"
            )
        return message, arrays

    def close(self) -> None:
        """Closes the connection. A thread that waits in `receive` gets a `StoreError`."""
        with contextlib.suppress(OSError):  # the other end has already closed it
            self._link.shutdown(socket.SHUT_RDWR)
        self._link.close()

    def _moved(
        self,
        move: Callable[[memoryview], int],
        view: memoryview,
        purpose: str | None,
        failure: str,
    ) -> int:
        """Sends from a view or receives into it, and returns the number of bytes; 0 at the end."""
        seconds = 0.0
        while True:
            try:
                return move(view)
            except BlockingIOError:  # the timeout of the socket
                seconds += self._seconds
            except OSError as error:
                raise LostError(f"{failure}: {error}") from error
            self._note_silence(seconds, purpose or self._purpose)

    def _note_silence(self, seconds: float, purpose: str | None) -> None:
        """Raises `SilentError` at the limit; logs a wait after 10 s, 20 s, 40 s and so on."""
        if purpose is None:
            return
        if self._limit is not None and seconds >= self._limit:
            raise SilentError(f"{self.peer} must {purpose} within {self._limit:g} s")
        periods = round(seconds / self._seconds)
        if periods & (periods - 1) == 0:
            _log.warning("Waited %g s for %s to %s", seconds, self.peer, purpose)

    def _bytes(self, size: int, purpose: str | None) -> bytearray:
        content = bytearray(size)
        view, have = memoryview(content), 0
        failure = f"The connection to {self.peer} is lost"
        while have < size:
            got = self._moved(self._link.recv_into, view[have:], purpose, failure)
            if got == 0:
                raise LostError(
                    f"{self.peer} has closed its connection. If it still runs, read its log"
                )
            have += got
        return content


def _plain(array: np.ndarray) -> np.ndarray:
    """Returns an array as safetensors can store it; `np.ascontiguousarray` would change `()`."""
    return np.asarray(array, array.dtype.newbyteorder("="), order="C")
