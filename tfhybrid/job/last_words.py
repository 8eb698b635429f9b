"""What a process prints that ends because another rank did: a few lines, not the graph's traceback.

Who has died is in the log already, by the watch; this rank's collectives and waits merely broke.
"""

from __future__ import annotations

import logging
import re
import sys
import traceback
from types import TracebackType

import tensorflow as tf

_log = logging.getLogger("tfhybrid.job")

# Of Horovod when it has ended or lost a connection, and of an op that waited for a rank that died.
_BROKEN = re.compile(r"Horovod has been shut down|HorovodInternalError|\bhas died\b|\bhas ended\b")
_OF_GRAPH = re.compile(r"^(\s|Detected at node |Graph execution error|Traceback |$)")


def shorten() -> None:
    """From now on errors that only say that another rank is gone are printed in a few lines."""
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
    """Returns what to print of an error, or `None` if it is not about another rank."""
    broken = isinstance(error, tf.errors.OpError) or type(error).__name__ == "HorovodInternalError"
    if not broken or not _BROKEN.search(f"{type(error).__name__}: {error}"):
        return None
    lines = [line for line in str(error).splitlines() if not _OF_GRAPH.match(line)]
    message = re.sub(r"\s*\[\[.*", "", lines[0] if lines else str(error)).strip()
    stack = traceback.extract_tb(frames)
    where = f" at {stack[0].filename}:{stack[0].lineno}, {stack[0].line}" if stack else ""
    return (
        f"{type(error).__name__}{where}\n{message}\n"
        "This rank ends because another one has: the log above, or that rank's own, says why. "
        "TFHYBRID_LOG_LEVEL=DEBUG prints the whole traceback.\n"
    )
