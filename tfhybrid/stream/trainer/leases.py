"""The trainer's side of a stream: requests leases, yields their batches and sends the updates."""

from __future__ import annotations

import dataclasses
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tfhybrid._ending import python_ends
from tfhybrid.errors import ConfigError, LeaseRefusedError, PositionLostError
from tfhybrid.monitoring.metrics import STREAM_LAG, Metric, from_dict
from tfhybrid.settings import stream_trainer
from tfhybrid.stream.provider.lease_length import Load
from tfhybrid.stream.provider.work import EncodedWork, GrantedWork, Request
from tfhybrid.stream.stream_queues import StreamQueues
from tfhybrid.stream.stream_settings import StreamSettings
from tfhybrid.stream.trainer.leased_rows import LeasedRows
from tfhybrid.stream.weights.model_spec import ModelSpec
from tfhybrid.stream.weights.observed import Observed

_log = logging.getLogger("tfhybrid.stream")

PUSHES = ("deltas", "gradients")
_WAIT_SECONDS = 1.0
_RENEWALS = 10  # in a lease's lifetime, at most; each is a call
_FAR = 2**53  # seconds; a float64 is exact to the second up to here


class Leases:
    """The leases (rights to train rows of a queue) of one trainer, one at a time. Not thread-safe.

    Args:
        config: Path of `stream.yaml`.
        model: Name of the target model to train.
        batch_size: Rows of a step.
        queue: Name of the queue to train from, or `"any"`, `"next"` or `"own"`; see
            `tfhybrid.stream.provider.work.Request`. Default `"any"`.
        trainer: Name of this trainer, unique among those that run. Default
            `TFHYBRID_STREAM_TRAINER`, or else host and process id.
        wait: Whether to wait for rows when there are none. Otherwise the data end when all rows
            are leased or trained; rows that `staleness` holds back, or that cannot be leased
            because the sync unit does not answer, are waited for. Default `True`.
        push: Content of an update: `"deltas"`, the changes that this trainer's optimizer made to
            the weights, or `"gradients"`, to which the sync unit applies its optimizers. With
            gradients, a lease is one step. Default `"deltas"`.
        direct: Whether this process reads the rows from the queues itself, at the addresses in
            `config`. Otherwise the provider sends them. Default `False`.

    Attributes:
        schema: Columns of the rows.
        version: Version of the weights that were read last.
        refused: Number of updates that were refused, mostly because their lease had expired.

    Raises:
        ConfigError: `batch_size` is not positive, `push` has another value, `config` is not valid,
            or the token file cannot be read.
        ValueError: An address in `config` does not end in a port number.

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
            raise ConfigError(f"batch_size must be at least 1. Received: {batch_size}")
        if push not in PUSHES:
            raise ConfigError(f"push must be one of {PUSHES}. Received: {push!r}")
        settings = StreamSettings.read(config)
        self.schema = settings.schema
        self.model = model
        self.trainer = trainer or stream_trainer()
        queues = StreamQueues(settings.queues, settings.folder)
        self._rows = LeasedRows(queues.open, settings.row_columns)
        self._provider = settings.remote_provider(self.trainer)
        self.push = push
        self._direct = direct
        self._weights = settings.remote_model(model, self.trainer)
        self._unit = settings.remote_unit(self.trainer)
        self._batch_size = batch_size
        self._queue = queue
        self._wait = wait
        self._spec: ModelSpec | None = None
        # Differs in each process, so a restarted trainer does not get its predecessor's answers.
        self._number = time.monotonic_ns()
        self._work: GrantedWork | None = None
        self._gave_back = False
        self._next_row = 0
        self._begun = 0.0
        self._renewal_seconds = settings.expires_seconds / _RENEWALS
        self._renew_at = 0.0
        self._rows_per_second = 0.0
        self.version = 0
        self._event_time = settings.event_time
        self._observed = Observed()
        self.refused = 0

    @property
    def work(self) -> GrantedWork | None:
        """The lease (rows to train and the right to train them) in training; `None` between two."""
        return self._work

    def open(
        self,
        spec: ModelSpec,
        dense: Sequence[np.ndarray],
        checkpoint: tuple[str, int] | None = None,
        states: np.ndarray | None = None,
    ) -> None:
        """Declares the model to the sync unit. Call it once, before training.

        The first trainer's call creates the target model. In later calls only `spec` is used, and
        must be the same.

        Args:
            spec: Tables and dense weights of the model.
            dense: Initial dense weights.
            checkpoint: Directory and step of the checkpoint with the initial rows of the tables;
                the sync unit reads it. By default the tables are empty.
            states: Optimizer states of the dense weights in the checkpoint, float32
                `[rows, slots, dim]` from `ModelSpec.rows_of_states`. By default the optimizer
                starts with new states.

        Raises:
            ConfigError: The model was created with another `spec`, or the weights or states do not
                fit it.
            CheckpointError: The sync unit cannot read the checkpoint.
            StreamError: The sync unit cannot be reached, or has no such model.
            OutOfSpaceError: Disk or shared memory of the sync unit is full.
        """
        self._weights.open(spec, dense, checkpoint, states)
        self._spec = spec

    def batch(self) -> pa.RecordBatch | None:
        """Returns the batch to train now: the same one until `trained` is called.

        Requests a lease if there is none. Blocks while there are no rows, if `wait` is `True`, and
        while rows are held back.

        Returns:
            The batch, or `None` if there are no more rows and `wait` is `False`, or Python ends.

        Raises:
            LeaseRefusedError: The model is unknown or not trained from the queue, or this trainer
                has no queue of its own.
            PositionLostError: Retention has removed the next rows, or the topic was made again.
            StreamError: The provider or, with `direct`, a queue cannot be reached.
            DataError: There are too many bad rows.
            CorruptFileError: A record of the queue is damaged.
            StoreError: The provider or the sync unit has no
                space (`OutOfSpaceError`).
            ConfigError: With `direct`, the address of a queue is not valid.
            UnsupportedError: With `direct`, a queue is in Kafka, and confluent-kafka is not
                installed.
        """
        seconds = _WAIT_SECONDS if self._wait else 0.0
        while self._work is None:
            request = self._request()
            encoded = self._provider.lease_encoded(request, seconds)
            self._work = None if encoded is None else self._granted(encoded)
            self._next_row = 0
            self._begun = time.monotonic()
            self._renew_at = self._begun + self._renewal_seconds
            if self._work is None:
                if python_ends() or not (self._wait or self._provider.has_rows(request)):
                    return None
                seconds = _WAIT_SECONDS  # the rows are held back
        return self._work.batch.slice(self._next_row, self._batch_size)

    def trained(self) -> bool:
        """Marks the batch that `batch` returned as trained.

        Renews the lease if more batches follow and a tenth of its lifetime has passed.

        Returns:
            Whether the batch was the last one of its lease. Call `send` then.

        Raises:
            StreamError: The provider cannot be reached.
        """
        assert self._work is not None
        self._next_row += self._batch_size
        if self._next_row < self._work.lease.rows:
            if time.monotonic() >= self._renew_at:
                self._renew()
            return False
        return True

    def read(
        self, keys: Mapping[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
        """Reads rows and dense weights from the sync unit, all at the same version.

        Args:
            keys: Keys of each table, int64 `[n]`.

        Returns:
            The rows of each table, float32 `[n, dim]`, and the dense weights.

        Raises:
            ConfigError: `open` was not called.
            StreamError: The sync unit cannot be reached.
        """
        spec = self._opened()
        rows, self.version = self._weights.read({**keys, **spec.keys_of_weights()})
        return {name: rows[name] for name in keys}, spec.weights_of(rows)

    def observe(self, observed: Observed) -> None:
        """Adds statistics of the lease's rows, to be sent with its update by `send`.

        Args:
            observed: Statistics of rows of the current lease.
        """
        self._observed += observed

    def send(
        self,
        keys: Mapping[str, np.ndarray],
        values: Mapping[str, np.ndarray],
        dense: Sequence[np.ndarray] | None,
        rates: Mapping[str, float] | None = None,
    ) -> bool:
        """Sends the update of the current lease, and ends the lease.

        After an error its rows are leased again once it has expired, unless they were applied.

        Args:
            keys: Keys of each table, int64 `[n]`, each key once.
            values: Deltas or gradients of the keys, float32 `[n, dim]`, by table.
            dense: Deltas or gradients of the dense weights, one per entry of `ModelSpec.shapes`.
                `None` leaves the dense weights unchanged.
            rates: Learning rates of the tables with an optimizer in the sync unit. Default none.

        Returns:
            Whether the update is in the weights. `False` if the sync unit refused it, mostly
            because the lease had expired; its rows are then leased again.

        Raises:
            ConfigError: A value is not finite or does not fit the model, or `open` was not called.
            StreamError: The sync unit or the provider cannot be reached.
            OutOfSpaceError: Memory or disk of the sync unit has no space. Nothing was changed.
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
            self._weights.apply_record(update.to_record())
        except LeaseRefusedError:
            self.refused += 1
            return False
        self._provider.finish(self.model, work.queue, work.lease.fence)
        self._rows_per_second = work.lease.rows / max(time.monotonic() - self._begun, 1e-6)
        return True

    def stats(self) -> Iterator[tuple[Metric, dict[str, float]]]:
        """Yields the metrics of the sync unit, and the model's lag at the provider, with values.

        Raises:
            StreamError: The sync unit or the provider cannot be reached, or has no such model.
        """
        yield from from_dict(self._unit.stats())
        lag = self._provider.lag(self.model)
        yield STREAM_LAG, {f"{self.model}/{queue}": float(count) for queue, count in lag.items()}

    def leave(self) -> None:
        """Returns all untrained rows of this trainer to the provider. Call it after training.

        Raises:
            StreamError: The provider, a queue or the sync unit cannot be reached.
        """
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

    def _granted(self, encoded: EncodedWork) -> GrantedWork | None:
        """Returns a lease with its rows; gives it back if records have vanished under it.

        A second one after another is an error, because this process may read another queue.
        """
        try:
            work = encoded.granted(self._rows.read)
        except (LeaseRefusedError, PositionLostError) as error:
            if self._gave_back:
                raise
            self._gave_back = True
            _log.warning("The lease is given back, to be cut again: %s", error)
            self._provider.leave(self.trainer, self.model)
            return None
        self._gave_back = False
        return work

    def _event_times(self, work: GrantedWork) -> np.ndarray:
        """Returns the event times of the rows that have one, float64 `[n]`."""
        if self._event_time is None:
            return np.zeros(0)
        times = work.batch[self._event_time].cast(pa.float64()).to_numpy(zero_copy_only=False)
        return times[np.isfinite(times)]

    def _observations(self, times: np.ndarray) -> dict[str, Any]:
        observed, self._observed = self._observed, Observed()
        return (observed + Observed.of_times(times)).to_json()

    def _renew(self) -> None:
        work = self._work
        assert work is not None
        self._renew_at = time.monotonic() + self._renewal_seconds
        try:
            self._provider.renew(self.trainer, self.model, work.queue, work.lease.fence)
        except LeaseRefusedError:
            return  # the sync unit accepts or refuses the update

    def _opened(self) -> ModelSpec:
        if self._spec is None:
            raise ConfigError(
                "Leases.open must be called before weights are read or updates are sent. "
                "Received: no call"
            )
        return self._spec


def _latest(times: np.ndarray) -> int | None:
    """Returns the latest of some times, rounded down to seconds; `None` if there are none."""
    return int(np.clip(np.floor(times.max()), -_FAR, _FAR)) if len(times) else None


def _zeros(shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    return [np.zeros(shape, np.float32) for shape in shapes]
