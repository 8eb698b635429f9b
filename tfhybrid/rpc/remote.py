"""Calls to a stream process that may die and be restarted at the same address."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfhybrid.errors import StoreError, StreamError
from tfhybrid.rpc import listener, process_tls
from tfhybrid.rpc.calls import Caller
from tfhybrid.rpc.handshake import Handshake, Purpose
from tfhybrid.rpc.messages import Arrays
from tfhybrid.rpc.tls import dialled

_CONNECT_SECONDS = 5.0
_SILENCE_SECONDS = 60.0
_PAUSE_SECONDS = 0.1


class Remote:
    """Client of a stream process, which reconnects and repeats a call after a lost connection.

    A call can be executed twice, so all calls must be idempotent. The connection goes through TLS
    if the `TFHYBRID_TLS_` variables are set. Connects at the first call. Thread-safe: a call waits
    until the one before has ended.

    Args:
        address: Address of the other end, `host:port`.
        token: Token that the other end expects.
        name: Name of this process, for the logs of the other end.
        peer: Description of the other end, for errors.
        patience: Time in seconds for which a call is repeated after a lost connection. Default:
            120. It does not limit the time that the other end takes for a call.

    Raises:
        ValueError: The address does not end in a port number.
    """

    def __init__(
        self, address: str, token: str, name: str, peer: str, *, patience: float = 120.0
    ) -> None:
        host, _, port = address.rpartition(":")
        self._address = host.strip("[]"), int(port)
        self._token = token
        self._name = name
        self._peer = f"{peer} at {address}"
        self._patience = patience
        self._caller: Caller | None = None
        self._lock = threading.Lock()

    def ask(
        self, call: str, arguments: Mapping[str, Any] | None = None, arrays: Arrays | None = None
    ) -> tuple[Any, dict[str, np.ndarray]]:
        """Calls the other end and waits for the response.

        Args:
            call: Name of the call.
            arguments: JSON-serializable arguments. Default: none.
            arrays: Arrays of the request, by name. Default: none.

        Returns:
            The result, and the arrays of the response by name.

        Raises:
            TfhybridError: The other end raised this error; the message names that end.
            StreamError: The connection was lost, or could not be made, for `patience` seconds; or
                the other end raised a plain `StoreError` for so long.
            ConfigError: The TLS files of this process cannot be used.
        """
        until = time.monotonic() + self._patience
        while True:
            try:
                with self._lock:
                    self._caller = self._caller or self._connected()
                    return self._caller.ask(call, arguments, arrays)
            except (StoreError, OSError) as error:
                if type(error) is not StoreError and not isinstance(error, OSError):
                    raise  # an error of the call, not of the connection
                self.close()
                if time.monotonic() >= until:
                    raise StreamError(
                        f"The {self._peer} has not answered for {self._patience:.0f} s: {error}"
                    ) from error
                time.sleep(_PAUSE_SECONDS)

    def close(self) -> None:
        """Closes the connection, after a call in progress; the next call opens a new one."""
        with self._lock:
            if self._caller is not None:
                self._caller.close()
                self._caller = None

    def _connected(self) -> Caller:
        handshake = Handshake(Purpose.CALLS, self._name).text()
        link = listener.dial(
            *(self._address, self._token, handshake, _CONNECT_SECONDS, _SILENCE_SECONDS),
            wrap=dialled(process_tls.tls_relay(), self._peer),
        )
        return Caller(link, self._peer)
