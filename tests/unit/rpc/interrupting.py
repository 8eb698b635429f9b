"""Interruption of a block, as Ctrl-C in a notebook interrupts it."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


class InterruptedCallError(Exception):
    """Raised by the handler of the signal."""


@contextlib.contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Interrupts the block of the main thread after a time."""

    def interrupt(*_: object) -> None:
        raise InterruptedCallError

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
