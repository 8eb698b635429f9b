"""Which rows of a queue are done: everything before a frontier, and some ranges behind it."""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from tfhybrid.errors import StreamError
from tfhybrid.stream.queue import Position

Range = tuple[Position, Position]


class AppliedRanges:
    """A set of disjoint ranges of positions, of which the first begins where the queue began.

    Args:
        frontier: Everything before it is in the set.
        ranges: More of them, in order, behind the frontier.

    Example:

    >>> done = AppliedRanges(Position(0, 0))
    >>> done.add((Position(2, 0), Position(3, 0)))
    >>> done.add((Position(0, 0), Position(1, 5)))
    >>> done.frontier, done.gaps()
    (Position(offset=1, row=5), [(Position(offset=1, row=5), Position(offset=2, row=0))])
    """

    def __init__(self, frontier: Position, ranges: Sequence[Range] = ()) -> None:
        self.frontier = frontier
        self._ranges: list[Range] = []
        for each in ranges:
            self.add(each)

    @property
    def ranges(self) -> list[Range]:
        """What is in the set behind the frontier, in order."""
        return list(self._ranges)

    @property
    def end(self) -> Position:
        """Where the last range ends."""
        return self._ranges[-1][1] if self._ranges else self.frontier

    def covers(self, wanted: Range) -> bool:
        """Whether all of a range is in the set."""
        begin, end = wanted
        return end <= self.frontier or any(b <= begin and end <= e for b, e in self._ranges)

    def overlaps(self, wanted: Range) -> bool:
        """Whether some of a range is in the set."""
        begin, end = wanted
        return begin < self.frontier or any(b < end and begin < e for b, e in self._ranges)

    def add(self, added: Range) -> None:
        """Adds a range.

        Raises:
            StreamError: It is empty, or some of it is in the set.
        """
        if added[0] >= added[1] or self.overlaps(added):
            raise StreamError(
                f"A range that is done is not empty, and done once. Received: {added}, behind the "
                f"frontier {self.frontier} and {self._ranges}"
            )
        bisect.insort(self._ranges, added)
        self._merge()

    def gaps(self) -> list[Range]:
        """Returns the ranges between the frontier and the end that are not in the set."""
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
