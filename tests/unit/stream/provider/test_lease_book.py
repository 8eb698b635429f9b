"""The book of leases against a model that looks at each row."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tfhybrid.errors import ConfigError, LeaseRefusedError, StreamError
from tfhybrid.stream.provider.lease_book import LeaseBook, StalenessBound
from tfhybrid.stream.provider.lease_length import LeaseLength, Load
from tfhybrid.stream.queues.queue import QueuePosition
from tfhybrid.stream.weights.applied_ranges import AppliedRanges
from tfhybrid.stream.weights.lease import Lease

SECONDS = 10.0


def _row(position: QueuePosition) -> int:
    return position.offset


def _rows(lease: Lease) -> range:
    return range(_row(lease.begin), _row(lease.end))


class LeasedRows(RuleBasedStateMachine):
    """Each row is free, held under one fence, or done; never two of them, and never done twice.

    In this queue each record is a row.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rows = 0
        self.done: dict[int, int] = {}  # row: how often
        self.held: dict[int, Lease] = {}
        self.expiry: dict[int, float] = {}
        self.now = 0.0
        self.applied = AppliedRanges(QueuePosition(0, 0))
        self.staleness_of: dict[int, int] = {}
        self.last_fence = -1

    @initialize(staleness=st.none() | st.integers(0, 4))
    def begin(self, staleness: int | None) -> None:
        self.staleness = staleness
        self.bound = StalenessBound(staleness)
        self.book = LeaseBook(QueuePosition(0, 0), bound=self.bound, seconds=SECONDS)

    @rule(rows=st.integers(1, 20))
    def append(self, rows: int) -> None:
        self.rows += rows

    @rule(holder=st.sampled_from("abc"), rows=st.integers(1, 10))
    def grant(self, holder: str, rows: int) -> None:
        free = self._free()
        lease = self.book.grant(holder, rows, self.now, self._cut)
        if lease is None:
            assert not free or not self.bound.allows_another()
            assert self.book.has_rows(self._cut) == bool(free)
            return
        assert _rows(lease)[0] == free[0]  # the head
        assert lease.rows == len(_rows(lease)) <= rows
        assert set(_rows(lease)) <= set(free)
        assert lease.fence > self.last_fence
        self.last_fence = lease.fence
        self.held[lease.fence] = lease
        self.expiry[lease.fence] = self.now + SECONDS
        self.staleness_of[lease.fence] = 0

    @rule(seconds=st.floats(0, SECONDS))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        fence = data.draw(st.sampled_from(sorted(self.held)))
        self.book.renew(fence, self.held[fence].holder, self.now)
        self.expiry[fence] = self.now + SECONDS
        with pytest.raises(LeaseRefusedError, match="Trainer nobody does not hold"):
            self.book.renew(fence, "nobody", self.now)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), applied=st.booleans())
    def end(self, data: st.DataObject, applied: bool) -> None:
        fence = data.draw(st.sampled_from(sorted(self.held)))
        lease = self.held.pop(fence)
        if applied:
            self.book.finish(fence)
            self.applied.add(lease.range)
            for row in _rows(lease):
                self.done[row] = self.done.get(row, 0) + 1
            for other in self.held:
                self.staleness_of[other] += 1
        else:
            self.book.give_back(fence)
        self.book.finish(fence)  # once more changes nothing
        self.book.give_back(fence)

    @rule()
    def provider_starts_again(self) -> None:
        """From what is applied alone; whoever held a lease finds that it is over."""
        self.bound = StalenessBound(self.staleness)
        self.book = LeaseBook(
            self.applied.end,
            self.applied.gaps(),
            fence=self.last_fence + 1,
            bound=self.bound,
            seconds=SECONDS,
        )
        for fence, lease in self.held.items():
            with pytest.raises(LeaseRefusedError, match="it is over"):
                self.book.held(fence, lease.holder)
        self.held.clear()

    @invariant()
    def each_row_is_done_once_at_most(self) -> None:
        assert set(self.done.values()) <= {1}

    @invariant()
    def the_book_knows_who_holds_what(self) -> None:
        if hasattr(self, "book"):
            assert self.book.open == list(self.held.values())
            late = [fence for fence in self.held if self.expiry[fence] <= self.now]
            assert [lease.fence for lease in self.book.expired(self.now)] == late
            assert _row(self.book.head) == (self._free() or [self._first_unseen()])[0]

    @invariant()
    def staleness_is_bounded(self) -> None:
        if hasattr(self, "book") and self.staleness is not None:
            assert all(self.staleness_of[fence] <= self.staleness for fence in self.held)

    @invariant()
    def what_is_applied_are_the_rows_that_are_done(self) -> None:
        gone = {row for b, e in self.applied.ranges for row in range(_row(b), _row(e))}
        assert gone | set(range(_row(self.applied.frontier))) == set(self.done)

    def _free(self) -> list[int]:
        held = {row for lease in self.held.values() for row in _rows(lease)}
        return [row for row in range(self.rows) if row not in self.done and row not in held]

    def _first_unseen(self) -> int:
        held = {row for lease in self.held.values() for row in _rows(lease)}
        return max({*self.done, *held}, default=-1) + 1

    def _cut(self, begin: QueuePosition, rows: int, limit: QueuePosition | None):
        end = min(_row(begin) + rows, self.rows if limit is None else _row(limit))
        return (QueuePosition(end, 0), end - _row(begin)) if end > _row(begin) else None


TestLeasedRows = LeasedRows.TestCase
TestLeasedRows.settings = settings(deadline=None, max_examples=60, stateful_step_count=40)


def test_what_is_done_twice_is_refused():
    done = AppliedRanges(QueuePosition(0, 0), [(QueuePosition(2, 1), QueuePosition(2, 5))])
    for twice in ((2, 1), (2, 2)), ((1, 0), (3, 0)), ((2, 4), (2, 6)), ((2, 7), (2, 7)):
        with pytest.raises(StreamError, match="no row can be applied twice"):
            done.add((QueuePosition(*twice[0]), QueuePosition(*twice[1])))
    assert done.covers((QueuePosition(2, 2), QueuePosition(2, 5)))
    assert not done.covers((QueuePosition(2, 2), QueuePosition(2, 6)))


@pytest.mark.parametrize(
    ("length", "load", "rows"),
    [
        (LeaseLength(first_rows=100), Load(), 96),
        (LeaseLength(first_rows=10), Load(), 32),
        (LeaseLength(seconds=2), Load(1000.0), 1984),
        (LeaseLength(seconds=2), Load(1000.0, 1.5), 480),
        (LeaseLength(seconds=2), Load(1000.0, 3.0), 32),
        (LeaseLength(seconds=2, max_rows=320), Load(1e9), 320),
        (LeaseLength(rows=96), Load(1e9), 96),
    ],
)
def test_lengths_follow_the_load_in_whole_steps(length: LeaseLength, load: Load, rows: int):
    assert length.rows_for(load, batch=32) == rows


def test_lengths_that_cannot_be():
    with pytest.raises(ConfigError, match="positive"):
        LeaseLength(seconds=0)
