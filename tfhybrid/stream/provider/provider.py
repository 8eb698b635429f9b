"""The data provider: puts samples into queues, and leases them to trainers."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Mapping, Sequence

import numpy as np

from tfhybrid._remote import remote
from tfhybrid.errors import LeaseRefusedError, StreamError
from tfhybrid.monitoring import metrics
from tfhybrid.stream.provider.lease_length import LeaseLength
from tfhybrid.stream.provider.routes import Routes
from tfhybrid.stream.provider.served_queue import ServedQueue
from tfhybrid.stream.provider.served_queues import ServedQueues
from tfhybrid.stream.provider.work import EncodedWork, GrantedWork, Request
from tfhybrid.stream.queues import rows
from tfhybrid.stream.queues.dead_letters import DeadLetters
from tfhybrid.stream.queues.numbered_writer import LastRecord, Numbered
from tfhybrid.stream.queues.queue import Record
from tfhybrid.stream.queues.row_columns import RowColumns

_log = logging.getLogger("tfhybrid.stream")

_LOOK_SECONDS = 0.02
_LAG_SECONDS = 1.0  # age of a lag that is good enough to choose a queue by


class Provider:
    """A server of queues for any number of trainers and producers. Thread-safe.

    Methods block while another thread works on the same queue. It keeps no state that must survive:
    after `kill -9` a new provider asks the sync unit which rows are in the weights, and leases the
    others.

    Args:
        queues: Queues of `routes`, by name. The provider closes them.
        columns: Columns of the rows.
        routes: Mapping from rows to queues, and from target models to queues.
        letters: File for bad rows, and for rows without a queue. The provider closes it.
        length: Rule for the number of rows in a lease. Default `LeaseLength()`.
        own: Name of the queue of each trainer that requests its own, by name of the trainer.
            Default none.
    """

    def __init__(
        self,
        queues: ServedQueues,
        columns: RowColumns,
        routes: Routes,
        letters: DeadLetters,
        *,
        length: LeaseLength | None = None,
        own: Mapping[str, str] | None = None,
    ) -> None:
        self._queues = queues
        self._columns = columns
        self._routes = routes
        self._letters = letters
        self._length = length or LeaseLength()
        self._own = own or {}
        self._lock = threading.Lock()
        # Number of the last request, queue and fence, by trainer.
        self._last: dict[str, tuple[int, str, int]] = {}
        self._turns: dict[str, int] = {}

    @remote
    def put(
        self,
        producer: str,
        number: int,
        record: Record,
        position: str = "",
        queue: str | None = None,
    ) -> int:
        """Puts the rows of a record into their queues. Each record is stored once.

        Args:
            producer: Name of the producer.
            number: Number of the record; it must increase from record to record of a producer.
            record: Record with JSON or Arrow rows.
            position: Description of where the record ends in the producer's source, which
                `last_record` returns. Default none.
            queue: Name of the queue of all rows. A record is then stored with its position even if
                it has no good row. Default: the routes decide.

        Returns:
            Number of rows that were new; 0 if the record was stored before, or has no good row with
            a queue.

        Raises:
            ConfigError: There is no such queue, or only other programs write it.
            DataError: There are too many bad rows, the record is too long for a broker, or it has a
                position and a queue has another record of this number.
            StreamError: A queue could not be written, or its models are too far behind. Send the
                record again with the same number.
            OutOfSpaceError: The disk of a queue is full. Send the record again with the same
                number.
        """
        decoded = rows.decode(record, self._columns)
        if queue is None:
            dealt, lost = self._routes.deal(decoded.batch)
        else:
            self._queues.check(queue)
            dealt, lost = {queue: decoded.batch}, np.empty(0, np.int64)
        self._letters.add_all(f"producer {producer}", self._routes.letters(number, decoded, lost))
        return sum(
            batch.num_rows
            * self._queues[name].put([Numbered(producer, number, rows.encode(batch), position)])
            for name, batch in dealt.items()
            if batch.num_rows or position
        )

    @remote
    def last_record(self, producer: str, queue: str | None = None) -> LastRecord | None:
        """Returns the last record of a producer, or `None` if no queue has one.

        Of a record whose rows went to several queues, it is not known whether all of them have it.
        Send it again.

        Args:
            producer: Name of the producer.
            queue: Name of the queue. Default: all queues.

        Raises:
            ConfigError: There is no such queue.
        """
        if queue is not None:
            self._queues.check(queue)
        names = self._queues if queue is None else (queue,)
        stored = [self._queues[name].last(producer) for name in names]
        return max((each for each in stored if each is not None), default=None)

    def lease(self, request: Request, *, wait_seconds: float = 0.0) -> GrantedWork | None:
        """Grants a lease to a trainer. A request with the same number again gets the same lease.

        Args:
            request: Request of the trainer.
            wait_seconds: Maximum time to wait for rows, in seconds. Default 0.

        Returns:
            The lease with its rows, or `None` if none could be granted in time: there are no rows,
            the bound on staleness is reached, or a broker or the sync unit does not answer.

        Raises:
            LeaseRefusedError: There is no such model, it is not trained from the queue, the trainer
                has no queue of its own, or the lease of a repeated request is over.
            PositionLostError: Retention has removed the next rows, or the topic was made again.
            DataError: There are too many bad rows.
            CorruptFileError: A record is damaged.
            StreamError: The request is repeated, and the queue cannot be reached.
            OutOfSpaceError: The sync unit cannot write that bad rows are skipped.
        """
        names = self._queues_for(request)
        again = self._answered(request)
        if again is not None:
            return again
        if request.steps is None:
            count = self._length.rows_for(request.load, request.batch)
        else:
            count = request.steps * request.batch
        until = time.monotonic() + wait_seconds
        while True:
            work = self._work(names, request, count)
            if work is not None:
                return work
            if time.monotonic() >= until:
                return None
            time.sleep(_LOOK_SECONDS)

    @remote
    def lease_encoded(self, request: Request, wait_seconds: float = 0.0) -> EncodedWork | None:
        """Grants a lease like `lease`, for a trainer in another process.

        Args:
            request: Request of the trainer.
            wait_seconds: Maximum time to wait for rows, in seconds. Default 0.

        Returns:
            The lease with its rows, or without them if the trainer reads them itself. `None` if
            none could be granted in time.

        Raises:
            StreamError: A queue cannot be reached, the lease is refused (`LeaseRefusedError`), or
                retention has removed the next rows (`PositionLostError`).
            DataError: There are too many bad rows.
            CorruptFileError: A record is damaged.
            OutOfSpaceError: The sync unit cannot write that bad rows are skipped.
        """
        work = self.lease(request, wait_seconds=wait_seconds)
        if work is None:
            return None
        payload = None if request.direct else rows.encode(work.batch).payload
        return EncodedWork(work.queue, work.lease, payload)

    @remote
    def has_rows(self, request: Request) -> bool:
        """Returns whether a queue of a request has rows that are neither leased nor in the weights.

        Also true if the bound on staleness holds them back, or if the broker or the sync unit does
        not answer, so that trainers wait for it.

        Args:
            request: Request of a trainer.

        Raises:
            LeaseRefusedError: There is no such model, it is not trained from the queue, or the
                trainer has no queue of its own.
            PositionLostError: Retention has removed the next rows, or the topic was made again.
            DataError: There are too many bad rows.
            CorruptFileError: A record is damaged.
        """
        queues = [self._queues[name] for name in self._queues_for(request)]
        try:
            for queue in queues:
                queue.settle(request.model, time.monotonic())
            return any(queue.has_rows(request.model) for queue in queues)
        except StreamError as error:
            if type(error) is not StreamError:
                raise
            return True

    @remote
    def renew(self, trainer: str, model: str, queue: str, fence: int) -> None:
        """Extends a trainer's lease to its full lifetime from now on.

        Args:
            trainer: Name of the trainer.
            model: Name of the target model.
            queue: Name of the queue of the lease.
            fence: Fence of the lease, `Lease.fence`.

        Raises:
            LeaseRefusedError: The lease is over, another trainer holds it, or the model is not
                trained from the queue.
        """
        self._queue(model, queue).renew(model, fence, trainer, time.monotonic())

    @remote
    def finish(self, model: str, queue: str, fence: int) -> None:
        """Ends a lease whose update is in the weights. Does nothing if the lease has ended already.

        Args:
            model: Name of the target model.
            queue: Name of the queue of the lease.
            fence: Fence of the lease, `Lease.fence`.

        Raises:
            LeaseRefusedError: The model is not trained from the queue.
        """
        self._queue(model, queue).finish(model, fence)

    @remote
    def leave(self, trainer: str, model: str) -> None:
        """Ends all leases of a trainer that stops. Rows that it has not trained are leased again.

        Args:
            trainer: Name of the trainer.
            model: Name of the target model that it trained.

        Raises:
            LeaseRefusedError: There is no such model.
            StreamError: A queue or the sync unit cannot be reached.
        """
        for name in self._names(model):
            self._queues[name].leave(model, trainer)

    @remote
    def lag(self, model: str) -> dict[str, int]:
        """Returns a model's lag in each of its queues, in records, as `ServedQueue.lag`.

        Returns:
            Number of records by the name of the queue.

        Raises:
            LeaseRefusedError: There is no such model.
            StreamError: A queue cannot be reached.
        """
        return {name: self._queues[name].lag(model) for name in self._names(model)}

    @remote
    def retry(self, model: str) -> dict[str, int]:
        """Gives the leases of a model out again that were set aside.

        Returns:
            Number of rows by the name of the queue.

        Raises:
            LeaseRefusedError: There is no such model.
        """
        return {name: self._queues[name].retry(model) for name in self._names(model)}

    @remote
    def stats(self) -> dict[str, dict[str, float]]:
        """Returns the metrics of bad rows, and of leases that were set aside.

        Returns:
            Values by the name of the metric and the label, which is the name of a lease.

        Raises:
            StreamError: The provider cannot be reached.
        """
        aside = {
            each.name: float(each.rows)
            for queue in self._queues.values()
            for each in queue.set_aside
        }
        bad = self._letters.count + sum(aside.values())
        return metrics.as_dict(
            [(metrics.STREAM_BAD_ROWS, {"": bad}), (metrics.STREAM_ASIDE_ROWS, aside)]
        )

    def check(self) -> None:
        """Raises `NameTakenError` if another provider serves a queue, so that this one must end."""
        for queue in self._queues.values():
            queue.check()

    def close(self) -> None:
        """Closes the queues and the file of bad rows. No other method may be called afterwards."""
        with contextlib.closing(self._letters):
            self._queues.close()

    def _work(self, names: Sequence[str], request: Request, count: int) -> GrantedWork | None:
        """Returns a lease if one can be granted now, else `None`.

        A broker or sync unit that does not answer counts as no rows, so trainers wait for it.
        """
        try:
            for name in self._in_order(names, request):
                granted = self._queues[name].grant(
                    request.model, request.trainer, count, time.monotonic()
                )
                if granted is not None:
                    with self._lock:
                        self._last[request.trainer] = request.number, name, granted[0].fence
                    return GrantedWork(name, *granted)
            # Leases that have expired in other queues count in the bound on staleness.
            for name in self._names(request.model):
                self._queues[name].settle(request.model, time.monotonic())
        except StreamError as error:
            if type(error) is not StreamError:
                raise
            _log.warning("Cannot grant leases, trainers wait: %s", error)
        return None

    def _answered(self, request: Request) -> GrantedWork | None:
        with self._lock:
            number, name, fence = self._last.get(request.trainer, (None, "", 0))
        if number != request.number:
            return None
        granted = self._queues[name].rows_again(request.model, fence, request.trainer)
        return None if granted is None else GrantedWork(name, *granted)

    def _queues_for(self, request: Request) -> Sequence[str]:
        names = self._names(request.model)
        if request.queue in ("any", "next"):
            return names
        name = self._own.get(request.trainer) if request.queue == "own" else request.queue
        if name is None:
            raise LeaseRefusedError(
                f"Trainer {request.trainer} requests its own queue, but has none. Add it to `own` "
                f"in stream.yaml. Received: queues of {sorted(self._own)}"
            )
        names = self._queues.names((name,))
        for each in names:
            self._queue(request.model, each)
        return names

    def _names(self, model: str) -> tuple[str, ...]:
        """Returns the names of a model's queues, of a topic those of its partitions."""
        return self._queues.names(self._routes.queues_of(model))

    def _queue(self, model: str, name: str) -> ServedQueue:
        names = self._names(model)
        if name not in names:
            raise LeaseRefusedError(
                f"Model '{model}' is trained from the queues {list(names)}; request one of them. "
                f"Received: '{name}'"
            )
        return self._queues[name]

    def _in_order(self, names: Sequence[str], request: Request) -> Sequence[str]:
        if request.queue == "next":
            with self._lock:
                turn = self._turns.get(request.model, 0) % len(names)
                self._turns[request.model] = turn + 1
            return [*names[turn:], *names[:turn]]
        if len(names) > 1:
            lags = {name: self._queues[name].lag(request.model, _LAG_SECONDS) for name in names}
            return sorted(names, key=lambda name: -lags[name])
        return names
