"""The provider as a process serves it, and as trainers and producers see it from afar."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from tfhybrid.nodes.calls import Answer, Called
from tfhybrid.nodes.messages import Arrays
from tfhybrid.stream import rows
from tfhybrid.stream.lease_book import Lease
from tfhybrid.stream.lease_length import Load
from tfhybrid.stream.provider import Provider, Request, Work
from tfhybrid.stream.queue import Record
from tfhybrid.stream.remote import Remote
from tfhybrid.stream.sync_unit import lease_fields, lease_from


def provider_calls(provider: Provider) -> dict[str, Called]:
    """Returns what may be asked of a provider."""

    def lease(arguments: dict[str, Any], _: dict[str, np.ndarray]) -> Answer:
        asked = dict(arguments["request"])
        request = Request(**{**asked, "load": Load(**asked["load"])})
        work = provider.lease(request, wait_seconds=arguments["wait_seconds"])
        if work is None:
            return None, {}
        told = {"queue": work.queue, "lease": lease_fields(work.lease)}
        if request.direct:
            return told, {}
        return told, {"rows": np.frombuffer(rows.encode(work.batch).payload, np.uint8)}

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
    """A provider in another process; as `Provider`.

    Args:
        remote: To it.
        read: Reads the rows of a lease of a queue, for requests that are direct.
    """

    def __init__(
        self, remote: Remote, read: Callable[[str, Lease], pa.RecordBatch] | None = None
    ) -> None:
        self._remote = remote
        self._read = read

    def put(self, producer: str, number: int, record: Record) -> int:
        """Puts the rows of a record into their queues; see `Provider.put`."""
        arrays = {"record": np.frombuffer(record.payload, np.uint8)}
        return int(self._ask("put", arrays, producer=producer, number=number)[0])

    def lease(self, request: Request, *, wait_seconds: float = 0.0) -> Work | None:
        """Hands out rows; see `Provider.lease`."""
        asked = dataclasses.asdict(request)
        found, arrays = self._ask("lease", request=asked, wait_seconds=wait_seconds)
        if found is None:
            return None
        queue, lease = found["queue"], lease_from(found["lease"])
        if request.direct and self._read is not None:
            return Work(queue, lease, self._read(queue, lease))
        return Work(queue, lease, rows.batch_of(arrays["rows"].tobytes()))

    def renew(self, trainer: str, model: str, queue: str, fence: int) -> None:
        """Lets a lease expire later; see `Provider.renew`."""
        self._ask("renew", trainer=trainer, model=model, queue=queue, fence=fence)

    def finish(self, model: str, queue: str, fence: int) -> None:
        """Ends a lease whose update is in the weights."""
        self._ask("finish", model=model, queue=queue, fence=fence)

    def leave(self, trainer: str, model: str) -> None:
        """Takes the leases of a trainer back: it goes."""
        self._ask("leave", trainer=trainer, model=model)

    def lag(self, model: str) -> dict[str, int]:
        """Returns how many records of each queue of a model no trainer has had."""
        found: dict[str, int] = self._ask("lag", model=model)[0]
        return found

    def _ask(
        self, call: str, arrays: Arrays | None = None, **arguments: Any
    ) -> tuple[Any, dict[str, np.ndarray]]:
        return self._remote.ask(call, arguments, arrays)
