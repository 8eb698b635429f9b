"""Rates per second, from the counters that nodes report."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

# Counters that only grow, until a node or its job starts anew.
COUNTED = ("updates", "served_rows", "served_bytes", "received_bytes", "sent_bytes")


class Rates:
    """Rates of one node's counters. Not thread-safe.

    Args:
        clock: Function that returns a time in seconds. Default: `time.monotonic`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._before: Mapping[str, float] = {}
        self._at = 0.0

    def of(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """Returns the growth of each counter per second since the last call.

        Args:
            numbers: Numbers that the node reports now, by name.

        Returns:
            `NAME_per_second` of each counter in `COUNTED`. Left out are counters that are missing
            in one of the two reports, or that have started anew since the last call.
        """
        before, self._before = self._before, dict(numbers)
        at, self._at = self._at, self._clock()
        seconds = self._at - at
        return {
            f"{name}_per_second": (numbers[name] - before[name]) / seconds
            for name in COUNTED
            if name in numbers and numbers[name] >= before.get(name, float("inf")) and seconds > 0
        }
