"""A queue as the data provider serves it: rows come in at one end, leases go out at the other."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from tfhybrid.errors import ConfigError, LeaseRefusedError, StreamError
from tfhybrid.stream.applied_ranges import AppliedRanges, Range
from tfhybrid.stream.lease_book import Lease, LeaseBook
from tfhybrid.stream.numbered_writer import Numbered, NumberedWriter
from tfhybrid.stream.queue import Position
from tfhybrid.stream.queue_reader import QueueReader


@dataclasses.dataclass(frozen=True)
class Standing:
    """What of a queue is in the weights of a target model.

    Args:
        epoch: Of the provider: how often one has begun. Leases of earlier ones are over.
        frontier: Every row before it is in the weights.
        ranges: Rows behind it that are, too.
    """

    epoch: int
    frontier: Position
    ranges: Sequence[Range]


class Weights(Protocol):
    """What the provider wants of the sync unit of a target model."""

    def begin(self, queue: str, first: Position) -> Standing:
        """Ends all leases of earlier providers, and says what is in the weights.

        Args:
            queue: Its name.
            first: Where a model begins that has had nothing of it.
        """

    def revoke(self, queue: str, lease: Lease) -> bool:
        """Ends a lease; returns whether its update is in the weights. No later one will be."""

    def pass_over(self, queue: str, lease: Lease) -> None:
        """Notes that a lease had no good rows, so that no update comes."""


FENCES_OF_AN_EPOCH = 1 << 40


class ServedQueue:
    """One queue, and a book of leases for each target model that is trained from it. Thread-safe.

    Args:
        name: By which it is asked for.
        writer: What rows are appended by.
        reader: What they are taken by.
        weights: Of each target model.
        staleness: Of `LeaseBook`.
        seconds: Of a lease, until it expires.
        most_behind: How many records the slowest model may be behind before rows are refused; by
            default any number.
    """

    def __init__(
        self,
        name: str,
        writer: NumberedWriter,
        reader: QueueReader,
        weights: Mapping[str, Weights],
        *,
        staleness: int | None,
        seconds: float,
        most_behind: int | None = None,
    ) -> None:
        if most_behind is not None and most_behind < 1:
            raise ConfigError(f"most_behind is at least 1. Received: {most_behind}")
        self.name = name
        self._writer = writer
        self._reader = reader
        self._weights = weights
        self._most_behind = most_behind
        self._lock = threading.RLock()
        self._books = {}
        for model, unit in weights.items():
            standing = unit.begin(name, Position(writer.queue.begin(), 0))
            done = AppliedRanges(standing.frontier, standing.ranges)
            self._books[model] = LeaseBook(
                done.end,
                done.gaps(),
                fence=standing.epoch * FENCES_OF_AN_EPOCH,
                staleness=staleness,
                seconds=seconds,
            )

    def put(self, records: Sequence[Numbered]) -> int:
        """Appends records, each once; returns how many were new.

        Raises:
            StreamError: They could not be appended, or the models are too far behind. Send them
                again later.
        """
        with self._lock:
            behind = max(map(self.lag, self._books), default=0)
            if self._most_behind is not None and behind >= self._most_behind:
                raise StreamError(
                    f"Queue {self.name} takes no more rows until its models are less than "
                    f"{self._most_behind} records behind. Received: {behind}"
                )
            return self._writer.append(records)

    def lag(self, model: str) -> int:
        """Returns how many records a model has before it that no trainer has."""
        with self._lock:
            end: int = self._writer.queue.end()
            return max(end - self._books[model].head.offset, 0)

    def grant(
        self, model: str, holder: str, rows: int, now: float
    ) -> tuple[Lease, pa.RecordBatch] | None:
        """Grants a lease, after it has settled what has expired.

        Returns:
            The lease and its rows, or `None` if there is no work now.

        Raises:
            PositionLostError: Retention has removed the rows at the head.
            DataError: There are too many bad rows.
        """
        with self._lock:
            self._settle(model, now)
            while True:
                lease = self._books[model].grant(holder, rows, now, self._cut)
                if lease is None:
                    return None
                if lease.rows:
                    return lease, self._rows(lease)
                self._weights[model].pass_over(self.name, lease)
                self._books[model].finish(lease.fence)

    def rows_again(self, model: str, fence: int, holder: str) -> tuple[Lease, pa.RecordBatch]:
        """Returns an open lease and its rows once more: the answer before did not arrive.

        Raises:
            LeaseRefusedError: It is over, or somebody else's.
        """
        with self._lock:
            lease = self._books[model].held(fence, holder)
            return lease, self._rows(lease)

    def renew(self, model: str, fence: int, holder: str, now: float) -> None:
        """Lets a lease expire later; raises `LeaseRefusedError` if it is over."""
        with self._lock:
            self._books[model].renew(fence, holder, now)

    def finish(self, model: str, fence: int) -> None:
        """Ends a lease whose update is in the weights."""
        with self._lock:
            self._books[model].finish(fence)

    def leave(self, model: str, holder: str) -> None:
        """Ends the leases of a trainer that goes: their rows go back to the head."""
        with self._lock:
            for lease in self._books[model].open:
                if lease.holder == holder:
                    self._end(model, lease)

    def close(self) -> None:
        """Closes the queue."""
        self._writer.close()

    def _settle(self, model: str, now: float) -> None:
        for lease in self._books[model].expired(now):
            self._end(model, lease)

    def _end(self, model: str, lease: Lease) -> None:
        if self._weights[model].revoke(self.name, lease):
            self._books[model].finish(lease.fence)
        else:
            self._books[model].give_back(lease.fence)

    def _cut(
        self, begin: Position, rows: int, limit: Position | None
    ) -> tuple[Position, int] | None:
        taken = self._reader.take(begin, rows, limit)
        return None if taken is None else (taken.end, taken.batch.num_rows)

    def _rows(self, lease: Lease) -> pa.RecordBatch:
        taken = self._reader.take(lease.begin, lease.rows, lease.end)
        if taken is None or taken.batch.num_rows != lease.rows:
            raise LeaseRefusedError(
                f"Lease {lease.fence} of queue {self.name} has {lease.rows} rows. Received: "
                f"{0 if taken is None else taken.batch.num_rows}"
            )
        return taken.batch
