"""Calls to a stream process that may die and be restarted at the same address."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from tfhybrid.errors import StreamError
from tfhybrid.rpc import messages, process_tls
from tfhybrid.rpc.address import parsed_address
from tfhybrid.rpc.calls import Caller
from tfhybrid.rpc.handshake import Handshake, Purpose
from tfhybrid.rpc.messages import LostError
from tfhybrid.rpc.peer import Peer
from tfhybrid.rpc.remote_methods import Call, call_on, call_to

_log = logging.getLogger("tfhybrid.rpc")

_CONNECT_SECONDS = 5.0
_PAUSE_SECONDS = 0.1

_P = ParamSpec("_P")
_T = TypeVar("_T")


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
        limit: Maximum time in seconds for which the other end may be silent during a call, or while
            the connection is made. Default: `None`, no limit for a call.

    Raises:
        ConfigError: The address is not `host:port`.
    """

    def __init__(
        self,
        address: str,
        token: str,
        name: str,
        peer: str,
        *,
        patience: float = 120.0,
        limit: float | None = None,
    ) -> None:
        self._peer = Peer(
            f"{peer} at {address}",
            parsed_address(address),
            token,
            patience=min(limit or _CONNECT_SECONDS, _CONNECT_SECONDS),
            limit=limit,
        )
        self._name = name
        self._patience = patience
        self._caller: Caller | None = None
        self._lock = threading.Lock()

    def call(
        self, method: Callable[Concatenate[Any, _P], _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Calls a remote method of the other end and returns its result.

        Args:
            method: Function of a class, such as `Provider.put`.
            *args: Positional arguments of the method after `self`.
            **kwargs: Keyword arguments of the method.

        Raises:
            TfhybridError: The other end raised this error; the message names that end.
            StreamError: The connection was lost, or could not be made, for `patience` seconds.
            ConfigError: The TLS files of this process cannot be used.
        """
        return self.ask(call_to(method, *args, **kwargs))

    def call_on(
        self,
        target: Any,
        method: Callable[Concatenate[Any, _P], _T],
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> _T:
        """Calls a remote method of one of the other end's objects.

        Args:
            target: Value that names the object, such as the name of a model.
            method: Function of a class, such as `TargetModel.save`.
            *args: Positional arguments of the method after `self`.
            **kwargs: Keyword arguments of the method.

        Returns:
            The result of the method.

        Raises:
            TfhybridError: The other end raised this error; the message names that end.
            StreamError: The connection was lost, or could not be made, for `patience` seconds.
            ConfigError: The TLS files of this process cannot be used.
        """
        return self.ask(call_on(target, method, *args, **kwargs))

    def ask(self, call: Call[_T]) -> _T:
        """Sends a call, waits for the response, and returns the result.

        Args:
            call: The call.

        Raises:
            TfhybridError: The other end raised this error; the message names that end.
            StreamError: The connection was lost, or could not be made, for `patience` seconds.
            ConfigError: The TLS files of this process cannot be used.
        """
        begun, logged_at = time.monotonic(), messages.WAIT_SECONDS
        while True:
            try:
                with self._lock:
                    if self._caller is None or self._caller.is_closed:
                        self._caller = self._connected()
                    return self._caller.ask(call)
            except LostError as error:
                self.close()
                waited = time.monotonic() - begun
                if waited >= self._patience:
                    raise StreamError(
                        f"The {self._peer.name} has not answered for {self._patience:.0f} s: "
                        f"{error}"
                    ) from error
                if waited >= logged_at:
                    logged_at *= 2
                    _log.warning("Waited %.3g s for the %s: %s", waited, self._peer.name, error)
                time.sleep(_PAUSE_SECONDS)

    def close(self) -> None:
        """Closes the connection, after a call in progress; the next call opens a new one."""
        with self._lock:
            if self._caller is not None:
                self._caller.close()
                self._caller = None

    def _connected(self) -> Caller:
        # The relay is asked for each time: another one takes the place of one that has died.
        peer = dataclasses.replace(self._peer, tls=process_tls.tls_relay())
        return peer.caller(Handshake(Purpose.CALLS, self._name))
