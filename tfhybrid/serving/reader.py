"""Reader of the publications of a target model, with lookups in the one that is current."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tfhybrid.checkpoint import storage
from tfhybrid.errors import ConfigError, CorruptFileError, PublicationError
from tfhybrid.monitoring import metrics
from tfhybrid.serving.loaded_publication import Loaded, load
from tfhybrid.serving.served_rows import ServedRows
from tfhybrid.serving.shared_lock import SharedLock
from tfhybrid.settings import shm_directory
from tfhybrid.stream.weights import publication as files
from tfhybrid.stream.weights import wall_clock
from tfhybrid.stream.weights.model_spec import ModelSpec
from tfhybrid.stream.weights.observed import quantile
from tfhybrid.stream.weights.publication import ChainMember, Pointer, Publication

_log = logging.getLogger("tfhybrid.serving")


class PublishedWeights(NamedTuple):
    """Rows and dense weights, all of one publication.

    Attributes:
        number: Number of the publication.
        rows: Embeddings by table, float32 `keys.shape + (dim,)`.
        dense: Dense weights in the order of the trainer's model; empty if not requested.
    """

    number: int
    rows: Mapping[str, np.ndarray]
    dense: Sequence[np.ndarray]


class Reader:
    """Reader of the published weights of a target model (which trainers update). Thread-safe.

    It needs neither Horovod nor TensorFlow. A lookup always sees the weights of one publication. A
    base is loaded beside the weights that are served, so there are two copies for a moment. Deltas
    are applied in place, while lookups wait.

    After a missed delta or a rollback, the reader loads the base and the deltas on it. It refuses a
    chain that has ended, such as an older incarnation from a publisher that should be dead. If a
    publication cannot be read, the reader serves the weights that it has.

    Args:
        folder: Folder of the model's publications, or its URL.
        name: Name of the model, for messages and metrics. Defaults to the name of the folder.
        memory: Directory of the rows, in shared memory. Defaults to that of tfhybrid's stores.

    Attributes:
        name: Name of the model.
        gaps: Number of bases that were loaded because a delta was missed.
        failures: Number of refreshes that failed.

    Example:

    ```python
    reader = tfhybrid.serving.Reader("/srv/publications/ads")
    reader.follow(seconds=1.0)
    weights = reader.read({"item": np.array([3, 7])})
    ```
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        name: str | None = None,
        memory: str | os.PathLike[str] | None = None,
    ) -> None:
        self._folder = storage.location(folder)
        self.name = name or self._folder.name
        self._memory = os.fspath(memory or shm_directory())
        self._lock = SharedLock()
        self._refreshing = threading.Lock()
        self._rows: ServedRows | None = None
        self._spec: ModelSpec | None = None
        self._has: tuple[Pointer, Publication] | None = None
        self._incarnation = 0  # newest one seen
        self._whole = True  # false while, or after, deltas are only partly applied
        self._ends = threading.Event()
        self._thread: threading.Thread | None = None
        self.gaps = 0
        self.failures = 0

    @property
    def publication(self) -> Publication | None:
        """Publication that is served now; `None` before the first one is read, and once closed."""
        return None if self._has is None else self._has[1]

    @property
    def spec(self) -> ModelSpec:
        """Tables and dense weights of the model.

        Raises:
            PublicationError: No publication has been read yet.
        """
        if self._spec is None:
            raise PublicationError(f"No publication of {self._folder} has been read yet")
        return self._spec

    def refresh(self) -> bool:
        """Loads the current (or, after a rollback, the held) publication, unless it is served.

        All of a publication is checked before its first row is served. If this fails, the reader
        serves the weights that it had. Only if deltas cannot be written to the end, some rows may
        be newer; the next refresh then loads the base.

        Returns:
            Whether another publication is served now.

        Raises:
            PublicationError: The publication is missing, or of a chain that has ended.
            CorruptFileError: A file is damaged, or has what the model does not have.
            CheckpointError: A file is no file of arrays.
            ConfigError: The publication does not describe a model.
            OutOfSpaceError: Shared memory is full.
            OSError: The folder cannot be read.
            StoreError: A store or a table cannot be made.
        """
        with self._refreshing:
            try:
                pointer = files.wanted(self._folder)
                if pointer is None or (self._has is not None and self._same(pointer)):
                    return False
                self._check(pointer)
                self._take(pointer)
            except Exception:
                self.failures += 1
                metrics.note(metrics.READER_FAILURES, self.failures, self.name)
                raise
        return True

    def follow(self, seconds: float = 1.0) -> None:
        """Refreshes now, and then at an interval on a thread that runs until `close`.

        A refresh that fails, for whatever reason, is logged, and tried again.

        Args:
            seconds: Seconds between two refreshes, above 0. Default 1.

        Raises:
            ConfigError: The interval is not above 0, or the reader follows already.
        """
        if seconds <= 0 or self._thread is not None:
            raise ConfigError(
                "A reader can follow once, at an interval above 0 seconds. Received: "
                f"seconds={seconds}{'' if self._thread is None else ', and it follows already'}"
            )
        failure = self._try_refresh("")
        self._thread = threading.Thread(
            target=self._follow, args=(seconds, failure), name="tfhybrid-reader", daemon=True
        )
        self._thread.start()

    def read(self, keys: Mapping[str, np.ndarray], *, dense: bool = False) -> PublishedWeights:
        """Returns rows, and optionally the dense weights, of one publication.

        A key without a row reads zeros, or its initial value if the publication says so: that is
        `TableConfig.unseen` of the trainer that opened the target model.

        Args:
            keys: int64 of any shape, by table.
            dense: Whether to return the dense weights too. Default false.

        Raises:
            PublicationError: No publication has been read yet, or the reader is closed.
            ConfigError: The model has no such table.
            DataError: A key is missing (masked), or not a whole number of int64.
        """
        with self._lock.shared():
            if self._rows is None or self._has is None or self._spec is None:
                raise PublicationError(f"No publication of {self._folder} has been read yet")
            unknown = sorted(set(keys) - set(self._spec.tables))
            if unknown:
                raise ConfigError(f"Tables are {sorted(self._spec.tables)}. Received: {unknown}")
            rows = {table: self._rows.read(table, of_table) for table, of_table in keys.items()}
            return PublishedWeights(self._has[1].number, rows, self._dense() if dense else ())

    @contextlib.contextmanager
    def held(self) -> Iterator[tuple[ServedRows, ModelSpec, Sequence[np.ndarray]]]:
        """Yields rows, tables and dense weights of one publication, unchanged during the block.

        Other lookups continue meanwhile; a refresh waits until the block ends.

        Raises:
            PublicationError: No publication has been read yet, or the reader is closed.
        """
        with self._lock.shared():
            if self._rows is None or self._spec is None:
                raise PublicationError(f"No publication of {self._folder} has been read yet")
            yield self._rows, self._spec, self._dense()

    def close(self) -> None:
        """Ends the thread that `follow` started, waits for lookups, and frees the memory."""
        self._ends.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock.alone():
            if self._rows is not None:
                self._rows.close()
            self._rows = self._has = None

    def _dense(self) -> Sequence[np.ndarray]:
        assert self._rows is not None
        assert self._spec is not None
        keys = self._spec.keys_of_weights()
        return self._spec.weights_of({name: self._rows.read(name, keys[name]) for name in keys})

    def _same(self, pointer: Pointer) -> bool:
        assert self._has is not None
        return self._whole and self._has[0][:2] == pointer[:2]

    def _check(self, pointer: Pointer) -> None:
        """Refuses a chain that has ended; a rollback may name any publication.

        Raises:
            PublicationError: The publication is older than the one served, without a rollback.
        """
        if self._has is None or pointer.held:
            return
        back = pointer.number < self._has[0].number and not self._has[0].held
        if pointer.incarnation < self._incarnation or back:
            raise PublicationError(
                f"{self._folder} was at publication {self._has[0].number} of incarnation "
                f"{self._incarnation}, and goes back only by a rollback. Received: publication "
                f"{pointer.number} of incarnation {pointer.incarnation}"
            )

    def _take(self, pointer: Pointer) -> None:
        newest = files.read_manifest(self._folder, pointer.number, pointer.crc)
        chain = [*newest.chain, ChainMember(pointer.number, pointer.crc, newest.bytes)]
        first = self._first_missing(chain)
        if first is None:
            self._count_gap(pointer, chain[0])
            first = 0
        publications = [
            newest if member.number == pointer.number else self._manifest(member)
            for member in chain[first:]
        ]
        spec = ModelSpec.from_json(newest.spec)
        served = [] if first == 0 or self._has is None else [self._has[1]]
        self._check_spec(spec, [*served, *publications])
        loaded = [load(self._folder, each, spec) for each in publications]
        if first == 0:
            self._replace(spec, publications, loaded, pointer)
        else:
            self._apply(publications, loaded, pointer)
        self._incarnation = max(self._incarnation, newest.incarnation)
        metrics.note(metrics.READER_NUMBER, newest.number, self.name)
        _log.info(
            "%s: serving publication %d, with %d updates", self.name, newest.number, newest.version
        )

    def _manifest(self, member: ChainMember) -> Publication:
        return files.read_manifest(self._folder, member.number, member.crc)

    def _first_missing(self, chain: Sequence[ChainMember]) -> int | None:
        """Returns the index in a chain of the first delta to apply to the weights served.

        `None` if they are not part of the chain: then it must be loaded from its base.
        """
        if self._has is None or not self._whole:
            return None
        mine = self._has[0][:2]
        return next((i + 1 for i, it in enumerate(chain[:-1]) if it[:2] == mine), None)

    def _count_gap(self, pointer: Pointer, base: ChainMember) -> None:
        """Counts a missed delta: a base that must be loaded and does not follow what is served."""
        if self._has is None or pointer.held or self._has[0].held:
            return
        served = self._has[0]
        if pointer.incarnation == served.incarnation and base.number != served.number + 1:
            self.gaps += 1
            metrics.note(metrics.READER_GAPS, self.gaps, self.name)

    def _check_spec(self, spec: ModelSpec, publications: Sequence[Publication]) -> None:
        others = [each.number for each in publications if ModelSpec.from_json(each.spec) != spec]
        if others:
            raise CorruptFileError(
                f"The publications of a chain in {self._folder} must be of one model. Received: "
                f"another one in {others}"
            )

    def _replace(
        self,
        spec: ModelSpec,
        publications: Sequence[Publication],
        loaded: Sequence[Loaded],
        pointer: Pointer,
    ) -> None:
        """Replaces the weights served by a base and the deltas on it.

        Args:
            spec: Specification of the model.
            publications: The base and the deltas, in order.
            loaded: Files of each of them.
            pointer: Pointer to the last of them.
        """
        rows = ServedRows(spec, self._memory, self.name)
        with rows.closed_on_error():
            for each in loaded:
                _write(rows, each)
        with self._lock.alone():
            old, self._rows, self._spec = self._rows, rows, spec
            first = self._has is None
            self._has, self._whole = (pointer, publications[-1]), True
        if old is not None:
            old.close()
        if not first:
            self._note_freshness(publications[-1:])

    def _apply(
        self, publications: Sequence[Publication], loaded: Sequence[Loaded], pointer: Pointer
    ) -> None:
        """Applies deltas in place, while lookups wait.

        Args:
            publications: The deltas, in order.
            loaded: Files of each of them.
            pointer: Pointer to the last of them.
        """
        assert self._rows is not None
        more: dict[str, int] = {}
        for each in loaded:
            for table, kind, arrays in each:
                more[table] = more.get(table, 0) + (len(arrays["keys"]) if kind == "rows" else 0)
        with self._lock.alone():
            self._rows.reserve(more)
            self._whole = False
            for each in loaded:
                _write(self._rows, each)
            self._has, self._whole = (pointer, publications[-1]), True
        self._note_freshness(publications)

    def _note_freshness(self, publications: Sequence[Publication]) -> None:
        """Records in the metrics the age of the events that publications have trained."""
        times: dict[int, int] = {}
        for each in publications:
            for second, count in each.times.items():
                times[second] = times.get(second, 0) + count
        if times:
            now = wall_clock.now()
            metrics.note(metrics.FRESHNESS_P50, quantile(times, now, 0.5), self.name)
            metrics.note(metrics.FRESHNESS_P99, quantile(times, now, 0.99), self.name)

    def _follow(self, seconds: float, failure: str) -> None:
        while not self._ends.wait(seconds):
            failure = self._try_refresh(failure)

    def _try_refresh(self, last_failure: str) -> str:
        """Refreshes, and returns the text of the error if it fails, otherwise an empty one.

        Args:
            last_failure: Result of the call before. An error is logged once, not at every refresh.
        """
        try:
            self.refresh()
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            if text != last_failure:
                _log.error("%s: refresh failed, earlier weights are served: %s", self.name, text)
            return text
        return ""


def _write(rows: ServedRows, loaded: Loaded) -> None:
    """Writes the files of a publication: first removed keys, as some may have a row again."""
    for table, kind, arrays in loaded:
        if kind == "removed":
            rows.remove(table, arrays["keys"])
    for table, kind, arrays in loaded:
        if kind == "rows":
            rows.write(table, arrays["keys"], arrays["embeddings"])
