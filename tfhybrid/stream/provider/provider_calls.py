"""Remote calls of the provider: the functions that its process serves, and their client."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from tfhybrid.rpc.calls import Answer, Called
from tfhybrid.rpc.messages import Arrays
from tfhybrid.rpc.remote import Remote
from tfhybrid.stream.provider.lease_length import Load
from tfhybrid.stream.provider.provider import GrantedWork, Provider, Request
from tfhybrid.stream.queues import rows
from tfhybrid.stream.queues.queue import Record
from tfhybrid.stream.weights.lease import Lease, lease_fields, lease_from


def provider_calls(provider: Provider) -> dict[str, Called]:
    """Returns the functions of a provider that other processes may call, by name.

    Any thread may call the functions. `RemoteProvider` is their client.

    Args:
        provider: Provider whose methods are called.
    """

    def lease(arguments: dict[str, Any], _: dict[str, np.ndarray]) -> Answer:
        fields = dict(arguments["request"])
        request = Request(**{**fields, "load": Load(**fields["load"])})
        work = provider.lease(request, wait_seconds=arguments["wait_seconds"])
        if work is None:
            return None, {}
        response = {"queue": work.queue, "lease": lease_fields(work.lease)}
        if request.direct:
            return response, {}
        return response, {"rows": np.frombuffer(rows.encode(work.batch).payload, np.uint8)}

    def put(arguments: dict[str, Any], arrays: dict[str, np.ndarray]) -> Answer:
        record = Record(arrays["record"].tobytes())
        return provider.put(arguments["producer"], arguments["number"], record), {}

    def plain(name: str) -> Called:
        def called(arguments: dict[str, Any], _: dict[str, np.ndarray]) -> Answer:
            return getattr(provider, name)(**arguments), {}

        return called

    names = ("renew", "finish", "leave", "lag")
    return {"lease": lease, "put": put, **{name: plain(name) for name in names}}


class RemoteProvider:
    """Client of a provider in another process, with the methods of `Provider` except `close`.

    Thread-safe: a call waits until the one before has ended. Every method also raises `StreamError`
    if the provider cannot be reached for the `patience` of `remote`.

    Args:
        remote: Connection to the provider.
        read: Function that reads the rows of a lease from a queue, by the queue's name. It serves
            requests with `direct=True`, which then must come from one thread. Default none: no such
            requests.
    """

    def __init__(
        self, remote: Remote, read: Callable[[str, Lease], pa.RecordBatch] | None = None
    ) -> None:
        self._remote = remote
        self._read = read

    def put(self, producer: str, number: int, record: Record) -> int:
        """Puts the rows of a record into their queues. Each record is stored once.

        Args:
            producer: Name of the producer.
            number: Number of the record; it must increase from record to record of a producer.
            record: Record with JSON or Arrow rows.

        Returns:
            Number of rows that were new; 0 if the record was stored before, or has no good row with
            a queue.

        Raises:
            StreamError: The record was not stored. Send it again with the same number.
            DataError: There are too many bad rows.
            OutOfSpaceError: The disk of a queue is full. Send the record again with the same
                number.
        """
        arrays = {"record": np.frombuffer(record.payload, np.uint8)}
        return int(self._ask("put", arrays, producer=producer, number=number)[0])

    def lease(self, request: Request, *, wait_seconds: float = 0.0) -> GrantedWork | None:
        """Requests a lease. A request with the same number again gets the same lease.

        Args:
            request: Request of the trainer.
            wait_seconds: Maximum time to wait for rows, in seconds. Default 0.

        Returns:
            The lease with its rows, or `None` if none could be granted in time.

        Raises:
            LeaseRefusedError: There is no such model, it is not trained from the queue, the trainer
                has no queue of its own, or the lease of a repeated request is over.
            PositionLostError: Retention has removed the next rows.
            DataError: There are too many bad rows.
            CorruptFileError: A record is damaged.
            StreamError: The provider cannot be reached, or `read` cannot reach the queue.
        """
        fields = dataclasses.asdict(request)
        response, arrays = self._ask("lease", request=fields, wait_seconds=wait_seconds)
        if response is None:
            return None
        queue, lease = response["queue"], lease_from(response["lease"])
        if request.direct and self._read is not None:
            return GrantedWork(queue, lease, self._read(queue, lease))
        return GrantedWork(queue, lease, rows.batch_of(arrays["rows"].tobytes()))

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
        self._ask("renew", trainer=trainer, model=model, queue=queue, fence=fence)

    def finish(self, model: str, queue: str, fence: int) -> None:
        """Ends a lease whose update is in the weights. Does nothing if the lease has ended already.

        Args:
            model: Name of the target model.
            queue: Name of the queue of the lease.
            fence: Fence of the lease, `Lease.fence`.

        Raises:
            LeaseRefusedError: The model is not trained from the queue.
        """
        self._ask("finish", model=model, queue=queue, fence=fence)

    def leave(self, trainer: str, model: str) -> None:
        """Ends all leases of a trainer that stops. Rows that it has not trained are leased again.

        Args:
            trainer: Name of the trainer.
            model: Name of the target model that it trained.

        Raises:
            LeaseRefusedError: There is no such model.
            StreamError: The provider, a queue or the sync unit cannot be reached.
        """
        self._ask("leave", trainer=trainer, model=model)

    def lag(self, model: str) -> dict[str, int]:
        """Returns a model's lag in each of its queues, in records, by the name of the queue.

        The lag counts from the first row that is neither leased nor in the weights.

        Raises:
            LeaseRefusedError: There is no such model.
            StreamError: The provider or a queue cannot be reached.
        """
        response: dict[str, int] = self._ask("lag", model=model)[0]
        return response

    def _ask(
        self, call: str, arrays: Arrays | None = None, **arguments: Any
    ) -> tuple[Any, dict[str, np.ndarray]]:
        return self._remote.ask(call, arguments, arrays)
