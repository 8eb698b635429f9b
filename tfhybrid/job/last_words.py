"""Shortens the error of a process that ends because another rank ended.

The watch has already logged which rank died; this rank's collectives and waits only broke.
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
    """Shortens, from now on, errors that only say that another rank has ended."""
    before = sys.excepthook
    if getattr(before, "shortens", False):
        return

    def hook(kind: type[BaseException], error: BaseException, frames: TracebackType | None) -> None:
        text = last_words(error, frames)
        if text is None:
            before(kind, error, frames)
            return
        _log.debug("The whole traceback", exc_info=(kind, error, frames))
        sys.stderr.write(text)

    hook.shortens = True  # type: ignore[attr-defined]
    sys.excepthook = hook


def last_words(error: BaseException, frames: TracebackType | None) -> str | None:
    """Returns the short form of an error, or `None` if it is not about another rank."""
    broken = isinstance(error, tf.errors.OpError) or type(error).__name__ == "HorovodInternalError"
    if not broken or not _BROKEN.search(f"{type(error).__name__}: {error}"):
        return None
    lines = [line for line in str(error).splitlines() if not _OF_GRAPH.match(line)]
    message = re.sub(r"\s*\[\[.*", "", lines[0] if lines else str(error)).strip()
    stack = traceback.extract_tb(frames)
    where = f" at {stack[0].filename}:{stack[0].lineno}, {stack[0].line}" if stack else ""
    return (
        f"{type(error).__name__}{where}\n{message}\n"
        "This rank ends because another one did: the log above, or that rank's own, says why. "
        "TFHYBRID_LOG_LEVEL=DEBUG prints the whole traceback.\n"
    )
