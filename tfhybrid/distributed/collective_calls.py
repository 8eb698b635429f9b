"""Collective calls: their names and numbers, and the exchange in which all ranks meet.

Every rank sends the name of its call with its message. Ranks that are in different calls get an
error that names the calls, instead of each other's messages. A rank that waits can be asked for its
call by another thread (`tfhybrid/job/waits.py`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import struct
import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

from tfhybrid.errors import ConfigError

_MAGIC = b"tfhybrid"
_HEADER = struct.Struct("<8sQQQQ")  # magic, number, turn, bytes of the name, bytes of the payload
_UNNAMED = "a collective call"


@dataclasses.dataclass(frozen=True)
class CallState:
    """State of a rank in a collective call.

    Args:
        name: Name of the call.
        number: Number of the call among those of this name, from 1; 0 for a wait that is not an
            exchange of messages.
        waits: Whether the rank waits for other ranks at this moment.
    """

    name: str
    number: int
    waits: bool

    @property
    def key(self) -> tuple[str, int]:
        """Identity of the call, equal on all ranks that are in it."""
        return self.name, self.number

    def title(self) -> str:
        """Returns a text for messages, such as "call 3 of checkpoint.save"."""
        return f"call {self.number} of {self.name}" if self.number else self.name


@dataclasses.dataclass
class _Scope:
    """Call that this thread has begun; `turn` counts its exchanges."""

    name: str
    number: int
    turn: int = 0


class _Scopes(threading.local):
    """Calls that a thread has begun, the innermost last."""

    def __init__(self) -> None:
        self.open: list[_Scope] = []


_scopes = _Scopes()
_met: dict[str, int] = {}  # number of the last call of each name in which the ranks have met
_state: CallState | None = None  # replaced as a whole: the watch reads it on its own thread
_broken: CallState | None = None


def call_state() -> CallState | None:
    """Returns the collective call that this process is in, or `None`. Any thread may call it."""
    return _state


def broken_call() -> CallState | None:
    """Returns the call in which another rank's end was met, or `None`. Any thread may call it."""
    return _broken


@contextlib.contextmanager
def call(name: str) -> Iterator[None]:
    """Names the collectives of a block, or of a function as its decorator.

    Every rank must come here. A call within a call has its own name.

    Args:
        name: Name of the call as users write it, such as "checkpoint.save".
    """
    with _entered(_Scope(name, _met.get(name, 0) + 1), waits=False):
        yield


@contextlib.contextmanager
def waiting(what: str) -> Iterator[None]:
    """Names a wait for other ranks that is not a collective.

    Args:
        what: Description of the wait, such as "the opening of table 'user'".
    """
    with _entered(_Scope(what, 0), waits=True):
        yield


@contextlib.contextmanager
def _entered(scope: _Scope, *, waits: bool) -> Iterator[None]:
    global _state
    before, _state = _state, CallState(scope.name, scope.number, waits)
    _scopes.open.append(scope)
    try:
        yield
    finally:
        _scopes.open.pop()
        _state = before


def exchange(payload: bytes) -> list[memoryview]:
    """Returns the payloads of all ranks, in order. Every rank must call it, in the same call.

    Args:
        payload: Bytes of this rank.

    Raises:
        ConfigError: On all ranks, if the ranks are in different calls; the message names the calls.
        Exception: Error of Horovod or TensorFlow, if another rank has ended. Has a note with the
            call.
    """
    if not _scopes.open:
        with call(_UNNAMED):
            return exchange(payload)
    scope = _scopes.open[-1]
    if scope.number == 0:
        raise AssertionError(f"No exchange in a wait. Received: {scope.name}")
    scope.turn += 1
    parts = list(_split(_gather(_message(scope, payload))))
    _check_calls(parts)
    _met[scope.name] = max(scope.number, _met.get(scope.name, 0))
    return [part.content for part in parts]


class _RankMessage(NamedTuple):
    """Message of one rank: identity and title of its exchange, and its payload."""

    key: tuple[str, int, int]
    title: str
    content: memoryview


def _message(scope: _Scope, payload: bytes) -> bytes:
    name = scope.name.encode()
    header = _HEADER.pack(_MAGIC, scope.number, scope.turn, len(name), len(payload))
    return b"".join([header, name, payload])


def _gather(message: bytes) -> memoryview:
    """Returns the messages of all ranks behind each other; the state says that this rank waits."""
    global _state, _broken
    before = _state
    assert before is not None
    _state = dataclasses.replace(before, waits=True)
    try:
        own = tf.convert_to_tensor(np.frombuffer(message, np.uint8))
        return memoryview(hvd.allgather(own, name="tfhybrid.call").numpy())
    except Exception as error:
        _broken = _state
        error.add_note(f"This rank waited for the other ranks in {before.title()}.")
        raise
    finally:
        _state = before


def _split(gathered: memoryview) -> Iterator[_RankMessage]:
    begin = 0
    while begin < len(gathered):
        if gathered[begin : begin + len(_MAGIC)] != _MAGIC:
            raise ConfigError(
                "While a rank is in a collective call of tfhybrid, no other rank may call a "
                f"collective of Horovod itself. Received: another message, in {_title()}"
            )
        _, number, turn, of_name, of_payload = _HEADER.unpack_from(gathered, begin)
        begin += _HEADER.size
        name = bytes(gathered[begin : begin + of_name]).decode()
        begin += of_name
        title = CallState(name, number, waits=True).title()
        yield _RankMessage((name, number, turn), title, gathered[begin : begin + of_payload])
        begin += of_payload


def _title() -> str:
    return "no call" if _state is None else _state.title()


def _check_calls(parts: Sequence[_RankMessage]) -> None:
    """Raises `ConfigError` unless all ranks are in the same exchange of the same call."""
    ranks: dict[tuple[str, int, int], list[int]] = {}
    for rank, part in enumerate(parts):
        ranks.setdefault(part.key, []).append(rank)
    if len(ranks) <= 1:
        return
    repeated = len({part.title for part in parts}) < len(ranks)
    calls = [
        f"{parts[of_key[0]].title}{f', exchange {key[2]},' if repeated else ''} on rank "
        + ", ".join(map(str, of_key))
        for key, of_key in ranks.items()
    ]
    raise ConfigError(
        "All ranks must make the same collective calls in the same order: take the call out of "
        f"`if tfhybrid.rank() == 0:`. Received: {'; '.join(calls)}"
    )
