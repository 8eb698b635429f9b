"""End of generators before Python ends.

TensorFlow's data sets call our generators from threads of its own. A thread that is within such a
call while the interpreter finalizes can never return from it, and the main thread, which frees the
data set's iterator, waits for that thread: the process does not end. So the generators are told to
end, and calls under way are waited for, while Python still runs: by `atexit`, which comes before
finalization on every way out (the end of the script, an exception, `sys.exit`, Ctrl-C). A call that
begins later is refused by TensorFlow itself.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from typing_extensions import override

_T = TypeVar("_T", covariant=True)

_log = logging.getLogger("tfhybrid.data")

_PATIENCE_SECONDS = 60.0  # as long as a lost data node may take to come back
_LOGGED_SECONDS = 5.0
_POLL_SECONDS = 0.005
_QUIET_POLLS = 4
_SETTLING_SECONDS = 5.0


class Closeable(Protocol):
    """Stream that a generator may wait for."""

    def close(self) -> None:
        """Ends the wait. Any thread may call it, at any time."""


class _Calls:
    """Calls of generators under way, generators and streams. Guarded by `changed`."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.ended = False
        self.under_way = 0
        self.begun = 0
        self.iterators: weakref.WeakSet[EndingIterator[Any]] = weakref.WeakSet()
        self.streams: weakref.WeakSet[Closeable] = weakref.WeakSet()


_calls = _Calls()


def python_ends() -> bool:
    """Returns whether generators must end because Python does. Any thread may call it."""
    return _calls.ended


def close_at_end(stream: Closeable) -> None:
    """Closes a stream when Python ends, to wake a generator that waits. Any thread may call it.

    Args:
        stream: Stream, which is not kept alive.
    """
    with _calls.changed:
        _calls.streams.add(stream)


class EndingIterator(Iterator[_T], Generic[_T]):
    """Iterator over the elements of another one, which ends when Python ends.

    Any thread may call it; one thread at a time.

    Args:
        iterator: Iterator to read; closed at the end, if it can be.
    """

    def __init__(self, iterator: Iterator[_T]) -> None:
        self._iterator: Iterator[_T] | None = iterator
        with _calls.changed:
            _calls.iterators.add(self)

    @override
    def __iter__(self) -> EndingIterator[_T]:
        return self

    @override
    def __next__(self) -> _T:
        calls = _calls  # the same ones at the end, also in a child that is forked meanwhile
        with calls.changed:
            calls.begun += 1
            if calls.ended or self._iterator is None:
                raise StopIteration
            calls.under_way += 1
        try:
            return next(self._iterator)
        finally:
            with calls.changed:
                calls.under_way -= 1
                calls.changed.notify_all()

    def close(self) -> None:
        """Closes the iterator; no call may be under way."""
        iterator, self._iterator = self._iterator, None
        close = getattr(iterator, "close", None)
        if close is not None:
            close()


def end_generators() -> None:
    """Ends all generators, and waits for calls under way. Later calls only wait.

    Python calls it at exit. It waits for up to a minute, and logs after 5 s what it waits for.
    """
    with _calls.changed:
        _calls.ended = True
        streams = list(_calls.streams)
    for stream in streams:
        with contextlib.suppress(Exception):  # one that fails must not keep the others waiting
            stream.close()
    if not _calls.begun:
        return
    with _calls.changed:
        if not _calls.changed.wait_for(_none_under_way, _LOGGED_SECONDS):
            _log.warning("Python ends when the data set has finished reading its batch")
            _calls.changed.wait_for(_none_under_way, _PATIENCE_SECONDS - _LOGGED_SECONDS)
        iterators = [] if _calls.under_way else list(_calls.iterators)
    for iterator in iterators:
        with contextlib.suppress(Exception):  # nobody reads it any more
            iterator.close()
    _settle()


def _none_under_way() -> bool:
    return _calls.under_way == 0


def _settle() -> None:
    """Waits until no thread of TensorFlow calls Python any more.

    A thread that has got the end of its data calls once more, to free the generator. Before that it
    may compute for a while, or want a processor that others have.
    """
    deadline = time.monotonic() + _SETTLING_SECONDS
    quiet = 0
    while quiet < _QUIET_POLLS and time.monotonic() < deadline:
        begun = _calls.begun
        time.sleep(_POLL_SECONDS)
        busy = _calls.under_way or _calls.begun != begun or _foreign_threads_run()
        quiet = 0 if busy else quiet + 1


def _foreign_threads_run() -> bool:
    """Returns whether a thread that Python did not start runs, or would with a free processor."""
    # Python gives the threads of others a name as soon as they ask for it.
    own = [each for each in threading.enumerate() if not each.name.startswith("Dummy-")]
    if not {each.ident for each in own}.issuperset(sys._current_frames()):
        return True
    # A forked child's main thread keeps the `native_id` that it had in its parent.
    own_ids = {threading.get_native_id(), *(each.native_id for each in own)}
    return any(_runs(each) for each in os.listdir("/proc/self/task") if int(each) not in own_ids)


def _runs(thread: str) -> bool:
    """Returns whether a thread of this process neither waits nor has ended."""
    try:
        state = Path(f"/proc/self/task/{thread}/stat").read_text()
    except OSError:  # it has ended since it was listed
        return False
    return state.rpartition(")")[2].split()[0] in "RD"


def _forget_calls() -> None:
    """Forgets the parent's calls in a forked child, which has none of its threads."""
    global _calls
    _calls = _Calls()


os.register_at_fork(after_in_child=_forget_calls)
atexit.register(end_generators)
