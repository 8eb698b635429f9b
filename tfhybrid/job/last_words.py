"""Short errors for a process that ends because another rank ended.

The watch has already logged which rank died. The error of this rank only shows which collective or
wait broke.
"""

from __future__ import annotations

import logging
import re
import sys
import traceback
from types import TracebackType

import tensorflow as tf

_log = logging.getLogger("tfhybrid.job")

# From Horovod after it ended or lost a connection, and from an op that waited for a dead rank.
_BROKEN = re.compile(r"Horovod has been shut down|HorovodInternalError|\bhas died\b|\bhas ended\b")
_OF_GRAPH = re.compile(r"^(\s|Detected at node |Graph execution error|Traceback |$)")


def shorten() -> None:
    """Sets an exception hook that shortens errors caused by the end of another rank.

    A second call does nothing. Other errors go to the hook that was set before.

    Only the main thread should call it: the hook is that of the process (`sys.excepthook`).
    """
    before = sys.excepthook
    if getattr(before, "shortens", False):
        return

    def hook(kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
        text = last_words(error, frames)
        if text is None:
            before(kind, error, frames)
            return
        _log.debug("Full traceback", exc_info=(kind, error, frames))
        sys.stderr.write(text)

    hook.shortens = True  # type: ignore[attr-defined]
    sys.excepthook = hook


def last_words(error: BaseException, frames: TracebackType | None) -> str | None:
    """Returns the short text of an error, or `None` if it is not about the end of another rank.

    Args:
        error: Error that ends this process.
        frames: Traceback of the error; `None` leaves out file and line.
    """
    broken = isinstance(error, tf.errors.OpError) or type(error).__name__ == "HorovodInternalError"
    if not broken or not _BROKEN.search(f"{type(error).__name__}: {error}"):
        return None
    lines = [line for line in str(error).splitlines() if not _OF_GRAPH.match(line)]
    message = re.sub(r"\s*\[\[.*", "", lines[0] if lines else str(error)).strip()
    stack = traceback.extract_tb(frames)
    notes = "".join(f"{note}\n" for note in getattr(error, "__notes__", []))
    where = f" at {stack[0].filename}:{stack[0].lineno}, {stack[0].line}" if stack else ""
    return (
        f"{type(error).__name__}{where}\n{message}\n{notes}"
        "This rank ends because another one did. The log above, or the log of that rank, says why. "
        "Set TFHYBRID_LOG_LEVEL=DEBUG to print the full traceback.\n"
    )
