"""Announced data: what the next batches look up is told ahead of time, so that rows are there."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfhybrid import distributed
from tfhybrid.core import passes
from tfhybrid.core.passes import BatchKeys, Pass
from tfhybrid.errors import ConfigError
from tfhybrid.job import current_job
from tfhybrid.layers import Embedding, EmbeddingCollection

FETCHES = ("pass", "batch")
MISSES = ("fetch", "raise")


def announce(
    dataset: Any,
    batches: int,
    layers: EmbeddingCollection | Sequence[EmbeddingCollection] | Mapping[str, Embedding],
    *,
    fetch: str = "pass",
    on_miss: str = "fetch",
    fast_tier_bytes: int | None = None,
) -> Any:
    """Returns the batches of a dataset, whose rows are asked for ahead of time.

    A pass is `batches` batches. While one is trained, the rows of the next one come from the hosts
    that own them, and what updates change in the rows of a pass follows it. What is trained stays
    the same, bit for bit. Tables that are not sharded are not concerned, nor is a job on one host.

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
            f"fetch is one of {FETCHES} and on_miss one of {MISSES}. "
            f"Received: fetch={fetch!r}, on_miss={on_miss!r}"
        )
    announced = _Announced(
        dataset, _tables_of(layers), batches, fetch == "batch", on_miss == "raise", fast_tier_bytes
    )
    if not isinstance(dataset, tf.data.Dataset):
        return announced
    made = tf.data.Dataset.from_generator(
        lambda: iter(announced), output_signature=dataset.element_spec
    )
    return made.apply(tf.data.experimental.assert_cardinality(dataset.cardinality()))


def announce_keys(
    keys: Mapping[str, Any] | Sequence[Mapping[str, Any]], *, on_miss: str = "fetch"
) -> Pass:
    """Announces keys that this rank looks up next, and opens the pass.

    Args:
        keys: By the name of the table: of one batch, or of several, of which each is used up when
            this rank has taken part in an update of its tables.
        on_miss: As of `tfhybrid.data.announce`.

    Returns:
        The pass: a context at whose end its rows are let go.

    Raises:
        ConfigError: `on_miss` cannot be, or there are no keys.
        StoreError: A table is not open.

    Example:

    ```python
    with tfhybrid.announce({"item": np.arange(1000)}):
        scores = model.predict(candidates)
    ```
    """
    if on_miss not in MISSES:
        raise ConfigError(f"on_miss is one of {MISSES}. Received: {on_miss!r}")
    batches = [keys] if isinstance(keys, Mapping) else list(keys)
    if not batches:
        raise ConfigError("A pass has at least one batch of keys. Received: none")
    announced = passes.announce(current_job().engine, batches, refuses=on_miss == "raise")
    announced.begin(0)
    return announced


@dataclasses.dataclass
class _Group:
    """Elements that make a pass, and the pass once it is announced."""

    elements: list[Any]
    keys: list[BatchKeys]
    size: int = 0  # bytes
    announced: Pass | None = None


class _Announced:
    """The elements of a dataset, whose keys are announced; may be iterated over again."""

    def __init__(
        self,
        dataset: Iterable[Any],
        tables: Mapping[str, Any],
        batches: int,
        by_batch: bool,
        refuses: bool,
        fast_tier_bytes: int | None,
    ) -> None:
        self._dataset = dataset
        self._tables = tables
        self._length = 1 if by_batch else batches
        self._ahead = batches if by_batch else 1  # passes beside the one that is used
        self._refuses = refuses
        self._most = fast_tier_bytes

    def __iter__(self) -> Iterator[Any]:
        elements = iter(self._dataset)
        window: collections.deque[_Group] = collections.deque()
        waiting: _Group | None = None  # for room
        left: list[Any] = []  # read, and for the next group
        with contextlib.ExitStack() as ends:
            ends.callback(lambda: [self._end(group) for group in window])
            while True:
                while len(window) <= self._ahead:
                    waiting = waiting or self._gather(elements, left)
                    if waiting is None or not self._fits(waiting, window):
                        break
                    self._announce(waiting)
                    window.append(waiting)
                    waiting = None
                if not window:
                    return
                for batch, element in enumerate(window[0].elements):
                    if window[0].announced is not None:
                        window[0].announced.begin(batch)
                    yield element
                self._end(window.popleft())

    def _gather(self, elements: Iterator[Any], left: list[Any]) -> _Group | None:
        """Reads the elements of a pass: so many as it may have, or as fit."""
        group = _Group([], [])
        share = self._share()
        while len(group.elements) < self._length:
            element = left.pop() if left else next(elements, None)
            if element is None:
                break
            keys = self._keys(element)
            if share is not None:
                size = passes.weigh(current_job().engine, [*group.keys, keys])
                if size > share and not group.elements:
                    raise ConfigError(
                        f"fast_tier_bytes={self._most} leaves {share} bytes to each of the "
                        f"{distributed.local_size()} ranks of a host, and one batch needs more. "
                        f"Received: a batch of {size} bytes"
                    )
                if size > share:
                    left.append(element)
                    break
                group.size = size
            group.elements.append(element)
            group.keys.append(keys)
        return group if group.elements else None

    def _share(self) -> int | None:
        return None if self._most is None else self._most // distributed.local_size()

    def _fits(self, group: _Group, window: Iterable[_Group]) -> bool:
        share = self._share()
        return share is None or group.size + sum(other.size for other in window) <= share

    def _announce(self, group: _Group) -> None:
        if any(group.keys):
            engine = current_job().engine
            group.announced = passes.announce(engine, group.keys, refuses=self._refuses)

    def _end(self, group: _Group) -> None:
        if group.announced is not None:
            group.announced.end()

    def _keys(self, element: Any) -> BatchKeys:
        features = element[0] if isinstance(element, tuple | list) else element
        found: dict[str, list[np.ndarray]] = {}
        for feature, layer in self._tables.items():
            table = layer() if feature in features else None
            if table is not None:
                found.setdefault(table, []).append(_flat(features[feature]))
        return {table: np.concatenate(some) for table, some in found.items()}


def _flat(keys: Any) -> np.ndarray:
    if isinstance(keys, tf.RaggedTensor):
        keys = keys.flat_values
    elif isinstance(keys, tf.SparseTensor):
        keys = keys.values
    return np.ravel(np.asarray(keys)).astype(np.int64, copy=False)


def _tables_of(layers: Any) -> dict[str, Any]:
    """Returns for each feature what tells the name of its table, or `None` before it is open."""
    if isinstance(layers, Mapping):
        return {feature: (lambda of=layer: _of_layer(of)) for feature, layer in layers.items()}
    collections_of = [layers] if isinstance(layers, EmbeddingCollection) else list(layers)
    return {
        feature: (lambda of=collection, name=feature: of.table_names.get(name))
        for collection in collections_of
        for feature in collection.features
    }


def _of_layer(layer: Embedding) -> str | None:
    return layer.table.name if layer.built else None
