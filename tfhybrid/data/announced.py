"""Announced data: what the next batches look up is told ahead of time, so that rows are there."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import tensorflow as tf

from tfhybrid import distributed
from tfhybrid.announcing import MISSES
from tfhybrid.core import passes
from tfhybrid.core.passes import BatchKeys
from tfhybrid.data.lookahead import Boundary, Lookahead
from tfhybrid.errors import ConfigError
from tfhybrid.job import current_job
from tfhybrid.monitoring.report import report_stores
from tfhybrid.settings import shm_directory

_log = logging.getLogger("tfhybrid.data")
_GB = 1e9

FETCHES = ("pass", "batch")


@runtime_checkable
class Layer(Protocol):
    """What the layers of `tfhybrid.layers` tell of themselves."""

    @property
    def features(self) -> list[str]:
        """Names of the features that it looks up."""

    @property
    def table_names(self) -> dict[str, str]:
        """The name of each feature's table; empty until the layer is built."""


# Tells the name of a table, or `None` before it is open.
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
    """Returns the batches of a dataset, whose rows are asked for ahead of time.

    A pass is `batches` batches. While one is trained, the rows of the next one come from the hosts
    that own them, and what updates change in the rows of a pass follows it. What is trained stays
    the same, bit for bit. On one host, and for tables that are not sharded, it has an effect only
    with `TableConfig(fast_tier="device")`: the rows of a pass lie on the device then.

    It belongs at the end: what runs ahead of the training behind it, as `prefetch` does, makes
    lookups miss rows that were there.

    Args:
        dataset: A `tf.data.Dataset`, or anything that can be iterated over, of batches: a dict of
            features, or a tuple that begins with one. Those of this rank.
        batches: Of a pass.
        layers: Which features are looked up where: one or several collections, or layers by
            feature. Of layers that are not built yet nothing is announced.
        fetch: `"pass"` asks for the rows of a pass at once and holds two passes, `"batch"` for
            those of each batch, and holds those of the next `batches`.
        on_miss: `"raise"` makes the lookup of a key that was not announced an error while a pass of
            its table is open; `"fetch"` brings its row, and counts it.
        fast_tier_bytes: The shared memory of a host that the passes of its ranks may take, an equal
            part each; a pass that would need more ends sooner. By default as much as they need.
            Variables of tables with `fast_tier="device"` may take as much of each rank's device as
            its part.
        optimizer: A `tfhybrid.DistributedOptimizer(update="pass")` that trains each of the batches:
            it makes one update of each pass. In `fit`, `steps_per_execution` is 1.

    Returns:
        A `tf.data.Dataset` where it was given one, else an iterable.

    Raises:
        ConfigError: An argument cannot be.

    Example:

    ```python
    train = tfhybrid.data.announce(train, batches=16, layers=model.embeddings)
    model.fit(train, epochs=2)
    ```
    """
    if batches < 1:
        raise ConfigError(f"A pass has at least one batch. Received: batches={batches}")
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
    announced = _Announced(dataset, _tables_of(layers), lookahead, boundary)
    if not isinstance(dataset, tf.data.Dataset):
        return announced
    made = tf.data.Dataset.from_generator(
        lambda: iter(announced), output_signature=dataset.element_spec
    )
    cardinality = dataset.cardinality()
    if int(cardinality) != tf.data.UNKNOWN_CARDINALITY:
        made = made.apply(tf.data.experimental.assert_cardinality(cardinality))
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False  # begins batches before their lookups
    return made.with_options(options)


class _Announced:
    """The elements of a dataset, whose keys are announced; may be iterated over again."""

    def __init__(
        self,
        dataset: Iterable[Any],
        tables: Mapping[str, TableName],
        lookahead: Lookahead,
        boundary: Boundary | None,
    ) -> None:
        self._dataset = dataset
        self._tables = tables
        self._lookahead = lookahead
        self._boundary = boundary
        self._told = False

    def __iter__(self) -> Iterator[Any]:
        engine = current_job().engine
        batches = self._lookahead.over(self._dataset, self._keys, engine, self._boundary)
        with contextlib.closing(batches):
            for element in batches:
                if not self._told and distributed.rank() == 0:
                    self._tell()
                yield element

    def _tell(self) -> None:
        """Logs once what both tiers take, when the first passes stand."""
        self._told = True
        stands = passes.stats(current_job().engine)
        if not stands.standing_bytes:
            return
        stores = report_stores(shm_directory())
        tables = [t for found in stores if found.job == current_job().name for t in found.tables]
        most = self._lookahead.most_bytes
        _log.info(
            "Passes of at most %d batch(es): %d rows, %.3f GB of fast tier for this rank%s. "
            "Slow tier of this host: %.3f GB of shared memory, %.3f GB in files.",
            max(self._lookahead.length, self._lookahead.ahead),
            stands.standing_rows,
            stands.standing_bytes / _GB,
            "" if most is None else f", of {most / _GB:.3f} GB that it may take",
            sum(table.bytes for table in tables) / _GB,
            sum(table.file_bytes for table in tables) / _GB,
        )

    def _keys(self, element: Any) -> BatchKeys:
        features = element[0] if isinstance(element, tuple | list) else element
        found: dict[str, list[np.ndarray]] = {}
        for feature, name_of in self._tables.items():
            table = name_of() if feature in features else None
            if table is not None:
                found.setdefault(table, []).append(_flat(features[feature]))
        return {table: np.concatenate(some) for table, some in found.items()}


def _boundary_of(optimizer: Any, batches: int) -> Boundary:
    step = getattr(optimizer, "distributed_step", None)
    if step is None or step.boundary is None:
        raise ConfigError(
            "The optimizer whose updates are of passes is a tfhybrid.DistributedOptimizer("
            f'update="pass"). Received: {optimizer!r}'
        )
    boundary: Boundary = step.boundary
    if batches > boundary.longest:
        raise ConfigError(
            f"A pass that makes one update has at most {boundary.longest} batches. "
            f"Received: batches={batches}"
        )
    return boundary


def _flat(keys: Any) -> np.ndarray:
    if isinstance(keys, tf.RaggedTensor):
        keys = keys.flat_values
    elif isinstance(keys, tf.SparseTensor):
        keys = keys.values
    return np.ravel(np.asarray(keys)).astype(np.int64, copy=False)


def _tables_of(layers: Any) -> dict[str, TableName]:
    if isinstance(layers, Mapping):
        of_layers = {feature: (layer, layer.features[0]) for feature, layer in layers.items()}
    else:
        collections = [layers] if isinstance(layers, Layer) else list(layers)
        of_layers = {feature: (each, feature) for each in collections for feature in each.features}
    return {feature: _name_of(*its) for feature, its in of_layers.items()}


def _name_of(layer: Layer, feature: str) -> TableName:
    return lambda: layer.table_names.get(feature)
