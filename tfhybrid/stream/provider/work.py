"""Work that trainers request from the provider, and get: leases with their rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from tfhybrid.stream.provider.lease_length import Load
from tfhybrid.stream.queues import rows
from tfhybrid.stream.weights.lease import Lease
from tfhybrid.stream.weights.weight_update import WeightUpdate


@dataclasses.dataclass(frozen=True)
class Request:
    """A trainer's request for a lease.

    Args:
        trainer: Name of the trainer, unique among those that run.
        number: Number of the request. If the answer was lost, the trainer sends the request again
            with the same number, and gets the same lease.
        model: Name of the target model.
        queue: Name of the queue or of a topic; `"own"` for the queue assigned to this trainer,
            `"any"` for the model's with the largest lag, `"next"` for each in turn. Default "any".
        batch: Rows of a step. Default 1.
        load: Speed and backlog of the trainer. Default unknown.
        steps: Maximum number of steps in the lease. By default it follows from the load.
        direct: Whether the trainer reads the rows from the queue itself. Default `False`.
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
class GrantedWork:
    """A lease, with its rows.

    Args:
        queue: Name of the queue.
        lease: Lease of the rows.
        batch: Rows of the lease.
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
        """Returns the update to send for this lease. Checks nothing.

        Args:
            model: Name of the target model.
            trainer: Name of the trainer.
            version: Version of the weights that the trainer read.
            keys: Keys of each table, int64 `[n]`, each key once.
            values: Deltas or gradients of the keys, float32 `[n, dim]`, by table.
            rates: Learning rate of each table that has an optimizer in the sync unit. Default none.
        """
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


@dataclasses.dataclass(frozen=True)
class EncodedWork:
    """A lease, with its rows as bytes, as it travels to another process.

    Args:
        queue: Name of the queue.
        lease: Lease of the rows.
        payload: Rows of the lease, as `rows.encode` encodes them; `None` if the trainer reads them
            from the queue itself.
    """

    queue: str
    lease: Lease
    payload: bytes | None

    def granted(self, read: Callable[[str, Lease], pa.RecordBatch]) -> GrantedWork:
        """Returns the lease with its rows.

        Args:
            read: Function that reads the rows of a lease from a queue, by the queue's name. It is
                called only if the rows have not come with the lease.
        """
        if self.payload is None:
            return GrantedWork(self.queue, self.lease, read(self.queue, self.lease))
        return GrantedWork(self.queue, self.lease, rows.batch_of(self.payload))
