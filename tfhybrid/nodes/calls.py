"""Calls from one process to another: a message asks, one answers, in order."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tfhybrid import errors
from tfhybrid.errors import StoreError, TfhybridError
from tfhybrid.nodes.messages import Arrays, MessageLink

Answer = tuple[Any, Arrays]
Called = Callable[[dict[str, Any], dict[str, np.ndarray]], Answer]


class Caller:
    """The end that asks. Thread-safe: one call at a time.

    Args:
        link: A connected socket, the caller's from now on.
        peer: What the other end is called, for errors.
    """

    def __init__(self, link: socket.socket, peer: str) -> None:
        self._link = MessageLink(link, peer)
        self._lock = threading.Lock()

    @property
    def peer(self) -> str:
        """What the other end is called."""
        return self._link.peer

    def ask(
        self, call: str, arguments: Mapping[str, Any] | None = None, arrays: Arrays | None = None
    ) -> tuple[Any, dict[str, np.ndarray]]:
        """Asks and waits for the answer.

        Args:
            call: Which one.
            arguments: What JSON can say.
            arrays: That go with them.

        Returns:
            The result, and the arrays that came with it.

        Raises:
            TfhybridError: What the other end raised; its message names that end.
            StoreError: It is gone.
        """
        with self.alone():
            self.start(call, arguments, arrays)
            return self.finish()

    def alone(self) -> contextlib.AbstractContextManager[object]:
        """Has other threads wait with their calls meanwhile."""
        return self._lock

    def start(
        self, call: str, arguments: Mapping[str, Any] | None = None, arrays: Arrays | None = None
    ) -> None:
        """Asks and does not wait; several may be asked, on one thread.

        Args:
            call: Which one.
            arguments: What JSON can say.
            arrays: That go with them.

        Raises:
            StoreError: The other end is gone.
        """
        self._link.send({"call": call, "arguments": dict(arguments or {})}, arrays)

    def finish(self) -> tuple[Any, dict[str, np.ndarray]]:
        """Waits for the first answer that was not waited for; returns and raises as `ask`."""
        answer, found = self._link.receive()
        if "error" in answer:
            kind = getattr(errors, str(answer["error"]), StoreError)
            raise kind(f"{self.peer}: {answer.get('text')}")
        return answer.get("result"), found

    def close(self) -> None:
        """Ends the connection; a call that waits fails."""
        self._link.close()


def ask_together(
    callers: Sequence[Caller],
    call: str,
    arguments: Mapping[str, Any],
    arrays: Arrays | None = None,
) -> list[tuple[Any, dict[str, np.ndarray]]]:
    """Asks several, and waits until all have answered; without threads, so when Python exits, too.

    Args:
        callers: Whom to ask.
        call: As of `Caller.ask`, and so are the rest.
        arguments: What JSON can say.
        arrays: That go with them.

    Returns:
        The answers, in that order.

    Raises:
        TfhybridError: What the first of them raised, once all have answered.
    """
    answers: list[tuple[Any, dict[str, np.ndarray]]] = []
    failures: list[TfhybridError] = []
    with contextlib.ExitStack() as held:
        asked = []
        for caller in callers:
            held.enter_context(caller.alone())
            try:
                caller.start(call, arguments, arrays)
                asked.append(caller)
            except TfhybridError as error:
                failures.append(error)
        for caller in asked:
            try:
                answers.append(caller.finish())
            except TfhybridError as error:
                failures.append(error)
    if failures:
        raise failures[0]
    return answers


def answer_calls(link: MessageLink, calls: Mapping[str, Called]) -> None:
    """Answers calls until the other end is gone.

    Args:
        link: To whoever asks.
        calls: What may be asked: takes arguments and arrays, returns a result and arrays.

    Raises:
        StoreError: The other end is gone, or sent what is no call.
    """
    while True:
        message, arrays = link.receive()
        arguments = message.get("arguments")
        called = calls.get(str(message.get("call")))
        if called is None or not isinstance(arguments, dict):
            raise StoreError(
                f"{link.peer} may ask for {sorted(calls)}. Received: {message.get('call')!r}"
            )
        try:
            result, found = called(arguments, arrays)
        except (TfhybridError, OSError) as error:
            known = isinstance(error, TfhybridError)
            name = type(error).__name__ if known else StoreError.__name__
            link.send({"error": name, "text": str(error)})
        except (KeyError, TypeError, ValueError, IndexError) as error:  # arguments that cannot be
            text = f"{message.get('call')} got what it cannot use: {error!r}"
            link.send({"error": StoreError.__name__, "text": text})
        else:
            link.send({"result": result}, found)
