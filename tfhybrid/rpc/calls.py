"""Remote calls between two processes: one message per request and one per response, in order."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tfhybrid import errors
from tfhybrid.errors import StoreError, TfhybridError
from tfhybrid.rpc.messages import Arrays, MessageLink

Arguments = dict[str, Any]
ReceivedArrays = dict[str, np.ndarray]
Answer = tuple[Any, Arrays]
Called = Callable[[Arguments, ReceivedArrays], Answer]


class Caller:
    """Client end of a connection for calls.

    Thread-safe: a call waits until the one before has ended.

    Args:
        link: Connected socket; closed by `close`.
        peer: Name of the other end, for errors.
    """

    def __init__(self, link: socket.socket, peer: str) -> None:
        self._link = MessageLink(link, peer)
        self._lock = threading.Lock()

    @property
    def peer(self) -> str:
        """Name of the other end."""
        return self._link.peer

    def ask(
        self, call: str, arguments: Mapping[str, Any] | None = None, arrays: Arrays | None = None
    ) -> tuple[Any, dict[str, np.ndarray]]:
        """Calls the other end and waits for the response. The caller must not hold `alone`.

        Args:
            call: Name of the call.
            arguments: JSON-serializable arguments. Default: none.
            arrays: Arrays of the request, by name. Default: none.

        Returns:
            The result, and the arrays of the response by name.

        Raises:
            TfhybridError: The other end raised this error; the message names that end.
            StoreError: The connection is lost or closed, or the response is not a message.
        """
        with self.alone():
            self.start(call, arguments, arrays)
            return self.finish()

    def alone(self) -> contextlib.AbstractContextManager[object]:
        """Returns the lock of the connection, a context manager that keeps other threads out."""
        return self._lock

    def start(
        self, call: str, arguments: Mapping[str, Any] | None = None, arrays: Arrays | None = None
    ) -> None:
        """Sends a request without waiting for the response; the caller must hold `alone`.

        One thread can start calls on several connections and then finish them.

        Args:
            call: Name of the call.
            arguments: JSON-serializable arguments. Default: none.
            arrays: Arrays of the request, by name. Default: none.

        Raises:
            StoreError: The connection is lost or closed.
        """
        self._link.send({"call": call, "arguments": dict(arguments or {})}, arrays)

    def finish(self) -> tuple[Any, dict[str, np.ndarray]]:
        """Waits for the response to the oldest unfinished `start`. The caller must hold `alone`.

        Returns:
            The result, and the arrays of the response by name.

        Raises:
            TfhybridError: The other end raised this error; the message names that end.
            StoreError: The connection is lost or closed, or the response is not a message.
        """
        response, arrays = self._link.receive()
        if "error" in response:
            kind = getattr(errors, str(response["error"]), StoreError)
            raise kind(f"{self.peer}: {response.get('text')}")
        return response.get("result"), arrays

    def close(self) -> None:
        """Closes the connection. Calls raise `StoreError` from then on, also one that waits now."""
        self._link.close()


def ask_together(
    callers: Sequence[Caller],
    call: str,
    arguments: Mapping[str, Any],
    arrays: Arrays | None = None,
) -> list[tuple[Any, dict[str, np.ndarray]]]:
    """Makes the same call on several connections and waits for all responses.

    It starts no threads, so it also works while Python exits.

    Args:
        callers: Connections to call on.
        call: Name of the call.
        arguments: JSON-serializable arguments.
        arrays: Arrays of the request, by name. Default: none.

    Returns:
        The result and the arrays of each response, in the order of `callers`.

    Raises:
        TfhybridError: A call failed or a connection is lost; one of the errors, raised after every
            call has ended.
    """
    answers: list[tuple[Any, dict[str, np.ndarray]]] = []
    failures: list[TfhybridError] = []
    with contextlib.ExitStack() as held:
        started = []
        for caller in callers:
            held.enter_context(caller.alone())
            try:
                caller.start(call, arguments, arrays)
                started.append(caller)
            except TfhybridError as error:
                failures.append(error)
        for caller in started:
            try:
                answers.append(caller.finish())
            except TfhybridError as error:
                failures.append(error)
    if failures:
        raise failures[0]
    return answers


def answer_calls(link: MessageLink, calls: Mapping[str, Called]) -> None:
    """Serves the calls of one connection until it ends, which raises.

    A `TfhybridError`, `OSError`, `KeyError`, `TypeError`, `ValueError` or `IndexError` of a call
    goes to the caller and does not end the connection. Any other error propagates.

    Args:
        link: Connection to the caller.
        calls: Function of each call, by name. It takes arguments and arrays, and returns a result
            and arrays.

    Raises:
        StoreError: The connection has ended, or the other end sent no message or no known call.
    """
    while True:
        message, arrays = link.receive()
        arguments = message.get("arguments")
        called = calls.get(str(message.get("call")))
        if called is None or not isinstance(arguments, dict):
            raise StoreError(
                f"{link.peer} must call one of {sorted(calls)}, with a JSON object of arguments. "
                f"Received: {message.get('call')!r}"
            )
        try:
            result, results = called(arguments, arrays)
        except (TfhybridError, OSError) as error:
            is_ours = isinstance(error, TfhybridError)
            name = type(error).__name__ if is_ours else StoreError.__name__
            link.send({"error": name, "text": str(error)})
        except (KeyError, TypeError, ValueError, IndexError) as error:
            text = f"The arguments of the call {message.get('call')} are invalid: {error!r}"
            link.send({"error": StoreError.__name__, "text": text})
        else:
            link.send({"result": result}, results)
