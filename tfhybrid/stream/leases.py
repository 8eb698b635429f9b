"""A trainer's side of the stream: takes leases, hands out their batches, sends the updates."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tfhybrid.errors import ConfigError, LeaseRefusedError
from tfhybrid.settings import stream_trainer
from tfhybrid.store.metrics import STREAM_LAG, Metric
from tfhybrid.stream.lease_length import Load
from tfhybrid.stream.leased_rows import LeasedRows
from tfhybrid.stream.model_spec import ModelSpec
from tfhybrid.stream.observed import Observed
from tfhybrid.stream.provider import Request, Work
from tfhybrid.stream.provider_calls import RemoteProvider
from tfhybrid.stream.remote import Remote
from tfhybrid.stream.settings import StreamSettings
from tfhybrid.stream.stats import from_dict

PUSHES = ("deltas", "gradients")
_WAIT_SECONDS = 1.0
_FAR = 2**53  # seconds, which float64 has to the second


class Leases:
    """The rows that a trainer gets, a lease at a time.

    Args:
        config: `stream.yaml`.
        model: The target model that is trained.
        batch_size: Rows of a step.
        queue: Of which the trainer wants rows; as of `Request`.
        trainer: Its name. Defaults to `TFHYBRID_STREAM_TRAINER`, or host and process id.
        wait: Whether to wait for rows when there are none. If not, the data end there.
        push: What is sent of a lease: `"deltas"`, how the trainer's own optimizer has changed the
            weights; or `"gradients"`, to which the sync unit applies the optimizers. Then a lease
            is one step.
        direct: Whether to read the rows of leases from the queues, which this process must reach at
            the addresses of `config`, instead of having the provider send them.

    Raises:
        ConfigError: The batch size is not positive, or `push` is something else.

    Example:

    ```python
    leases = tfhybrid.stream.Leases("stream.yaml", model="ads", batch_size=256)
    model.fit(
        tfhybrid.stream.dataset(leases, features=["item", "user"], label="label"),
        callbacks=[tfhybrid.stream.Online(leases, tables={"item": "item", "user": "user"})],
    )
    ```
    """

    def __init__(
        self,
        config: str | os.PathLike[str],
        *,
        model: str,
        batch_size: int,
        queue: str = "any",
        trainer: str | None = None,
        wait: bool = True,
        push: str = "deltas",
        direct: bool = False,
    ) -> None:
        if batch_size < 1:
            raise ConfigError(f"A batch has at least one row. Received: {batch_size}")
        if push not in PUSHES:
            raise ConfigError(f"push must be one of {PUSHES}. Received: {push!r}")
        settings = StreamSettings.read(config)
        self.schema = settings.schema
        self.model = model
        self.trainer = trainer or stream_trainer()
        remote = Remote(settings.provider, settings.token, self.trainer, "provider")
        rows = LeasedRows(settings.queue_address, self.schema)
        self._provider = RemoteProvider(remote, rows.read)
        self.push = push
        self._direct = direct
        self._unit = settings.remote_model(model, self.trainer)
        self._batch_size = batch_size
        self._queue = queue
        self._wait = wait
        self._spec: ModelSpec | None = None
        # Of this process alone: one that starts again under the name asks for work of its own.
        self._number = time.monotonic_ns()
        self._work: Work | None = None
        self._next_row = 0
        self._begun = 0.0
        self._rows_per_second = 0.0
        self.version = 0  # of the weights that were read last
        self._event_time = settings.event_time
        self._observed = Observed()
        self.refused = 0

    @property
    def work(self) -> Work | None:
        """The lease whose batches are being trained."""
        return self._work

    def open(
        self,
        spec: ModelSpec,
        dense: Sequence[np.ndarray],
        checkpoint: tuple[str, int] | None = None,
        states: np.ndarray | None = None,
    ) -> None:
        """Says what the model consists of; the first trainer's dense weights begin it.

        Args:
            spec: What it consists of.
            dense: Its dense weights.
            checkpoint: Directory and step from which the sync unit takes rows, if it begins now.
            states: Of the dense weights' optimizer there; as of `TargetModel.open`.

        Raises:
            ConfigError: Another trainer has said something else.
            CheckpointError: The sync unit cannot read the checkpoint.
        """
        self._unit.open(spec, dense, checkpoint, states)
        self._spec = spec

    def batch(self) -> pa.RecordBatch | None:
        """Returns the batch that is to be trained now; the same until `trained`.

        Returns:
            The batch, or `None` if there are no more rows and nobody waits for them.

        Raises:
            LeaseRefusedError: The model is not trained from the queue.
            StreamError: The provider has been away for too long.
        """
        while self._work is None:
            self._work = self._provider.lease(
                self._request(), wait_seconds=_WAIT_SECONDS if self._wait else 0.0
            )
            self._next_row = 0
            self._begun = time.monotonic()
            if self._work is None and not self._wait:
                return None
        return self._work.batch.slice(self._next_row, self._batch_size)

    def trained(self) -> bool:
        """Notes that the batch has been trained; returns whether it was the last of its lease."""
        assert self._work is not None
        self._next_row += self._batch_size
        if self._next_row < self._work.lease.rows:
            self._renew()
            return False
        return True

    def read(
        self, keys: Mapping[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
        """Reads the rows that the lease needs, and the dense weights, all after one update.

        Args:
            keys: int64 `[n]` of each table.
        """
        spec = self._opened()
        rows, self.version = self._unit.read({**keys, **spec.keys_of_weights()})
        return {name: rows[name] for name in keys}, spec.weights_of(rows)

    def observe(self, observed: Observed) -> None:
        """Adds what was seen of the rows of the lease; it goes with the update."""
        self._observed += observed

    def send(
        self,
        keys: Mapping[str, np.ndarray],
        values: Mapping[str, np.ndarray],
        dense: Sequence[np.ndarray] | None,
        rates: Mapping[str, float] | None = None,
    ) -> bool:
        """Sends the update of the lease and ends it.

        Args:
            keys: Of each table, each key once.
            values: Deltas or gradients of the rows.
            dense: Of the dense weights, as many as `ModelSpec.shapes`; `None` leaves them as they
                are.
            rates: Learning rates of tables that have an optimizer in the sync unit.

        Returns:
            Whether it is in the weights. `False` if the lease had expired: another trainer has the
            rows.
        """
        work = self._work
        assert work is not None
        self._work = None
        all_keys, all_values = dict(keys), dict(values)
        spec = self._opened()
        for name, (of_weights, rows) in spec.rows_of(dense or _zeros(spec.shapes)).items():
            count = 0 if dense is None else len(of_weights)
            all_keys[name], all_values[name] = of_weights[:count], rows[:count]
        update = work.update(self.model, self.trainer, self.version, all_keys, all_values, rates)
        times = self._event_times(work)
        update = dataclasses.replace(
            update, observed=self._observations(times), event_time=_latest(times)
        )
        try:
            self._unit.apply(update)
        except LeaseRefusedError:
            self.refused += 1
            return False
        self._provider.finish(self.model, work.queue, work.lease.fence)
        self._rows_per_second = work.lease.rows / max(time.monotonic() - self._begun, 1e-6)
        return True

    def stats(self) -> Iterator[tuple[Metric, dict[str, float]]]:
        """Yields what sync unit and provider tell of the model, as metrics."""
        yield from from_dict(self._unit.stats())
        lag = self._provider.lag(self.model)
        yield STREAM_LAG, {f"{self.model}/{queue}": float(count) for queue, count in lag.items()}

    def leave(self) -> None:
        """Gives the rows back that have not been trained; at the end of training."""
        self._work = None
        self._observed = Observed()
        self._provider.leave(self.trainer, self.model)

    def _request(self) -> Request:
        number, self._number = self._number, self._number + 1
        return Request(
            self.trainer,
            number,
            self.model,
            self._queue,
            self._batch_size,
            Load(rows_per_second=self._rows_per_second),
            steps=1 if self.push == "gradients" else None,
            direct=self._direct,
        )

    def _event_times(self, work: Work) -> np.ndarray:
        """Returns when the rows happened that say it, float64."""
        if self._event_time is None:
            return np.zeros(0)
        times = work.batch[self._event_time].cast(pa.float64()).to_numpy(zero_copy_only=False)
        return times[np.isfinite(times)]

    def _observations(self, times: np.ndarray) -> dict[str, Any]:
        found, self._observed = self._observed, Observed()
        return (found + Observed.of_times(times)).to_json()

    def _renew(self) -> None:
        work = self._work
        assert work is not None
        try:
            self._provider.renew(self.trainer, self.model, work.queue, work.lease.fence)
        except LeaseRefusedError:
            return  # the sync unit decides what becomes of the update

    def _opened(self) -> ModelSpec:
        if self._spec is None:
            raise ConfigError("Leases.open says what the model consists of. Received: no call yet")
        return self._spec


def _latest(times: np.ndarray) -> int | None:
    """Returns the latest of some times in whole seconds; `None` if there are none."""
    return int(np.clip(np.floor(times.max()), -_FAR, _FAR)) if len(times) else None


def _zeros(shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    return [np.zeros(shape, np.float32) for shape in shapes]
