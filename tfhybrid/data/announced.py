"""Announced data: keys of the next batches are known ahead, so that their rows are prefetched."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfhybrid import distributed
from tfhybrid._ending import EndingIterator
from tfhybrid.announcing import MISSES
from tfhybrid.core import passes
from tfhybrid.core.passes import BatchKeys
from tfhybrid.data.layer_calls import Layer, LayerCall, calls_of
from tfhybrid.data.lookahead import Boundary, Lookahead
from tfhybrid.data.numbered_ahead import numbered_ahead
from tfhybrid.data.samples.generated import generated
from tfhybrid.errors import ConfigError
from tfhybrid.job.job import Job, current_job
from tfhybrid.monitoring.report import report_stores
from tfhybrid.settings import shm_directory

_log = logging.getLogger("tfhybrid.data")
_GB = 1e9

FETCHES = ("pass", "batch")


# Function that returns the name of a table, or `None` before the table is open.
TableName = Callable[[], str | None]


def announce(
    dataset: Any,
    batches: int,
    layers: Layer | Sequence[Layer] | Mapping[str, Layer],
    *,
    fetch: str = "pass",
    on_miss: str = "fetch",
    fast_tier_bytes: int | None = None,
    optimizer: Any = None,
) -> Any:
    """Returns the batches of a dataset, and prefetches the rows that they look up.

    A pass is a group of `batches` batches. While one pass is trained, the rows of the next one are
    fetched from the hosts that own them. If an update changes rows of a pass, the changed rows are
    sent after it. The trained weights stay the same, bit for bit.

    On one host, and if no table is sharded, there is nothing to fetch: then the keys of the next
    `batches` batches of a `tf.data.Dataset` are numbered, and their rows found, on a thread of the
    data set. `fetch`, `on_miss` and `fast_tier_bytes` have no effect then.

    Call `announce` last, after all other transformations. A later transformation that reads ahead
    of the training, such as `prefetch`, makes lookups miss rows that were fetched.

    Iteration raises `ConfigError` if one batch needs more than this rank's part of
    `fast_tier_bytes`, or if `optimizer` does not train each batch; `UnsupportedError` with
    embedding nodes; and `NotInitializedError` without a job. A `tf.data.Dataset` raises
    TensorFlow's error with that text instead.

    Args:
        dataset: Batches of this rank: a `tf.data.Dataset` or another iterable. A batch is a dict of
            features, or a tuple that begins with one.
        batches: Number of batches in a pass, at least 1.
        layers: Layers that look up the features: one or several collections, or a dict of layers by
            feature. The keys of layers that are not built yet are not announced.
        fetch: `"pass"` (default) fetches all rows of a pass at once, and holds two passes.
            `"batch"` fetches the rows of each batch, and holds those of the next `batches`.
        on_miss: Treatment of keys that are looked up without having been announced while a pass of
            their table is open. `"fetch"` (default) fetches their rows and counts them; `"raise"`
            makes such a lookup an error.
        fast_tier_bytes: Maximum shared memory in bytes of the passes of all ranks of a host, an
            equal part per rank. A pass that would need more ends sooner. Default: no maximum.
        optimizer: A `tfhybrid.DistributedOptimizer(update="pass")` that trains every batch. It then
            makes one update per pass. In `fit`, `steps_per_execution` must be 1. Default: none.

    Returns:
        A `tf.data.Dataset` if `dataset` is one, else an iterable.

    Raises:
        ConfigError: An argument is invalid, `optimizer` does not have `update="pass"`, or a
            `tf.data.Dataset` has no dict of features or keys of the wrong type.
        NotInitializedError: `dataset` is a `tf.data.Dataset`, and there is no job.

    Example:

    ```python
    train = tfhybrid.data.announce(train, batches=16, layers=model.embeddings)
    model.fit(train, epochs=2)
    ```
    """
    if batches < 1:
        raise ConfigError(f"A pass must have at least one batch. Received: batches={batches}")
    if fetch not in FETCHES or on_miss not in MISSES:
        raise ConfigError(
            f"fetch must be one of {FETCHES} and on_miss one of {MISSES}. "
            f"Received: fetch={fetch!r}, on_miss={on_miss!r}"
        )
    by_batch = fetch == "batch"
    lookahead = Lookahead(
        1 if by_batch else batches,
        batches if by_batch else 1,
        on_miss == "raise",
        None if fast_tier_bytes is None else fast_tier_bytes // distributed.local_size(),
    )
    boundary = None if optimizer is None else _boundary_of(optimizer, batches)
    calls = calls_of(layers)
    announced = _Announced(dataset, calls, lookahead, boundary)
    if not isinstance(dataset, tf.data.Dataset):
        return announced
    if boundary is None and announced.has_all_rows:
        return numbered_ahead(dataset, batches, calls)
    result = generated(announced.elements, dataset.element_spec)
    cardinality = dataset.cardinality()
    if int(cardinality) != tf.data.UNKNOWN_CARDINALITY:
        result = result.apply(tf.data.experimental.assert_cardinality(cardinality))
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False  # begins batches before their lookups
    return result.with_options(options)


class _Announced:
    """The elements of a dataset, announced while they are read. Can be iterated several times."""

    def __init__(
        self,
        dataset: Iterable[Any],
        calls: Sequence[LayerCall],
        lookahead: Lookahead,
        boundary: Boundary | None,
    ) -> None:
        self._dataset = dataset
        self._calls = calls
        self._tables = _tables_of(calls)
        self._lookahead = lookahead
        self._boundary = boundary
        self._logged = False

    def __iter__(self) -> Iterator[Any]:
        return EndingIterator(self.elements())

    @property
    def _job(self) -> Job:
        return current_job()

    @property
    def has_all_rows(self) -> bool:
        """Whether this host has the rows of all lookups, in its memory or its files."""
        return self._job.engine.takes_announcements and not any(
            call.layer.fetches_rows() for call in self._calls
        )

    def elements(self) -> Iterator[Any]:
        """Yields the elements, and announces their keys before that."""
        job = self._job
        batches = self._lookahead.over(self._dataset, self._keys, job.engine, self._boundary)
        with contextlib.closing(batches):
            for element in batches:
                if not self._logged and distributed.rank() == 0:
                    self._log_memory(job)
                yield element

    def _log_memory(self, job: Job) -> None:
        """Logs the memory of both tiers once, after the first passes were announced."""
        self._logged = True
        stands = passes.stats(job.engine)
        if not stands.standing_bytes:
            return
        stores = report_stores(shm_directory())
        tables = [t for store in stores if store.job == job.name for t in store.tables]
        most = self._lookahead.max_bytes
        _log.info(
            "Passes of up to %d batch(es): %d rows, %.3f GB of fast tier for this rank%s. "
            "Slow tier of this host: %.3f GB of shared memory, %.3f GB in files.",
            max(self._lookahead.length, self._lookahead.ahead),
            stands.standing_rows,
            stands.standing_bytes / _GB,
            "" if most is None else f", of a maximum of {most / _GB:.3f} GB",
            sum(table.bytes for table in tables) / _GB,
            sum(table.file_bytes for table in tables) / _GB,
        )

    def _keys(self, element: Any) -> BatchKeys:
        features = element[0] if isinstance(element, tuple | list) else element
        keys: dict[str, list[np.ndarray]] = {}
        for feature, name_of in self._tables.items():
            table = name_of() if feature in features else None
            if table is not None:
                keys.setdefault(table, []).append(_flat(features[feature]))
        return {table: np.concatenate(of_features) for table, of_features in keys.items()}


def _boundary_of(optimizer: Any, batches: int) -> Boundary:
    step = getattr(optimizer, "distributed_step", None)
    if step is None or step.boundary is None:
        raise ConfigError(
            "optimizer= must make one update per pass: a tfhybrid.DistributedOptimizer("
            f'update="pass"). Received: {optimizer!r}'
        )
    boundary: Boundary = step.boundary
    if batches > boundary.longest:
        raise ConfigError(
            f"A pass with one update may have at most {boundary.longest} batches. "
            f"Received: batches={batches}"
        )
    return boundary


def _flat(keys: Any) -> np.ndarray:
    if isinstance(keys, tf.RaggedTensor):
        keys = keys.flat_values
    elif isinstance(keys, tf.SparseTensor):
        keys = keys.values
    return np.ravel(np.asarray(keys)).astype(np.int64, copy=False)


def _tables_of(calls: Sequence[LayerCall]) -> dict[str, TableName]:
    return {
        name: _name_of(call.layer, feature)
        for call in calls
        for feature, name in call.names.items()
    }


def _name_of(layer: Layer, feature: str) -> TableName:
    return lambda: layer.table_names.get(feature)
