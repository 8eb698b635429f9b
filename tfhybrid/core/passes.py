"""Passes: keys of the next batches, announced to an engine, which fetches their rows in advance."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfhybrid._deprecated import renamed_attributes
from tfhybrid.core import native
from tfhybrid.core.engine import Engine
from tfhybrid.errors import UnsupportedError

# The keys that a batch looks up, of any shape, by the name of the table.
BatchKeys = Mapping[str, np.ndarray]


@renamed_attributes(asked="requested")
@dataclasses.dataclass(frozen=True)
class PassStats:
    """Counters of passes since the store was opened.

    Those from `requested` to `written` count all ranks of the host, and are 0 except on its leader.
    The others count this rank.

    Args:
        passes: Passes that this rank has announced.
        hits: Distinct keys of this rank's lookups that a pass had.
        misses: Distinct keys that were fetched, because the open pass of their table lacked them.
        requested: Rows that were requested from their owners.
        copied: Rows that were copied from another pass of the host.
        fetched: Rows that were received on request.
        refreshed: Rows that were received again because an update had changed them.
        bytes: Bytes of all received rows.
        written: Rows of sharded tables that updates changed on this host, which owns them.
        standing_rows: Rows in this rank's passes that have not ended: the fast tier.
        standing_bytes: Shared memory of these passes.
        ahead_hits: Lookups of this process whose keys had been numbered ahead.
        ahead_misses: Other lookups of the same layers in training.
    """

    passes: int = 0
    hits: int = 0
    misses: int = 0
    requested: int = 0
    copied: int = 0
    fetched: int = 0
    refreshed: int = 0
    bytes: int = 0
    written: int = 0
    standing_rows: int = 0
    standing_bytes: int = 0
    ahead_hits: int = 0
    ahead_misses: int = 0


class _StatsStruct(ctypes.Structure):
    _fields_ = [(field.name, ctypes.c_int64) for field in dataclasses.fields(PassStats)]


class Pass:
    """Rows of announced batches that this host fetches ahead; a context manager that ends the pass.

    Args:
        engine: Engine to which it was announced.
        number: Number of the pass in the engine.
        batches: Number of its batches.
    """

    def __init__(self, engine: Engine, number: int, batches: int) -> None:
        self._engine = engine
        self._number = ctypes.c_int64(number)
        self.batches = batches

    def begin(self, batch: int) -> None:
        """Opens the pass to lookups, and marks the batches before this one as used up.

        A batch is also used up once this rank has posted an update of its tables. Does not wait,
        and does nothing if the pass has ended.

        Args:
            batch: Number of the batch that is used next, from 0.

        Raises:
            ConfigError: The pass has no such batch.
            StoreError: The job has ended.
        """
        self._engine.call("pass_begin_batch", self._number, ctypes.c_int64(batch))

    def end(self) -> None:
        """Ends the pass, and waits until its rows' memory is free. A second call does nothing.

        Raises:
            StoreError: The job has ended, or the leader of this host has died.
        """
        self._engine.call("pass_end", self._number)

    def __enter__(self) -> Pass:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def weigh(engine: Engine, batches: Sequence[BatchKeys]) -> int:
    """Returns the bytes that a pass of these batches would take.

    That is the larger of its shared memory and its part of the variables on this rank's device.

    Args:
        engine: Engine that has the tables.
        batches: Keys of each batch.

    Raises:
        StoreError: A table or the store is not open.
    """
    size = ctypes.c_int64()
    arguments = _arguments(batches)
    engine.call("pass_weigh", *arguments.native, ctypes.byref(size))
    return size.value


def announce(engine: Engine, batches: Sequence[BatchKeys], *, refuses: bool = False) -> Pass:
    """Announces the keys of this rank's next batches, and starts to fetch their rows.

    Lookups take rows from the pass once `Pass.begin` has opened it.

    Args:
        engine: Engine that has the tables.
        batches: Keys of each batch.
        refuses: Whether a lookup of another key fails while the pass is open. If `False`, such a
            key is fetched.

    Returns:
        The pass, which is closed to lookups until `Pass.begin`. The caller ends it.

    Raises:
        StoreError: A table or the store is not open, or shared memory is full.
        UnsupportedError: Embedding nodes own the tables: they take no announcements.
    """
    if not engine.takes_announcements:
        raise UnsupportedError(
            "Embedding nodes send rows batch by batch and take no announcements: do not call "
            "announce() if TFHYBRID_NODES is set. Received: an announcement to embedding nodes"
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


def end_all(engine: Engine) -> None:
    """Ends all passes of this rank. A leader ends all passes of its host.

    Every rank calls it before rows are overwritten, e.g. by loading.

    Raises:
        StoreError: No store is open.
    """
    engine.call("passes_end")


def stats(engine: Engine) -> PassStats:
    """Returns the counters of passes since the store was opened.

    Raises:
        StoreError: No store is open.
    """
    counters = _StatsStruct()
    engine.call("passes_get", ctypes.byref(counters))
    return PassStats(*(getattr(counters, field.name) for field in dataclasses.fields(PassStats)))


@dataclasses.dataclass(frozen=True)
class _Arguments:
    """Arguments of a C function for the keys of a pass, and the arrays that they point to."""

    native: tuple[Any, ...]
    arrays: list[np.ndarray]


def _arguments(batches: Sequence[BatchKeys]) -> _Arguments:
    names = sorted({name for batch in batches for name in batch})
    keys, batch_of = [], []
    for name in names:
        of_batches = [np.ravel(np.asarray(batch.get(name, ()), np.int64)) for batch in batches]
        keys.append(np.ascontiguousarray(np.concatenate(of_batches)))
        numbers = np.arange(len(batches), dtype=np.int32)
        batch_of.append(np.repeat(numbers, [len(of_batch) for of_batch in of_batches]))
    count = len(names)
    arguments = (
        ctypes.c_int(count),
        (ctypes.c_char_p * count)(*(name.encode() for name in names)),
        (ctypes.c_int64 * count)(*map(len, keys)),
        native.pointers(keys),
        native.pointers(batch_of),
    )
    return _Arguments(arguments, keys + batch_of)
