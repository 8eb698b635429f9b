"""Leases of a queue's rows: each row is leased to one trainer at a time."""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tfhybrid.errors import LeaseRefusedError
from tfhybrid.stream.queues.queue import QueuePosition
from tfhybrid.stream.weights.lease import Lease, Range

# Function from the begin of a lease, its maximum number of rows and its latest end (`None`: the
# end of the queue) to its actual end and number of rows; `None` if the queue has nothing there yet.
Cut = Callable[[QueuePosition, int, QueuePosition | None], tuple[QueuePosition, int] | None]


class _Returned(NamedTuple):
    begin: QueuePosition
    end: QueuePosition
    died: tuple[str, ...]  # trainers that have died under these rows


@dataclasses.dataclass
class _Open:
    lease: Lease
    expires: float
    number: int  # in the bound on staleness
    died: tuple[str, ...]  # trainers that have died under its rows before it was granted


class StalenessBound:
    """Bound on the staleness of a model's updates, over the leases of all its queues. Thread-safe.

    Args:
        staleness: Maximum number of other updates applied between the read of the weights under a
            lease and the update of that lease. Default unlimited.
    """

    def __init__(self, staleness: int | None = None) -> None:
        self._staleness = staleness
        self._lock = threading.Lock()
        self._begun = self._done = 0
        # Number of leases that were finished before each open one, oldest first.
        self._open: dict[int, int] = {}

    def begin(self) -> int | None:
        """Counts one more lease, unless an update could then miss too many other updates.

        Returns:
            Number of the lease, for `end`; `None` if it is not allowed.
        """
        with self._lock:
            if not self._allows_another():
                return None
            number, self._begun = self._begun, self._begun + 1
            self._open[number] = self._done
            return number

    def end(self, number: int, *, finished: bool) -> None:
        """Ends a lease.

        Args:
            number: Number of the lease.
            finished: Whether its update is in the weights.
        """
        with self._lock:
            del self._open[number]
            self._done += finished

    def allows_another(self) -> bool:
        """Returns whether one more lease is allowed now."""
        with self._lock:
            return self._allows_another()

    def _allows_another(self) -> bool:
        if self._staleness is None or not self._open:
            return True
        # In the worst case all other open leases and the new one finish before the oldest.
        oldest = next(iter(self._open.values()))
        return self._done - oldest + len(self._open) <= self._staleness


class LeaseBook:
    """Leases of one queue for one target model, granted from the queue's head.

    A lease is the right to train some rows; the head is the first row that is neither leased nor in
    the model's weights; a fence is the number of a lease, which only grows.

    Not thread-safe: the caller locks, and passes the time. `finish` ends a lease whose update is in
    the weights; `give_back` ends one whose update never will be, and returns its rows; `remove`
    ends one whose rows must not be leased again. An expired lease stays open until the caller knows
    which.

    Args:
        begin: Position of the first row never leased.
        returned: Ranges before `begin` not in the weights, in order. Default none.
        bound: Bound on staleness that all queues of the model share.
        fence: Fence of the first lease. Default 0.
        seconds: Lifetime of a lease that is not renewed, in seconds. Default 60.
    """

    def __init__(
        self,
        begin: QueuePosition,
        returned: Sequence[Range] = (),
        *,
        bound: StalenessBound,
        fence: int = 0,
        seconds: float = 60.0,
    ) -> None:
        self._next = begin
        self._returned = [_Returned(*each, ()) for each in sorted(returned)]
        self._fence = fence
        self._bound = bound
        self._seconds = seconds
        self._open: dict[int, _Open] = {}

    @property
    def head(self) -> QueuePosition:
        """Position of the first row that is neither leased nor in the weights."""
        return self._returned[0].begin if self._returned else self._next

    @property
    def open(self) -> list[Lease]:
        """Leases that have not ended, oldest first."""
        return [each.lease for each in self._open.values()]

    @property
    def deaths(self) -> list[tuple[Range, tuple[str, ...]]]:
        """Ranges under which trainers have died, with the names of these, in order."""
        spans = [((each.begin, each.end), each.died) for each in self._returned]
        spans += [(each.lease.range, each.died) for each in self._open.values()]
        return sorted((span, died) for span, died in spans if died)

    def lost(self, elsewhere: Sequence[Range]) -> list[Range]:
        """Returns the rows before the first one never leased that are nowhere, in order.

        Args:
            elsewhere: Ranges that are neither leased nor to be leased, from the queue's begin on.
        """
        spans = [(each.begin, each.end) for each in self._returned]
        spans += [*elsewhere, *(lease.range for lease in self.open), (self._next, self._next)]
        first, *others = sorted(spans)
        lost, reached = [], first[1]
        for begin, end in others:
            if reached < begin:
                lost.append((reached, begin))
            reached = max(reached, end)
        return lost

    def has_rows(self, cut: Cut) -> bool:
        """Returns whether the queue has rows that are neither leased nor in the weights.

        Args:
            cut: Function that returns the end of a lease and its number of rows. Its errors
                propagate.
        """
        begin, limit, _ = self._head_range()
        return cut(begin, 1, limit) is not None

    def grant(self, holder: str, rows: int, now: float, cut: Cut) -> Lease | None:
        """Grants a lease from the head.

        Args:
            holder: Name of the trainer.
            rows: Maximum number of rows.
            now: Time in seconds, from any clock that only moves forward.
            cut: Function that returns the end of the lease and its number of rows. Its errors
                propagate, and nothing is granted then.

        Returns:
            The lease, or `None` if the queue has no more rows now or if another lease would exceed
            the bound on staleness. Its `rows` is 0 if all rows of its range are bad.
        """
        number = self._bound.begin()
        if number is None:
            return None
        begin, limit, died = self._head_range()
        with contextlib.ExitStack() as undo:
            undo.callback(self._bound.end, number, finished=False)
            part = cut(begin, rows, limit)
            if part is None:
                return None
            undo.pop_all()
        end, count = part
        if limit is None:
            self._next = end
        elif end < limit:
            self._returned[0] = _Returned(end, limit, died)
        else:
            self._returned.pop(0)
        lease = Lease(self._fence, holder, begin, end, count)
        self._fence += 1
        self._open[lease.fence] = _Open(lease, now + self._seconds, number, died)
        return lease

    def renew(self, fence: int, holder: str, now: float) -> None:
        """Extends a lease to its full lifetime from now on.

        Args:
            fence: Fence of the lease.
            holder: Name of the trainer that holds it.
            now: Time in seconds, from the clock of `grant`.

        Raises:
            LeaseRefusedError: The lease is over, or another trainer holds it.
        """
        self.held(fence, holder)
        self._open[fence].expires = now + self._seconds

    def held(self, fence: int, holder: str) -> Lease:
        """Returns an open lease of a holder.

        Args:
            fence: Fence of the lease.
            holder: Name of the trainer that must hold the lease.

        Raises:
            LeaseRefusedError: The lease is over, or another trainer holds it.
        """
        entry = self._open.get(fence)
        if entry is None or entry.lease.holder != holder:
            reason = "it is over" if entry is None else f"trainer {entry.lease.holder} holds it"
            raise LeaseRefusedError(
                f"Trainer {holder} does not hold lease {fence}: {reason}. Request another lease"
            )
        return entry.lease

    def expired(self, now: float) -> list[Lease]:
        """Returns the open leases whose lifetime is over, oldest first. They stay open."""
        return [each.lease for each in self._open.values() if each.expires <= now]

    def finish(self, fence: int) -> None:
        """Ends a lease whose update is in the weights. Does nothing if the lease has ended already.

        Args:
            fence: Fence of the lease.
        """
        entry = self._open.pop(fence, None)
        if entry is not None:
            self._bound.end(entry.number, finished=True)

    def died(self, fence: int) -> tuple[str, ...]:
        """Returns the trainers that have died under the rows of an open lease, its holder last.

        Args:
            fence: Fence of the lease, whose holder counts as dead.
        """
        entry = self._open[fence]
        return (*entry.died, entry.lease.holder)

    def give_back(self, fence: int, *, died: bool = False) -> None:
        """Ends a lease whose update will never be in the weights, and returns its rows to the head.

        Does nothing if the lease has ended already.

        Args:
            fence: Fence of the lease.
            died: Whether its holder has died, which its rows remember. Default `False`.
        """
        if fence in self._open:
            trainers = self.died(fence) if died else self._open[fence].died
            self.put_back(self.remove(fence).range, trainers)

    def remove(self, fence: int) -> Lease:
        """Ends an open lease whose rows are not leased again until `put_back`, and returns it.

        Args:
            fence: Fence of the lease.
        """
        entry = self._open.pop(fence)
        self._bound.end(entry.number, finished=False)
        return entry.lease

    def put_back(self, span: Range, died: tuple[str, ...] = ()) -> None:
        """Returns rows that are neither leased nor in the weights to the head.

        Args:
            span: Range of the rows.
            died: Trainers that have died under them. Default none.
        """
        bisect.insort(self._returned, _Returned(*span, died))

    def _head_range(self) -> tuple[QueuePosition, QueuePosition | None, tuple[str, ...]]:
        """Returns the range of the next lease, and the trainers that have died under its rows.

        Its end is `None` for the end of the queue.
        """
        return self._returned[0] if self._returned else (self._next, None, ())
