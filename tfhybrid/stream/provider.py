"""The data provider: puts samples into queues, and hands them out to trainers as leases."""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from tfhybrid.errors import LeaseRefusedError, StreamError
from tfhybrid.stream import rows
from tfhybrid.stream.dead_letters import DeadLetters
from tfhybrid.stream.lease_book import Lease
from tfhybrid.stream.lease_length import LeaseLength, Load
from tfhybrid.stream.numbered_writer import Numbered
from tfhybrid.stream.queue import Position, Record
from tfhybrid.stream.routes import Routes
from tfhybrid.stream.served_queue import ServedQueue
from tfhybrid.stream.weight_update import WeightUpdate

_log = logging.getLogger("tfhybrid.stream")

_LOOK_SECONDS = 0.02


@dataclasses.dataclass(frozen=True)
class Request:
    """What a trainer asks for.

    Args:
        trainer: Its name; no two that run have the same.
        number: Of this request. One that comes again, because the answer was lost, gets the same.
        model: The target model that it trains.
        queue: Of which it wants rows: its name, `"own"`, `"any"` or `"next"`. `"any"` is the one
            that is furthest behind, `"next"` takes turns.
        batch: Rows of a step.
        load: How fast it is, and what it has to do.
        steps: Of the lease, whatever the load; by default the provider decides.
        direct: Whether it reads the rows of its leases from the queue itself.
    """

    trainer: str
    number: int
    model: str
    queue: str = "any"
    batch: int = 1
    load: Load = dataclasses.field(default_factory=Load)
    steps: int | None = None
    direct: bool = False


@dataclasses.dataclass(frozen=True)
class Work:
    """What a trainer gets.

    Args:
        queue: Of the rows.
        lease: Under which it has them.
        batch: The rows.
    """

    queue: str
    lease: Lease
    batch: pa.RecordBatch

    def update(
        self,
        model: str,
        trainer: str,
        version: int,
        keys: Mapping[str, np.ndarray],
        values: Mapping[str, np.ndarray],
        rates: Mapping[str, float] | None = None,
    ) -> WeightUpdate:
        """Returns the update of the lease; arguments as of `WeightUpdate`."""
        return WeightUpdate(
            model=model,
            queue=self.queue,
            fence=self.lease.fence,
            begin=self.lease.begin,
            end=self.lease.end,
            rows=self.lease.rows,
            trainer=trainer,
            version=version,
            keys=keys,
            values=values,
            rates=rates or {},
        )


class Provider:
    """Serves queues to any number of trainers and producers. Thread-safe.

    It remembers nothing that matters: after `kill -9` a new one asks the sync units which rows are
    in the weights, and hands out the others.

    Args:
        queues: Those of `routes`, by name.
        schema: Columns of the rows.
        routes: Which rows belong where.
        letters: Where rows go that belong nowhere.
        length: Of a lease.
        own: The queue of each trainer that asks for its own.
    """

    def __init__(
        self,
        queues: Mapping[str, ServedQueue],
        schema: pa.Schema,
        routes: Routes,
        letters: DeadLetters,
        *,
        length: LeaseLength | None = None,
        own: Mapping[str, str] | None = None,
    ) -> None:
        self._queues = queues
        self._schema = schema
        self._routes = routes
        self._letters = letters
        self._length = length or LeaseLength()
        self._own = own or {}
        self._lock = threading.Lock()
        self._last: dict[str, tuple[int, str, int]] = {}  # request, queue and fence of each trainer
        self._turns: dict[str, int] = {}

    def put(self, producer: str, number: int, record: Record) -> int:
        """Puts the rows of a record into their queues; the same rows again change nothing.

        Args:
            producer: Who sends them.
            number: Grows from record to record of a producer.
            record: JSON or Arrow, of any number of rows.

        Returns:
            Rows that were new.

        Raises:
            StreamError: A queue could not be written, or its models are too far behind. Send the
                record again.
            DataError: There are too many bad rows.
        """
        decoded = rows.decode(record, self._schema)
        dealt, lost = self._routes.deal(decoded.batch)
        source = f"producer {producer}"
        for row, reason in decoded.bad:
            self._letters.add(source, Position(number, row), reason, record.payload)
        for row in lost.tolist():
            at = Position(number, int(decoded.numbers[row]))
            reason = f"No queue is declared for {self._routes.value_of(decoded.batch, row)}"
            self._letters.add(source, at, reason, record.payload)
        return sum(
            batch.num_rows
            * self._queues[name].put([Numbered(producer, number, rows.encode(batch))])
            for name, batch in dealt.items()
        )

    def lease(self, request: Request, *, wait_seconds: float = 0.0) -> Work | None:
        """Hands out rows.

        Args:
            request: Of a trainer.
            wait_seconds: How long to wait if there is no work.

        Returns:
            The work, or `None` if there was none in time.

        Raises:
            LeaseRefusedError: The model is not trained from that queue, or there is no such model.
            PositionLostError: Retention has removed the next rows.
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

    def renew(self, trainer: str, model: str, queue: str, fence: int) -> None:
        """Lets a lease expire later; raises `LeaseRefusedError` if it is over."""
        self._queue(model, queue).renew(model, fence, trainer, time.monotonic())

    def finish(self, model: str, queue: str, fence: int) -> None:
        """Ends a lease whose update is in the weights."""
        self._queue(model, queue).finish(model, fence)

    def leave(self, trainer: str, model: str) -> None:
        """Takes the leases of a trainer back: it goes."""
        for name in self._routes.queues_of(model):
            self._queues[name].leave(model, trainer)

    def lag(self, model: str) -> dict[str, int]:
        """Returns how many records of each queue of a model no trainer has had."""
        return {name: self._queues[name].lag(model) for name in self._routes.queues_of(model)}

    def close(self) -> None:
        """Closes the queues."""
        for queue in self._queues.values():
            queue.close()

    def _work(self, names: Sequence[str], request: Request, count: int) -> Work | None:
        """Returns what there is now: nothing, while a broker or a sync unit is away."""
        try:
            for name in self._in_order(names, request):
                found = self._queues[name].grant(
                    request.model, request.trainer, count, time.monotonic()
                )
                if found is not None:
                    with self._lock:
                        self._last[request.trainer] = request.number, name, found[0].fence
                    return Work(name, *found)
        except StreamError as error:
            if type(error) is not StreamError:
                raise
            _log.warning("Trainers wait: %s", error)
        return None

    def _answered(self, request: Request) -> Work | None:
        with self._lock:
            number, name, fence = self._last.get(request.trainer, (None, "", 0))
        if number != request.number:
            return None
        found = self._queues[name].rows_again(request.model, fence, request.trainer)
        return Work(name, *found)

    def _queues_for(self, request: Request) -> Sequence[str]:
        names = self._routes.queues_of(request.model)
        if request.queue in ("any", "next"):
            return names
        name = self._own.get(request.trainer) if request.queue == "own" else request.queue
        if name is None:
            raise LeaseRefusedError(
                f"Trainer {request.trainer} asks for its own queue, and has none. Received: queues "
                f"of {sorted(self._own)}"
            )
        self._queue(request.model, name)
        return (name,)

    def _queue(self, model: str, name: str) -> ServedQueue:
        names = self._routes.queues_of(model)
        if name not in names:
            raise LeaseRefusedError(
                f"Model '{model}' is trained from the queues {list(names)}. Received: '{name}'"
            )
        return self._queues[name]

    def _in_order(self, names: Sequence[str], request: Request) -> Sequence[str]:
        if request.queue == "next":
            with self._lock:
                turn = self._turns.get(request.model, 0) % len(names)
                self._turns[request.model] = turn + 1
            return [*names[turn:], *names[:turn]]
        if len(names) > 1:
            return sorted(names, key=lambda name: -self._queues[name].lag(request.model))
        return names
