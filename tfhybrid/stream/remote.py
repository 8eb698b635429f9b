"""Calls to a process of the stream that may die and come back at the same address."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfhybrid.errors import StoreError, StreamError
from tfhybrid.nodes import door
from tfhybrid.nodes.calls import Caller
from tfhybrid.nodes.greetings import Greeting, Link
from tfhybrid.nodes.messages import Arrays
from tfhybrid.nodes.tls import dialled
from tfhybrid.stream import encryption

_CONNECT_SECONDS = 5.0
_SILENCE_SECONDS = 60.0
_PAUSE_SECONDS = 0.1


class Remote:
    """Asks, and asks again where the other end has died meanwhile. Thread-safe.

    So calls must be such that doing them twice is doing them once. The connection goes through TLS
    where `encryption.relay` says so.

    Args:
        address: `host:port`.
        token: That the other end wants to be shown.
        name: What this process calls itself.
        peer: What the other end is, for errors.
        patience: Seconds for which it may be away.
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
        """Asks and waits for the answer; as `Caller.ask`.

        Raises:
            TfhybridError: What the other end raised.
            StreamError: It has been away for longer than our patience.
        """
        until = time.monotonic() + self._patience
        while True:
            try:
                with self._lock:
                    self._caller = self._caller or self._connected()
                    return self._caller.ask(call, arguments, arrays)
            except (StoreError, OSError) as error:
                if type(error) is not StoreError and not isinstance(error, OSError):
                    raise  # the other end's, not the connection's
                self.close()
                if time.monotonic() >= until:
                    raise StreamError(
                        f"The {self._peer} has not answered for {self._patience:.0f} s: {error}"
                    ) from error
                time.sleep(_PAUSE_SECONDS)

    def close(self) -> None:
        """Ends the connection; the next call makes another."""
        with self._lock:
            if self._caller is not None:
                self._caller.close()
                self._caller = None

    def _connected(self) -> Caller:
        greeting = Greeting(Link.CALLS, self._name).text()
        link = door.dial(
            *(self._address, self._token, greeting, _CONNECT_SECONDS, _SILENCE_SECONDS),
            wrap=dialled(encryption.relay(), self._peer),
        )
        return Caller(link, self._peer)
