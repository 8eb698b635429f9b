"""The rows of a queue that are applied: all rows before a frontier, and some ranges after it."""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from tfhybrid.errors import StreamError
from tfhybrid.stream.queues.queue import QueuePosition
from tfhybrid.stream.weights.lease import Range


class AppliedRanges:
    """A set of disjoint ranges of a queue's rows. The first range starts at the queue's beginning.

    Not thread-safe.

    Args:
        frontier: End of the first range: all rows before it are in the set.
        ranges: Further ranges after the frontier, in order. Default none.

    Raises:
        StreamError: A range is empty, or overlaps another one.

    Example:

    >>> done = AppliedRanges(QueuePosition(0, 0))
    >>> done.add((QueuePosition(2, 0), QueuePosition(3, 0)))
    >>> done.add((QueuePosition(0, 0), QueuePosition(1, 5)))
    >>> done.frontier
    QueuePosition(offset=1, row=5)
    >>> done.gaps()
    [(QueuePosition(offset=1, row=5), QueuePosition(offset=2, row=0))]
    """

    def __init__(self, frontier: QueuePosition, ranges: Sequence[Range] = ()) -> None:
        self.frontier = frontier
        self._ranges: list[Range] = []
        for each in ranges:
            self.add(each)

    @property
    def ranges(self) -> list[Range]:
        """Ranges of the set after the frontier, in order."""
        return list(self._ranges)

    @property
    def end(self) -> QueuePosition:
        """Position after the last row of the set."""
        return self._ranges[-1][1] if self._ranges else self.frontier

    def covers(self, span: Range) -> bool:
        """Returns whether all rows of a range are in the set."""
        begin, end = span
        return end <= self.frontier or any(b <= begin and end <= e for b, e in self._ranges)

    def overlaps(self, span: Range) -> bool:
        """Returns whether any row of a range is in the set."""
        begin, end = span
        return begin < self.frontier or any(b < end and begin < e for b, e in self._ranges)

    def add(self, added: Range) -> None:
        """Adds a range.

        Args:
            added: Range to add: the positions of its first row and after its last row.

        Raises:
            StreamError: The range is empty, or some of its rows are in the set already.
        """
        if added[0] >= added[1] or self.overlaps(added):
            raise StreamError(
                "An applied range must have rows, and no row can be applied twice. Received: "
                f"{added}, with frontier {self.frontier} and ranges {self._ranges}"
            )
        bisect.insort(self._ranges, added)
        self._merge()

    def gaps(self) -> list[Range]:
        """Returns the ranges before `end` that are not in the set, in order."""
        ends = [self.frontier, *(end for _, end in self._ranges)]
        begins = [begin for begin, _ in self._ranges]
        return [(end, begin) for end, begin in zip(ends, begins, strict=False)]

    def _merge(self) -> None:
        merged: list[Range] = []
        for begin, end in self._ranges:
            if not merged and begin == self.frontier:
                self.frontier = end
            elif merged and merged[-1][1] == begin:
                merged[-1] = merged[-1][0], end
            else:
                merged.append((begin, end))
        self._ranges = merged
