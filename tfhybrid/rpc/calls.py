"""Remote calls between two processes: one message per request and one per response, in order.

Every call has a number, which its answer repeats. A connection on which a call was interrupted is
closed, so that no later call can take the answer of an earlier one.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar

from tfhybrid import errors
from tfhybrid.errors import StoreError, TfhybridError
from tfhybrid.rpc.messages import LostError, MessageLink, SilentError
from tfhybrid.rpc.remote_methods import Answer, Call, Called, call_to
from tfhybrid.rpc.running_calls import running_calls
from tfhybrid.rpc.tls_relay import BoundedLog
from tfhybrid.rpc.tokens import RIGHTS, permits

_log = logging.getLogger("tfhybrid.rpc")
_failures = BoundedLog(_log)

_P = ParamSpec("_P")
_T = TypeVar("_T")

# Errors that travel by name. Any other error of the other end arrives as a `StoreError`.
_KINDS: dict[str, type[TfhybridError]] = {
    kind.__name__: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, TfhybridError)
}


class Caller:
    """Client end of a connection for calls.

    Thread-safe: a call waits until the one before has ended.

    An exception that is not an error of the other end, such as `KeyboardInterrupt` while a call
    waits, closes the connection. A call that waits for 10, 20, 40 and so on seconds is logged.

    Args:
        link: Connected socket; closed by `close`.
        peer: Name of the other end, for errors.
        limit: Maximum time in seconds for which the other end may be silent during a call. Default:
            `None`, no limit.
    """

    def __init__(self, link: socket.socket, peer: str, limit: float | None = None) -> None:
        self._link = MessageLink(link, peer, limit)
        self._lock = threading.Lock()
        self._started = self._finished = 0  # calls so far
        self._is_closed = False

    @property
    def peer(self) -> str:
        """Name of the other end."""
        return self._link.peer

    @property
    def is_closed(self) -> bool:
        """Whether this end has closed the connection, for example after an interrupted call."""
        return self._is_closed

    def call(
        self, method: Callable[Concatenate[Any, _P], _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Calls a remote method of the other end and returns its result.

        Args:
            method: Function of a class, such as `Engine.digest`.
            *args: Positional arguments of the method after `self`.
            **kwargs: Keyword arguments of the method.

        Raises:
            TfhybridError: The other end raised this error; the message names that end.
            LostError: The connection is lost.
        """
        return self.ask(call_to(method, *args, **kwargs))

    def ask(self, call: Call[_T]) -> _T:
        """Sends a call, waits for the response, and returns the result.

        Args:
            call: The call.

        Raises:
            TfhybridError: The other end raised this error; the message names that end.
            LostError: The connection is lost.
        """
        with self.alone():
            self.start(call)
            return self.finish(call)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Makes the calls of other threads wait during the block.

        The connection is closed if the block leaves a call unfinished.
        """
        with self._lock:
            try:
                yield
            finally:
                if self._finished != self._started:
                    self.close()

    def start(self, call: Call[Any]) -> None:
        """Sends a request without waiting for the response.

        The caller must hold `alone`, unless only one thread uses the connection. One thread can
        start calls on several connections and then finish them.

        Args:
            call: The call.

        Raises:
            LostError: The connection is lost, or was closed by an interrupted call.
        """
        if self._is_closed:
            raise LostError(f"The connection to {self.peer} was closed at this end")
        self._started += 1
        message = {
            "call": call.name,
            "arguments": call.arguments,
            "number": self._started,
        }
        with self._closing_unless_done():
            try:
                self._link.send(message, call.arrays, f"answer the call {call.name}")
            except SilentError:
                raise
            except LostError as error:
                raise self._refusal() or error from None

    def finish(self, call: Call[_T]) -> _T:
        """Waits for the response to the oldest unfinished `start` and returns the result.

        The same rules as for `start` apply.

        Args:
            call: The call that `start` sent.

        Raises:
            TfhybridError: The other end raised this error; the message names that end.
            LostError: The connection is lost.
        """
        with self._closing_unless_done():
            response, arrays = self._link.receive(f"answer the call {call.name}")
            number = response.get("number")
            if number is None and "error" in response:
                raise self._error_of(response)  # the other end refuses the connection
            if number != self._finished + 1:
                raise StoreError(
                    f"{self.peer} must answer call {self._finished + 1}. Received: the answer to "
                    f"call {number}"
                )
            self._finished += 1
        if "error" in response:
            raise self._error_of(response)
        return call.result(response.get("result"), arrays, self.peer)

    def close(self) -> None:
        """Closes the connection. A call that waits on another thread fails."""
        self._is_closed = True
        self._link.close()

    @contextlib.contextmanager
    def _closing_unless_done(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _refusal(self) -> TfhybridError | None:
        """Returns why the other end has refused the connection, if it said so before it closed."""
        with contextlib.suppress(StoreError):
            response, _ = self._link.receive()
            if response.get("number") is None and "error" in response:
                return self._error_of(response)
        return None

    def _error_of(self, response: Mapping[str, Any]) -> TfhybridError:
        kind = _KINDS.get(str(response["error"]), StoreError)
        return kind(f"{self.peer}: {response.get('text')}")


def ask_each(calls: Sequence[tuple[Caller, Call[_T]]]) -> list[_T]:
    """Makes a call on each of several connections and waits for all responses.

    It starts no threads, so it also works while Python exits.

    Args:
        calls: Connections, and the call to make on each.

    Returns:
        The results, in the order of `calls`.

    Raises:
        TfhybridError: A call failed or a connection is lost; one of the errors, raised after every
            call has ended.
    """
    results: list[_T] = []
    failures: list[TfhybridError] = []
    with contextlib.ExitStack() as held:
        started = []
        for caller, call in calls:
            held.enter_context(caller.alone())
            try:
                caller.start(call)
                started.append((caller, call))
            except TfhybridError as error:
                failures.append(error)
        for caller, call in started:
            try:
                results.append(caller.finish(call))
            except TfhybridError as error:
                failures.append(error)
    if failures:
        raise failures[0]
    return results


def answer_calls(
    link: MessageLink, calls: Mapping[str, Called], rights: Mapping[str, str] | None = None
) -> None:
    """Serves the calls of one connection until it ends, which raises.

    An error of a call goes to the caller, is logged with the caller's name, and does not end the
    connection. An error that is neither tfhybrid's nor the system's is a bug, and is logged with
    its traceback. `RunningCalls.look` logs calls that take long.

    Args:
        link: Connection to the caller.
        calls: Function of each call, by name. It takes arguments and arrays, and returns a result
            and arrays.
        rights: Right that the token of a caller must have, by name of the call. Calls that are not
            in it need the right to operate, as all do by default.

    Raises:
        StoreError: The connection has ended, or the other end sent no message or no known call.
    """
    while True:
        message, arrays = link.receive()
        call, arguments = str(message.get("call")), message.get("arguments")
        called = calls.get(call)
        if called is None or not isinstance(arguments, dict):
            raise StoreError(
                f"{link.peer} must call one of {sorted(calls)}, with a JSON object of arguments. "
                f"Received: {call!r}"
            )
        if permits(link.right, needed := (rights or {}).get(call, RIGHTS[-1])):
            run: Callable[[], Answer] = functools.partial(called, arguments, arrays)
        else:
            run = functools.partial(_refuse, call, needed, link.right)
        _answer(link, call, run, message.get("number"))


def _answer(link: MessageLink, call: str, run: Callable[[], Answer], number: int | None) -> None:
    """Runs a call, and sends its result, or the error that it raises."""
    try:
        with running_calls.running(call, link.peer):
            result, results = run()
    except TfhybridError as error:
        _failures.warn("The call %s of %s failed: %s", call, link.peer, error)
        link.send(refusal(error, number))
    except OSError as error:
        _failures.warn("The call %s of %s failed: %s", call, link.peer, error)
        link.send(refusal(StoreError(str(error)), number))
    except Exception as error:
        _log.exception("The call %s of %s failed", call, link.peer)
        link.send(refusal(StoreError(f"The call {call} failed: {error!r}"), number))
    else:
        answer = {"number": number, "result": result}
        link.send(answer, results, f"read the answer to the call {call}")


def _refuse(call: str, needed: str, right: str | None) -> NoReturn:
    raise StoreError(
        f"The call {call} needs a token with the right to {needed}. Received: the token to {right}"
    )


def refusal(error: TfhybridError, number: int | None = None) -> dict[str, Any]:
    """Returns the message that makes a caller raise an error.

    Args:
        error: Error to raise; an error whose class is not one of `tfhybrid.errors` becomes a
            `StoreError`.
        number: Number of the call. Default: `None`, the whole connection is refused.
    """
    kinds = (kind.__name__ for kind in type(error).__mro__)
    return {
        "number": number,
        "error": next(kind for kind in kinds if kind in _KINDS),
        "text": str(error),
    }
