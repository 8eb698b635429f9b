"""What Python sides of nodes tell each other: a message of JSON, with arrays beside it.

    8 bytes, little-endian: how many follow
    a file in the format of safetensors: the JSON as bytes under the name "message", the arrays

For what is rare: joining, opening tables, loading, saving. Rows and gradients of steps travel as
frames of the core (`custom_ops/core/exchange/connection.h`).
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
_MOST_BYTES = 1 << 33  # what a broken peer may make us allocate; more than a block of rows has
_MESSAGE = "message"

Arrays = Mapping[str, np.ndarray]


class MessageLink:
    """A connection that carries messages, both ways.

    Args:
        link: A connected socket; closed by `close`.
        peer: What the other end is called, for errors.
    """

    def __init__(self, link: socket.socket, peer: str) -> None:
        self._link = link
        self.peer = peer
        link.setblocking(True)

    def send(self, message: Mapping[str, Any], arrays: Arrays | None = None) -> None:
        """Sends a message.

        Args:
            message: What JSON can say.
            arrays: By name; any but "message".

        Raises:
            StoreError: The other end is gone.
        """
        text = np.frombuffer(json.dumps(message).encode(), np.uint8)
        whole = {name: np.ascontiguousarray(array) for name, array in (arrays or {}).items()}
        content = safetensors.numpy.save({**whole, _MESSAGE: text})
        try:
            self._link.sendall(_LENGTH.pack(len(content)))
            self._link.sendall(content)
        except OSError as error:
            raise StoreError(f"{self.peer} cannot be told anything: {error}") from error

    def receive(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Waits for a message; returns it, and its arrays.

        Raises:
            StoreError: The other end is gone, or sent something else.
        """
        (size,) = _LENGTH.unpack(self._bytes(_LENGTH.size))
        if size > _MOST_BYTES:
            raise StoreError(
                f"A message of {self.peer} has {_MOST_BYTES} bytes at most. Received: {size}"
            )
        content = self._bytes(size)
        try:
            arrays = safetensors.numpy.load(bytes(content))
            message = json.loads(arrays.pop(_MESSAGE).tobytes())
        except (SafetensorError, KeyError, ValueError) as error:
            raise StoreError(f"{self.peer} sent what is no message: {error!r}") from error
        if not isinstance(message, dict):
            raise StoreError(f"A message of {self.peer} is a JSON object. Received: {message!r}")
        return message, arrays

    def close(self) -> None:
        """Ends the connection, for whoever waits in `receive` too."""
        with contextlib.suppress(OSError):  # the other end has
            self._link.shutdown(socket.SHUT_RDWR)
        self._link.close()

    def _bytes(self, size: int) -> bytearray:
        content = bytearray(size)
        view, have = memoryview(content), 0
        while have < size:
            try:
                got = self._link.recv_into(view[have:])
            except OSError as error:
                raise StoreError(f"The connection to {self.peer} is lost: {error}") from error
            if got == 0:
                raise StoreError(
                    f"{self.peer} has closed its connection; if it lives, its log says why"
                )
            have += got
        return content
