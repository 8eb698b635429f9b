"""A queue as the data provider serves it: appends rows, and leases them to trainers."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from tfhybrid.errors import ConfigError, NameTakenError, PositionLostError, StreamError
from tfhybrid.stream.provider.lease_book import LeaseBook, StalenessBound
from tfhybrid.stream.provider.set_aside import SetAside, SetAsideLease
from tfhybrid.stream.queues.numbered_writer import (
    ForeignWriters,
    LastRecord,
    Numbered,
    NumberedWriter,
)
from tfhybrid.stream.queues.queue import QueuePosition
from tfhybrid.stream.queues.queue_reader import QueueReader
from tfhybrid.stream.weights.applied_ranges import AppliedRanges
from tfhybrid.stream.weights.lease import FENCES_PER_TERM, Lease, TargetWeights

_log = logging.getLogger("tfhybrid.stream")


class ServedQueue:
    """One queue, with the leases of each target model that is trained from it. Thread-safe.

    Construction starts a new provider's term at the sync unit.

    Args:
        name: Name of the queue.
        writer: Writer of the queue, or what refuses rows in its place. This object closes it.
        reader: Reader of the same queue.
        weights: Target models that are trained from the queue, by name.
        bounds: Bound on the staleness of each model's updates, which its queues share, by model.
        seconds: Lifetime of a lease that is not renewed, in seconds.
        aside: Leases that were set aside, also of other queues.
        max_behind: Maximum lag of the slowest model, in records; beyond it new rows are refused.
            Default unlimited.

    Raises:
        ConfigError: `max_behind` is not positive.
        StreamError: The queue cannot be reached, or the sync unit does not answer.
        OutOfSpaceError: The sync unit cannot write its journal.

    Attributes:
        refusal: Why no more leases are granted: requests raise `PositionLostError` with it. `None`
            while they are.
    """

    def __init__(
        self,
        name: str,
        writer: NumberedWriter | ForeignWriters,
        reader: QueueReader,
        weights: Mapping[str, TargetWeights],
        *,
        bounds: Mapping[str, StalenessBound],
        seconds: float,
        aside: SetAside,
        max_behind: int | None = None,
    ) -> None:
        if max_behind is not None and max_behind < 1:
            raise ConfigError(f"max_behind must be at least 1. Received: {max_behind}")
        self.name = name
        self._writer = writer
        self._reader = reader
        self._weights = weights
        self._max_behind = max_behind
        self._aside = aside
        self._taken = ""  # why this provider must end
        self.refusal: str | None = None
        self._lock = threading.RLock()
        self._books = {}
        for model, unit in weights.items():
            standing = unit.begin(name, QueuePosition(writer.queue.begin(), 0))
            done = AppliedRanges(standing.frontier, standing.ranges)
            deaths = aside.mark(name, model, done)
            self._books[model] = LeaseBook(
                done.end,
                done.gaps(),
                fence=standing.epoch * FENCES_PER_TERM,
                bound=bounds[model],
                seconds=seconds,
            )
            for each in deaths:
                self._books[model].put_back(each.range, each.trainers)

    def put(self, records: Sequence[Numbered]) -> int:
        """Appends the records that the queue does not have yet.

        Args:
            records: Records with their producers and numbers.

        Returns:
            Number of records that were new.

        Raises:
            ConfigError: Only other programs write the queue.
            DataError: The queue has another record of this number, or a record is above the limit
                of a broker. No record was appended.
            StreamError: The records could not be appended, or a model is too far behind. Send all
                of them again later.
            OutOfSpaceError: The disk is full; no record was appended.
        """
        with self._lock:
            behind = max(map(self.lag, self._books), default=0)
            if self._max_behind is not None and behind >= self._max_behind:
                raise StreamError(
                    f"Queue {self.name} takes no more rows until its models are less than "
                    f"{self._max_behind} records behind. Send the rows again later, or start more "
                    f"trainers. Received: {behind}"
                )
            with self._ours():
                return self._writer.append(records)

    def last(self, producer: str) -> LastRecord | None:
        """Returns the last record of a producer; `None` if there is none.

        Args:
            producer: Name of the producer.
        """
        with self._lock:
            return self._writer.last(producer)

    @property
    def set_aside(self) -> list[SetAsideLease]:
        """Leases of this queue that are set aside now."""
        return [each for each in self._aside.leases if each.queue == self.name]

    def lag(self, model: str) -> int:
        """Returns a model's lag, in records.

        The lag is the number of records from the first row that is neither leased nor in the
        weights to the end of the queue, whether later rows are leased or not.

        Raises:
            StreamError: The queue cannot be reached.
        """
        with self._lock:
            end: int = self._writer.queue.end()
            return max(end - self._books[model].head.offset, 0)

    def grant(
        self, model: str, holder: str, rows: int, now: float
    ) -> tuple[Lease, pa.RecordBatch] | None:
        """Grants a lease, after it has ended the leases that have expired.

        Args:
            model: Name of the target model.
            holder: Name of the trainer.
            rows: Maximum number of rows.
            now: Time in seconds, from any clock that only moves forward.

        Returns:
            The lease and its rows, or `None` if the queue has no more rows now or if another lease
            would exceed the bound on staleness.

        Raises:
            PositionLostError: Retention has removed the rows at the head, or the topic was made
                again.
            DataError: There are too many bad rows.
            StreamError: The queue or the sync unit cannot be reached.
            CorruptFileError: A record is damaged.
            OutOfSpaceError: The sync unit cannot write that bad rows are skipped.
        """
        with self._lock:
            self.settle(model, now)
            while True:
                lease = self._books[model].grant(holder, rows, now, self._cut)
                if lease is None:
                    return None
                if lease.rows:
                    batch = self._rows(model, lease)
                    if batch is None:
                        continue
                    return lease, batch
                try:
                    with self._ours():
                        self._weights[model].skip(self.name, lease)
                except BaseException:
                    self._books[model].give_back(lease.fence)
                    raise
                self.finish(model, lease.fence)

    def has_rows(self, model: str) -> bool:
        """Returns whether the queue has rows that are neither leased nor in the weights.

        It has them, too, if the bound on staleness holds them back.

        Args:
            model: Name of the target model.

        Raises:
            PositionLostError: Retention has removed the rows at the head, or the topic was made
                again.
            DataError: There are too many bad rows.
            StreamError: The queue cannot be reached.
            CorruptFileError: A record is damaged.
        """
        with self._lock:
            return self._books[model].has_rows(self._cut)

    def settle(self, model: str, now: float) -> None:
        """Ends the leases that have expired. Their rows return to the head, unless applied.

        Args:
            model: Name of the target model.
            now: Time in seconds, from the clock of `grant`.

        Raises:
            StreamError: The sync unit does not answer, or a newer provider serves the queue.
        """
        with self._lock:
            for lease in self._books[model].expired(now):
                self._end(model, lease, died=True)

    def rows_again(
        self, model: str, fence: int, holder: str
    ) -> tuple[Lease, pa.RecordBatch] | None:
        """Returns an open lease and its rows again, for a trainer that lost the first answer.

        Returns `None` if records have vanished under the lease, which ends it.

        Args:
            model: Name of the target model.
            fence: Fence of the lease, `Lease.fence`.
            holder: Name of the trainer.

        Raises:
            LeaseRefusedError: The lease is over, or another trainer holds it.
            PositionLostError: Retention has removed the rows.
            StreamError: The queue cannot be reached.
        """
        with self._lock:
            lease = self._books[model].held(fence, holder)
            batch = self._rows(model, lease)
            return None if batch is None else (lease, batch)

    def renew(self, model: str, fence: int, holder: str, now: float) -> None:
        """Extends a lease to its full lifetime from `now` on.

        Args:
            model: Name of the target model.
            fence: Fence of the lease, `Lease.fence`.
            holder: Name of the trainer that holds the lease.
            now: Time in seconds, from the clock of `grant`.

        Raises:
            LeaseRefusedError: The lease is over, or another trainer holds it.
        """
        with self._lock:
            self._books[model].renew(fence, holder, now)

    def finish(self, model: str, fence: int) -> None:
        """Ends a lease whose update is in the weights. Does nothing if the lease has ended already.

        Args:
            model: Name of the target model.
            fence: Fence of the lease, `Lease.fence`.
        """
        with self._lock:
            self._books[model].finish(fence)
            self._aside.keep_deaths(self.name, self._books)

    def leave(self, model: str, holder: str) -> None:
        """Ends the leases of a trainer that stops. Rows not in the weights return to the head.

        Args:
            model: Name of the target model.
            holder: Name of the trainer.

        Raises:
            StreamError: The sync unit does not answer, or a newer provider serves the queue.
        """
        with self._lock:
            for lease in self._books[model].open:
                if lease.holder == holder:
                    self._end(model, lease)

    def retry(self, model: str) -> int:
        """Gives the leases out again that were set aside; returns their number of rows.

        Args:
            model: Name of the target model.
        """
        with self._lock:
            leases = [each for each in self.set_aside if each.model == model]
            for each in leases:
                self._books[model].put_back(each.range)
            self._aside.remove(leases)
            return sum(each.rows for each in leases)

    def check(self) -> None:
        """Checks that no other provider serves the queue now, as far as this one knows.

        Raises:
            NameTakenError: Another one does. All leases of this one are over, so it must end.
        """
        if self._taken:
            raise NameTakenError(self._taken)

    def close(self) -> None:
        """Closes the queue."""
        self._writer.close()

    @contextlib.contextmanager
    def _ours(self) -> Iterator[None]:
        """Notes that another provider serves the queue; callers try again when this one is gone."""
        try:
            yield
        except NameTakenError as error:
            self._taken = str(error)
            raise StreamError(f"This provider ends, try again: {error}") from error

    def _end(self, model: str, lease: Lease, *, died: bool = False) -> None:
        """Ends a lease, which expires if the trainer has `died`, and else is given back by it."""
        book = self._books[model]
        with self._ours():
            is_applied = self._weights[model].revoke(self.name, lease)
        if is_applied:
            self.finish(model, lease.fence)
            return
        self._reader.forget()
        trainers = book.died(lease.fence)
        if died and self._aside.takes(trainers):
            book.remove(lease.fence)
            self._aside.add(SetAsideLease(model, self.name, *lease.range, lease.rows, trainers))
        else:
            book.give_back(lease.fence, died=died)
        if died:
            self._aside.keep_deaths(self.name, self._books)

    def _cut(
        self, begin: QueuePosition, rows: int, limit: QueuePosition | None
    ) -> tuple[QueuePosition, int] | None:
        if self.refusal is not None:
            raise PositionLostError(self.refusal)
        taken = self._reader.take(begin, rows, limit)
        return None if taken is None else (taken.end, taken.batch.num_rows)

    def _rows(self, model: str, lease: Lease) -> pa.RecordBatch | None:
        """Returns the rows of an open lease; ends it if records have vanished under it.

        Compaction removes records of a topic that other programs write at any time.
        """
        taken = self._reader.take(lease.begin, lease.rows, lease.end)
        if taken is not None and taken.batch.num_rows == lease.rows:
            return taken.batch
        _log.warning(
            "Lease %d of queue %s is cut again: it has %d rows, but the queue has %d now",
            *(lease.fence, self.name, lease.rows, 0 if taken is None else taken.batch.num_rows),
        )
        self._end(model, lease)
        return None
