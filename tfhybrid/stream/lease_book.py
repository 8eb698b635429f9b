"""Who trains which rows of a queue: leases from its head, one holder each."""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Callable, Sequence

from tfhybrid.errors import LeaseRefusedError
from tfhybrid.stream.applied_ranges import Range
from tfhybrid.stream.queue import Position

# Where so many rows end that begin at a position and end at another one at the latest, and how many
# there are; nothing if there are none.
Cut = Callable[[Position, int, Position | None], tuple[Position, int] | None]


@dataclasses.dataclass(frozen=True)
class Lease:
    """The right to train some rows of a queue.

    Args:
        fence: Of this lease alone; greater than that of all granted before.
        holder: The trainer that has it.
        begin: Of the first row.
        end: Behind the last row.
        rows: How many.
    """

    fence: int
    holder: str
    begin: Position
    end: Position
    rows: int

    @property
    def range(self) -> Range:
        """From where to where."""
        return self.begin, self.end


@dataclasses.dataclass
class _Open:
    lease: Lease
    expires: float
    done_before: int  # leases that were done when it was granted


class LeaseBook:
    """The leases of one queue for one target model. Knows nothing of records, clocks or processes.

    A lease ends in one of two ways: `finish`, when its update is in the weights, or `give_back`,
    when it never will be. An expired lease stays open until it is known which of them.

    Args:
        begin: Of the first row that nobody has had.
        returned: Ranges before it whose rows are not in the weights, in order.
        fence: Of the first lease.
        staleness: The most updates that may come between reading the weights under a lease and
            applying its update; `None` bears any number.
        seconds: After which a lease expires, unless it is renewed.
    """

    def __init__(
        self,
        begin: Position,
        returned: Sequence[Range] = (),
        *,
        fence: int = 0,
        staleness: int | None = None,
        seconds: float = 60.0,
    ) -> None:
        self._next = begin
        self._returned = sorted(returned)
        self._fence = fence
        self._staleness = staleness
        self._seconds = seconds
        self._open: dict[int, _Open] = {}
        self._done = 0

    @property
    def head(self) -> Position:
        """Of the first row that has no holder and is not in the weights."""
        return self._returned[0][0] if self._returned else self._next

    @property
    def open(self) -> list[Lease]:
        """The leases that have not ended, the oldest first."""
        return [each.lease for each in self._open.values()]

    def may_grant(self) -> bool:
        """Whether one more lease keeps the staleness of all within the bound."""
        if self._staleness is None or not self._open:
            return True
        # All others that are open, and the new one, may be done before the oldest.
        oldest = next(iter(self._open.values()))
        return self._done - oldest.done_before + len(self._open) <= self._staleness

    def grant(self, holder: str, rows: int, now: float, cut: Cut) -> Lease | None:
        """Grants a lease from the head.

        Args:
            holder: Who gets it.
            rows: How many at most.
            now: The time, by any clock that only moves forward.
            cut: Where they end.

        Returns:
            The lease, or `None` if the queue has no more rows now, or the bound on staleness
            allows no more leases.
        """
        if not self.may_grant():
            return None
        begin, limit = self._returned[0] if self._returned else (self._next, None)
        found = cut(begin, rows, limit)
        if found is None:
            return None
        end, count = found
        if limit is None:
            self._next = end
        elif end < limit:
            self._returned[0] = end, limit
        else:
            self._returned.pop(0)
        lease = Lease(self._fence, holder, begin, end, count)
        self._fence += 1
        self._open[lease.fence] = _Open(lease, now + self._seconds, self._done)
        return lease

    def renew(self, fence: int, holder: str, now: float) -> None:
        """Lets a lease expire later: its holder is at work.

        Raises:
            LeaseRefusedError: It is over, or somebody else's.
        """
        self.held(fence, holder)
        self._open[fence].expires = now + self._seconds

    def held(self, fence: int, holder: str) -> Lease:
        """Returns an open lease of a holder.

        Raises:
            LeaseRefusedError: It is over, or somebody else's.
        """
        found = self._open.get(fence)
        if found is None or found.lease.holder != holder:
            raise LeaseRefusedError(
                f"Trainer {holder} does not hold lease {fence}. Received: "
                + ("it is over" if found is None else f"it is held by {found.lease.holder}")
            )
        return found.lease

    def expired(self, now: float) -> list[Lease]:
        """Returns the open leases whose time is over, the oldest first."""
        return [each.lease for each in self._open.values() if each.expires <= now]

    def finish(self, fence: int) -> None:
        """Ends a lease whose update is in the weights; it may have ended already."""
        if self._open.pop(fence, None) is not None:
            self._done += 1

    def give_back(self, fence: int) -> None:
        """Ends a lease whose update will never be in the weights; its rows go to the head again."""
        found = self._open.pop(fence, None)
        if found is not None:
            bisect.insort(self._returned, found.lease.range)
