"""Short errors of a rank that ends because another one did, or with the same error as rank 0.

If another rank died, the watch has already logged which one. The error of this rank only shows
which collective or wait broke.

An error in a script usually ends all ranks, and the launcher mixes the lines of their tracebacks.
So rank 0 prints its traceback at once, and another rank begins with one line. It prints its own
traceback if it still runs some seconds later, because then no other rank has failed. Meanwhile it
has left the job: horovodrun does not end ranks of other hosts, and the next job there wants the
memory of its tables.
"""

from __future__ import annotations

import logging
import re
import sys
import time
import traceback
from collections.abc import Callable
from types import TracebackType

import tensorflow as tf

_log = logging.getLogger("tfhybrid.job")

_SECONDS_TO_END = 5.0  # for another rank with the same error to end
_SECONDS_TO_TERMINATE = 10.0  # for the launcher to end this rank, after another one has ended

_NOBODYS = ("sys", "typer.main")  # modules of the hooks of Python and of the command `tfhybrid`
# From Horovod after it ended or lost a connection, and from an op that waited for a dead rank.
_BROKEN = re.compile(r"Horovod has been shut down|HorovodInternalError|\bhas died\b|\bhas ended\b")
_OF_GRAPH = re.compile(r"^(\s|Detected at node |Graph execution error|Traceback |$)")


def shorten(rank: int, another_ends: Callable[[float], bool], leave: Callable[[], object]) -> None:
    """Sets an exception hook that shortens errors caused by the end of another rank.

    Other errors go to the hook that was set before. If that is not the script's, ranks other than 0
    first print one line and leave rank 0 the time to end the job with its traceback.

    A second call does nothing. Only the main thread should call it: the hook is that of the process
    (`sys.excepthook`).

    Args:
        rank: Number of this rank.
        another_ends: Function that waits up to a number of seconds until another rank has ended,
            and returns whether one has.
        leave: Function that leaves the job and frees the memory of its tables.
    """
    before = sys.excepthook
    if getattr(before, "shortens", False):
        return
    waits = rank > 0 and getattr(before, "__module__", None) in _NOBODYS

    def hook(kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
        text = last_words(error, frames)
        if text is not None:
            _log.debug("Full traceback", exc_info=(kind, error, frames))
            sys.stderr.write(text)
            return
        if waits and issubclass(kind, Exception):  # Ctrl-C ends every rank at once
            sys.stderr.write(_one_line(rank, error, frames))
            if another_ends(_SECONDS_TO_END):
                leave()
                time.sleep(_SECONDS_TO_TERMINATE)
        before(kind, error, frames)

    hook.shortens = True  # type: ignore[attr-defined]
    sys.excepthook = hook


def _one_line(rank: int, error: BaseException, frames: TracebackType | None) -> str:
    """Returns an error of a rank in one line: its type, the line of the script, and the message.

    Args:
        rank: Number of the rank.
        error: Error that ends the rank.
        frames: Traceback of the error; `None` leaves out file and line.
    """
    return (
        f"Rank {rank}{_where(frames)}: {type(error).__name__}: {_first_line(error)} (Rank 0 prints "
        f"its traceback if it failed too; otherwise that of rank {rank} follows.)\n"
    )


def last_words(error: BaseException, frames: TracebackType | None) -> str | None:
    """Returns the short text of an error, or `None` if it is not about the end of another rank.

    Args:
        error: Error that ends this process.
        frames: Traceback of the error; `None` leaves out file and line.
    """
    broken = isinstance(error, tf.errors.OpError) or type(error).__name__ == "HorovodInternalError"
    if not broken or not _BROKEN.search(f"{type(error).__name__}: {error}"):
        return None
    message = re.sub(r"\s*\[\[.*", "", _first_line(error)).strip()  # without nodes
    notes = "".join(f"{note}\n" for note in getattr(error, "__notes__", []))
    return (
        f"{type(error).__name__}{_where(frames)}\n{message}\n{notes}"
        "This rank ends because another one did. The log above, or the log of that rank, says why. "
        "Set TFHYBRID_LOG_LEVEL=DEBUG to print the full traceback.\n"
    )


def _first_line(error: BaseException) -> str:
    """Returns the first line of an error's message that is not about the graph."""
    lines = [line for line in str(error).splitlines() if not _OF_GRAPH.match(line)]
    return lines[0] if lines else str(error)


def _where(frames: TracebackType | None) -> str:
    """Returns the line of the script in which an error arose, or an empty text."""
    stack = [each for each in traceback.extract_tb(frames) if each.filename[:1] != "<"]  # of -m
    return f" at {stack[0].filename}:{stack[0].lineno}, {stack[0].line}" if stack else ""
