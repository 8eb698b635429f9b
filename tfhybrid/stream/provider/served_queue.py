"""A queue as the data provider serves it: appends rows, and leases them to trainers."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

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
from tfhybrid.stream.queues.queue_reader import QueueReader, Taken
from tfhybrid.stream.weights.applied_ranges import AppliedRanges
from tfhybrid.stream.weights.lease import FENCES_PER_TERM, Lease, TargetWeights

_log = logging.getLogger("tfhybrid.stream")


@dataclasses.dataclass(frozen=True)
class LeaseRules:
    """Rules for the leases of a provider's queues.

    Args:
        bounds: Bound on the staleness of each model's updates, which its queues share, by model.
        seconds: Lifetime of a lease that is not renewed, in seconds.
        aside: Leases that were set aside, of all queues.
        max_behind: Maximum lag of the slowest model of a queue, in records; beyond it new rows are
            refused. Default unlimited.

    Raises:
        ConfigError: `max_behind` is not positive.
    """

    bounds: Mapping[str, StalenessBound]
    seconds: float
    aside: SetAside
    max_behind: int | None = None

    def __post_init__(self) -> None:
        if self.max_behind is not None and self.max_behind < 1:
            raise ConfigError(f"max_behind must be at least 1. Received: {self.max_behind}")


class ServedQueue:
    """One queue, with the leases of each target model that is trained from it. Thread-safe.

    Construction starts a new provider's term at the sync unit.

    Args:
        name: Name of the queue.
        writer: Writer of the queue, or what refuses rows in its place. This object closes it.
        reader: Reader of the same queue.
        weights: Target models that are trained from the queue, by name.
        rules: Rules for its leases.
        beside: Queue whose current provider this one must be, with the same models. Default: none,
            for a provider that starts.

    Raises:
        StreamError: The queue cannot be reached, the sync unit does not answer, or a newer provider
            serves `beside`.
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
        rules: LeaseRules,
        beside: ServedQueue | None = None,
    ) -> None:
        self.name = name
        self._writer = writer
        self._reader = reader
        self._weights = weights
        self._rules = rules
        self._aside = rules.aside
        self._taken = ""  # why this provider must end
        self.refusal: str | None = None
        self._lock = threading.RLock()
        self._end, self._looked = 0, float("-inf")  # the queue's, and when it was looked at
        self._compared: dict[str, float] = {}  # time of the last comparison, by model
        self._terms: dict[str, int] = {}
        self._books = {}
        for model, unit in weights.items():
            first = QueuePosition(writer.queue.begin(), 0)
            with contextlib.nullcontext() if beside is None else beside._ours():
                terms = None if beside is None else (beside.name, beside._terms[model])
                standing = unit.begin(name, first, terms)
            self._terms[model] = standing.epoch
            done = AppliedRanges(standing.frontier, standing.ranges)
            deaths = rules.aside.mark(name, model, done)
            self._books[model] = LeaseBook(
                done.end,
                done.gaps(),
                fence=standing.epoch * FENCES_PER_TERM,
                bound=rules.bounds[model],
                seconds=rules.seconds,
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
            max_behind = self._rules.max_behind
            if max_behind is not None and behind >= max_behind:
                raise StreamError(
                    f"Queue {self.name} takes no more rows until its models are less than "
                    f"{max_behind} records behind. Send the rows again later, or start more "
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

    def lag(self, model: str, max_age: float = 0.0) -> int:
        """Returns a model's lag, in records.

        The lag is the number of records from the first row that is neither leased nor in the
        weights to the end of the queue, whether later rows are leased or not.

        Args:
            model: Name of the target model.
            max_age: Time in seconds for which an end of the queue is used again. Default 0.

        Raises:
            StreamError: The queue cannot be reached.
        """
        with self._lock:
            now = time.monotonic()
            if now >= self._looked + max_age:
                self._end, self._looked = self._writer.queue.end(), now
            return max(self._end - self._books[model].head.offset, 0)

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
            cut = _Cut(self._take)
            while True:
                lease = self._books[model].grant(holder, rows, now, cut)
                if lease is None or cut.taken is None:
                    return None
                if lease.rows:
                    return lease, cut.taken.batch
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
            return self._books[model].has_rows(_Cut(self._take))

    def settle(self, model: str, now: float) -> None:
        """Ends the leases that have expired. Their rows return to the head, unless applied.

        At times it also compares with the sync unit which rows are in the weights.

        Args:
            model: Name of the target model.
            now: Time in seconds, from the clock of `grant`.

        Raises:
            StreamError: The sync unit does not answer, or a newer provider serves the queue.
        """
        with self._lock:
            for lease in self._books[model].expired(now):
                self._finish(model, lease, died=True)
            if now >= self._compared.setdefault(model, now) + self._rules.seconds:
                self._compare(model)
                self._compared[model] = now

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
            PositionLostError: Retention has removed the rows, or the topic was made again.
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
                    self._finish(model, lease)

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

    def _compare(self, model: str) -> None:
        """Returns rows to the head that the weights have lost, as a sync unit does by a power cut.

        An update that the sync unit applies meanwhile belongs to an open lease.
        """
        unit, term = self._weights[model], self._terms[model]
        with self._ours():
            standing = unit.progress(self.name, term)
        while standing is None or standing.epoch < term:
            standing = unit.begin(self.name, QueuePosition(self._writer.queue.begin(), 0))
        aside = [each.range for each in self.set_aside if each.model == model]
        done = [(QueuePosition(0, 0), standing.frontier), *standing.ranges]
        for span in self._books[model].lost([*done, *aside]):
            _log.error(
                "The weights of %s have lost rows of queue %s, %s to %s: they are leased again",
                *(model, self.name, *span),
            )
            self._books[model].put_back(span)

    def _finish(self, model: str, lease: Lease, *, died: bool = False) -> None:
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

    def _take(self, begin: QueuePosition, rows: int, limit: QueuePosition | None) -> Taken | None:
        if self.refusal is not None:
            raise PositionLostError(self.refusal)
        return self._reader.take(begin, rows, limit)

    def _rows(self, model: str, lease: Lease) -> pa.RecordBatch | None:
        """Returns the rows of an open lease; ends it if records have vanished under it.

        Compaction removes records of a topic that other programs write at any time.
        """
        taken = self._take(lease.begin, lease.rows, lease.end)
        if taken is not None and taken.batch.num_rows == lease.rows:
            return taken.batch
        _log.warning(
            "Lease %d of queue %s is cut again: it has %d rows, but the queue has %d now",
            *(lease.fence, self.name, lease.rows, 0 if taken is None else taken.batch.num_rows),
        )
        self._finish(model, lease)
        return None


class _Cut:
    """The function by which a `LeaseBook` cuts a lease; it keeps the rows."""

    def __init__(self, take: Callable[..., Taken | None]) -> None:
        self._take = take
        self.taken: Taken | None = None

    def __call__(self, *span: Any) -> tuple[QueuePosition, int] | None:
        self.taken = self._take(*span)
        return None if self.taken is None else (self.taken.end, self.taken.batch.num_rows)
