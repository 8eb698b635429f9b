"""What nodes do in a second, from the numbers that they tell."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

# What nodes count from their start, or a job's, on.
COUNTED = ("updates", "served_rows", "served_bytes", "received_bytes", "sent_bytes")


class Rates:
    """The rates of one node.

    Args:
        clock: Tells seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._before: Mapping[str, float] = {}
        self._at = 0.0

    def of(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """Returns by how much each count of a node grew in a second since it was told last.

        Args:
            numbers: What the node tells now.

        Returns:
            `NAME_per_second`, for each of `COUNTED` that was told twice and has not begun anew.
        """
        before, self._before = self._before, dict(numbers)
        at, self._at = self._at, self._clock()
        seconds = self._at - at
        return {
            f"{name}_per_second": (numbers[name] - before[name]) / seconds
            for name in COUNTED
            if name in numbers and numbers[name] >= before.get(name, float("inf")) and seconds > 0
        }
