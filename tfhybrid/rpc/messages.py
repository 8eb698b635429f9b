"""Messages between the Python sides of nodes: a JSON object with arrays.

    8 bytes, little-endian: number of bytes that follow
    safetensors data: the JSON text as bytes under the name "message", and the arrays

They carry rare requests: registering, opening tables, loading, saving. Rows and gradients of steps
travel as frames of the core (`custom_ops/core/exchange/connection.h`).
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from tfhybrid.errors import StoreError

_LENGTH = struct.Struct("<Q")
_MAX_BYTES = 1 << 33  # limits what a broken peer makes us allocate; a block of rows is smaller
_MESSAGE = "message"

Arrays = Mapping[str, np.ndarray]


class LostError(StoreError):
    """A connection is lost, or its other end cannot be reached.

    Nobody knows whether the other end has done what the last request asked for.
    """


class MessageLink:
    """Connection that carries messages in both directions.

    One thread may send while another receives.

    Args:
        link: Connected socket; closed by `close`.
        peer: Name of the other end, for errors.
    """

    def __init__(self, link: socket.socket, peer: str) -> None:
        self._link = link
        self.peer = peer
        link.setblocking(True)

    def send(self, message: Mapping[str, Any], arrays: Arrays | None = None) -> None:
        """Sends a message. Blocks while the other end does not read.

        Args:
            message: JSON-serializable object.
            arrays: Arrays by name; the name "message" is reserved. Default: none.

        Raises:
            LostError: The connection is lost.
        """
        text = np.frombuffer(json.dumps(message).encode(), np.uint8)
        whole = {name: _plain(array) for name, array in (arrays or {}).items()}
        content = safetensors.numpy.save({**whole, _MESSAGE: text})
        try:
            self._link.sendall(_LENGTH.pack(len(content)))
            self._link.sendall(content)
        except OSError as error:
            raise LostError(f"Cannot send a message to {self.peer}: {error}") from error

    def receive(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Waits for a message; returns its JSON object and its arrays.

        Raises:
            LostError: The connection is lost.
            StoreError: The data is not a message.
        """
        (size,) = _LENGTH.unpack(self._bytes(_LENGTH.size))
        if size > _MAX_BYTES:
            raise StoreError(
                f"A message from {self.peer} must have at most {_MAX_BYTES} bytes. Received: {size}"
            )
        content = self._bytes(size)
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

    def _bytes(self, size: int) -> bytearray:
        content = bytearray(size)
        view, have = memoryview(content), 0
        while have < size:
            try:
                got = self._link.recv_into(view[have:])
            except OSError as error:
                raise LostError(f"The connection to {self.peer} is lost: {error}") from error
            if got == 0:
                raise LostError(
                    f"{self.peer} has closed its connection. If it still runs, read its log"
                )
            have += got
        return content


def _plain(array: np.ndarray) -> np.ndarray:
    """Returns an array as safetensors can store it; `np.ascontiguousarray` would change `()`."""
    return np.asarray(array, array.dtype.newbyteorder("="), order="C")
