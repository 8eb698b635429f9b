"""Passes: the keys of the next batches, told to an engine so that their rows come ahead of time."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from tfhybrid.core import native
from tfhybrid.core.engine import Engine
from tfhybrid.errors import UnsupportedError

# What a batch looks up: keys of any shape, by the table's name.
BatchKeys = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class PassStats:
    """What passes have done since the job began; what is of the host is 0 on all but its leader.

    Args:
        passes: That this rank has announced.
        hits: Distinct keys of this rank's lookups that a pass had.
        misses: Distinct keys that an open pass of their table had not: they were fetched.
        asked: Rows that owners were asked for, for all ranks of the host.
        copied: Rows that another pass of the host had.
        fetched: Rows that came because they were asked for.
        refreshed: Rows that came because an update had changed them.
        bytes: Of the rows that came.
        written: Rows of sharded tables that updates changed on this host, which owns them.
        standing_rows: Rows in the passes of this rank that stand now: the fast tier.
        standing_bytes: What these take in shared memory.
        device_bytes: Of the variables on this rank's device (`TableConfig(fast_tier="device")`).
        device_rows: Rows that were copied into them.
    """

    passes: int = 0
    hits: int = 0
    misses: int = 0
    asked: int = 0
    copied: int = 0
    fetched: int = 0
    refreshed: int = 0
    bytes: int = 0
    written: int = 0
    standing_rows: int = 0
    standing_bytes: int = 0
    device_bytes: int = 0
    device_rows: int = 0


class _StatsStruct(ctypes.Structure):
    _fields_ = [(field.name, ctypes.c_int64) for field in dataclasses.fields(PassStats)]


class Pass:
    """A pass that was announced; a context that ends it.

    Args:
        engine: That it was announced to.
        number: By which the engine knows it.
        batches: How many it has.
    """

    def __init__(self, engine: Engine, number: int, batches: int) -> None:
        self._engine = engine
        self._number = ctypes.c_int64(number)
        self.batches = batches

    def begin(self, batch: int) -> None:
        """Opens the pass to lookups, and says that the batches before one are used up.

        So is a batch when this rank has posted an update of its tables.

        Args:
            batch: The one that is to be used next, from 0.

        Raises:
            ConfigError: The pass has no such batch.
        """
        self._engine.call("pass_begin_batch", self._number, ctypes.c_int64(batch))

    def end(self) -> None:
        """Ends the pass, and waits until its memory is given back; once more does nothing."""
        self._engine.call("pass_end", self._number)

    def __enter__(self) -> Pass:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()


def weigh(engine: Engine, batches: Sequence[BatchKeys]) -> int:
    """Returns how many bytes a pass of those batches would take.

    In shared memory, or in the variables on this rank's device, where that is more.

    Args:
        engine: Whose tables they look up.
        batches: What each of them looks up.

    Raises:
        StoreError: A table is not open.
    """
    found = ctypes.c_int64()
    arguments = _arguments(batches)
    engine.call("pass_weigh", *arguments.native, ctypes.byref(found))
    return found.value


def announce(engine: Engine, batches: Sequence[BatchKeys], *, refuses: bool = False) -> Pass:
    """Announces what the next batches of this rank look up.

    Their rows are on the way from then on; lookups take them from the pass once `Pass.begin` has
    opened it.

    Args:
        engine: Whose tables they look up.
        batches: What each of them looks up.
        refuses: A key that was not announced is an error while the pass is open, and not fetched.

    Raises:
        StoreError: A table is not open, or there is no room in shared memory.
        UnsupportedError: Embedding nodes own the tables: they take no announcements.
    """
    if engine.nodes:
        raise UnsupportedError(
            "Embedding nodes bring rows batch by batch: leave announce() out where TFHYBRID_NODES "
            f"is set. Received: an announcement to {engine.nodes} node(s)"
        )
    number = ctypes.c_int64()
    arguments = _arguments(batches)
    engine.call(
        "pass_announce",
        *arguments.native,
        ctypes.c_int64(len(batches)),
        ctypes.c_int(refuses),
        ctypes.byref(number),
    )
    return Pass(engine, number.value, len(batches))


def add_to_device(engine: Engine, table: str) -> None:
    """Lets lookups of a table gather its rows from a variable on this rank's device.

    Args:
        engine: In which it is open.
        table: Its name.

    Raises:
        StoreError: It is not open.
    """
    engine.call("table_add_to_device", table.encode())


def device_bytes(engine: Engine, table: str) -> int:
    """Returns the bytes of a table's variable on this rank's device; 0 if it has none."""
    found = ctypes.c_int64()
    engine.call("table_device_bytes", table.encode(), ctypes.byref(found))
    return found.value


def end_all(engine: Engine) -> None:
    """Ends all passes: rows are about to be overwritten from elsewhere. Every rank calls it."""
    engine.call("passes_end")


def stats(engine: Engine) -> PassStats:
    """Returns what passes have done since the store was opened."""
    found = _StatsStruct()
    engine.call("passes_get", ctypes.byref(found))
    return PassStats(*(getattr(found, field.name) for field in dataclasses.fields(PassStats)))


@dataclasses.dataclass(frozen=True)
class _Arguments:
    """Keys of a pass as C takes them, and what must outlive the call."""

    native: tuple[Any, ...]
    held: list[np.ndarray]


def _arguments(batches: Sequence[BatchKeys]) -> _Arguments:
    names = sorted({name for batch in batches for name in batch})
    keys, batch_of = [], []
    for name in names:
        of_batches = [np.ravel(np.asarray(batch.get(name, ()), np.int64)) for batch in batches]
        keys.append(np.ascontiguousarray(np.concatenate(of_batches)))
        numbers = np.arange(len(batches), dtype=np.int32)
        batch_of.append(np.repeat(numbers, [len(some) for some in of_batches]))
    count = len(names)
    arguments = (
        ctypes.c_int(count),
        (ctypes.c_char_p * count)(*(name.encode() for name in names)),
        (ctypes.c_int64 * count)(*map(len, keys)),
        native.pointers(keys),
        native.pointers(batch_of),
    )
    return _Arguments(arguments, keys + batch_of)
