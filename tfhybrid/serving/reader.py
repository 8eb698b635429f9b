"""Follows the publications of a target model, and answers lookups with the newest one."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tfhybrid.checkpoint import storage
from tfhybrid.errors import ConfigError, PublicationError, TfhybridError
from tfhybrid.monitoring import metrics
from tfhybrid.serving.served_rows import ServedRows
from tfhybrid.serving.shared_lock import SharedLock
from tfhybrid.settings import shm_directory
from tfhybrid.stream.weights import publication as files
from tfhybrid.stream.weights import wall_clock
from tfhybrid.stream.weights.model_spec import ModelSpec
from tfhybrid.stream.weights.observed import quantile
from tfhybrid.stream.weights.publication import Member, Pointer, Publication

_log = logging.getLogger("tfhybrid.serving")

# Table, kind and arrays of each file of a publication.
Loaded = Sequence[tuple[str, str, dict[str, np.ndarray]]]


class Weights(NamedTuple):
    """Rows and dense weights, all of one publication.

    Attributes:
        number: Of the publication.
        rows: float32 `keys.shape + (dim,)` of each table that was asked for.
        dense: The dense weights, in the order of the trainer's model; empty if not asked for.
    """

    number: int
    rows: Mapping[str, np.ndarray]
    dense: Sequence[np.ndarray]


class Reader:
    """The published weights of a target model, in this process. Thread-safe.

    It needs neither Horovod nor TensorFlow. A base is loaded beside what is served, so that there
    are two copies for a moment; deltas are applied in place, while lookups wait. A lookup always
    sees the weights of one publication.

    If a delta was missed, or a publication was rolled back, it takes the base and goes on from
    there. A chain of weights that have ended (an older incarnation, say of a publisher that should
    be dead) is refused. What cannot be read changes nothing: it serves what it has.

    Args:
        folder: Of the model's publications: a folder, or a URL.
        name: Of the model, for messages and metrics. Defaults to the name of the folder.
        memory: Directory of the rows, in shared memory.

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
        self._place = storage.location(folder)
        self.name = name or self._place.name
        self._memory = os.fspath(memory or shm_directory())
        self._lock = SharedLock()
        self._refreshing = threading.Lock()
        self._rows: ServedRows | None = None
        self._spec: ModelSpec | None = None
        self._has: tuple[Pointer, Publication] | None = None
        self._incarnation = 0  # the newest that was seen
        self._whole = True  # what is served is a publication, not half of one
        self._ends = threading.Event()
        self._thread: threading.Thread | None = None
        self.gaps = 0
        self.failures = 0

    @property
    def publication(self) -> Publication | None:
        """What is served now; `None` before the first publication."""
        return None if self._has is None else self._has[1]

    @property
    def spec(self) -> ModelSpec:
        """What the model consists of.

        Raises:
            PublicationError: Nothing has been read yet.
        """
        if self._spec is None:
            raise PublicationError(f"{self._place} has no publication that was read")
        return self._spec

    def refresh(self) -> bool:
        """Takes the publication that readers shall have; returns whether it is another one.

        Raises:
            PublicationError: It is missing, or of a chain that has ended.
            CorruptFileError: A file is damaged.
            OutOfSpaceError: Shared memory is full.
        """
        with self._refreshing:
            try:
                wanted = files.wanted(self._place)
                if wanted is None or (self._has is not None and self._same(wanted)):
                    return False
                self._check(wanted)
                self._take(wanted)
            except (TfhybridError, OSError):
                self.failures += 1
                metrics.note(metrics.READER_FAILURES, self.failures, self.name)
                raise
        return True

    def follow(self, seconds: float = 1.0) -> None:
        """Takes what is published now, and looks for more every so many seconds.

        It does so on a thread of its own. What fails is logged, and tried again.
        """
        if seconds <= 0 or self._thread is not None:
            raise ConfigError(
                f"A reader follows once, every so many seconds above 0. Received: {seconds}"
            )
        told = self._tried("")
        self._thread = threading.Thread(
            target=self._follow, args=(seconds, told), name="tfhybrid-reader", daemon=True
        )
        self._thread.start()

    def read(self, keys: Mapping[str, np.ndarray], *, dense: bool = False) -> Weights:
        """Returns rows of tables, and dense weights if asked for, of one publication.

        Args:
            keys: int64 of any shape, by table.
            dense: Whether dense weights are wanted.

        Raises:
            PublicationError: Nothing has been read yet.
            ConfigError: There is no such table.
        """
        with self._lock.shared():
            if self._rows is None or self._has is None or self._spec is None:
                raise PublicationError(f"{self._place} has no publication that was read")
            unknown = sorted(set(keys) - set(self._spec.tables))
            if unknown:
                raise ConfigError(f"Tables are {sorted(self._spec.tables)}. Received: {unknown}")
            rows = {table: self._rows.read(table, wanted) for table, wanted in keys.items()}
            return Weights(self._has[1].number, rows, self._dense() if dense else ())

    @contextlib.contextmanager
    def held(self) -> Iterator[tuple[ServedRows, ModelSpec, Sequence[np.ndarray]]]:
        """Yields rows, what the model consists of, and dense weights; they stay as they are.

        Raises:
            PublicationError: Nothing has been read yet.
        """
        with self._lock.shared():
            if self._rows is None or self._spec is None:
                raise PublicationError(f"{self._place} has no publication that was read")
            yield self._rows, self._spec, self._dense()

    def close(self) -> None:
        """Ends following, and frees the memory."""
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

    def _same(self, wanted: Pointer) -> bool:
        assert self._has is not None
        return self._whole and self._has[0][:2] == wanted[:2]

    def _check(self, wanted: Pointer) -> None:
        """Refuses a chain that has ended; a rollback may name any."""
        if self._has is None or wanted.held:
            return
        back = wanted.number < self._has[0].number and not self._has[0].held
        if wanted.incarnation < self._incarnation or back:
            raise PublicationError(
                f"{self._place} was at publication {self._has[0].number} of incarnation "
                f"{self._incarnation}, and goes back only by a rollback. Received: publication "
                f"{wanted.number} of incarnation {wanted.incarnation}"
            )

    def _take(self, wanted: Pointer) -> None:
        found = files.read_manifest(self._place, wanted.number, wanted.crc)
        chain = [*found.chain, Member(wanted.number, wanted.crc, found.bytes)]
        first = self._first_missing(chain)
        if first is None:
            self._count_gap(wanted)
            first = 0
        made = [
            found if member.number == wanted.number else self._manifest(member)
            for member in chain[first:]
        ]
        loaded = [self._load(each) for each in made]
        if first == 0:
            self._replace(made, loaded, wanted)
        else:
            self._apply(made, loaded, wanted)
        self._incarnation = max(self._incarnation, found.incarnation)
        metrics.note(metrics.READER_NUMBER, found.number, self.name)
        _log.info("%s: publication %d, %d updates", self.name, found.number, found.version)

    def _manifest(self, member: Member) -> Publication:
        return files.read_manifest(self._place, member.number, member.crc)

    def _first_missing(self, chain: Sequence[Member]) -> int | None:
        """Returns which member of a chain comes next; `None` if only its base can."""
        if self._has is None or not self._whole:
            return None
        mine = self._has[0][:2]
        return next((i + 1 for i, it in enumerate(chain[:-1]) if it[:2] == mine), None)

    def _count_gap(self, wanted: Pointer) -> None:
        """Counts deltas that were missed: the chain of what is served has a gap, or has ended."""
        if self._has is None or wanted.held or self._has[0].held:
            return
        if wanted.incarnation == self._has[0].incarnation:
            self.gaps += 1
            metrics.note(metrics.READER_GAPS, self.gaps, self.name)

    def _load(self, made: Publication) -> Loaded:
        """Returns table, kind and arrays of each file; all are checked before one is used."""
        folder = files.folder_of(self._place, made.number)
        return [(it.table, it.kind, files.read_file(folder, it)) for it in made.files]

    def _replace(self, made: Sequence[Publication], loaded: Sequence[Loaded], at: Pointer) -> None:
        """Puts a base, and deltas on it, in the place of what is served."""
        spec = ModelSpec.from_json(made[-1].spec)
        rows = ServedRows(spec, self._memory, self.name)
        try:
            for each in loaded:
                _write(rows, each)
        except BaseException:
            rows.close()
            raise
        with self._lock.alone():
            old, self._rows, self._spec = self._rows, rows, spec
            first = self._has is None
            self._has, self._whole = (at, made[-1]), True
        if old is not None:
            old.close()
        if not first:
            self._note_freshness(made[-1:])

    def _apply(self, made: Sequence[Publication], loaded: Sequence[Loaded], at: Pointer) -> None:
        """Applies deltas in place."""
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
            self._has, self._whole = (at, made[-1]), True
        self._note_freshness(made)

    def _note_freshness(self, made: Sequence[Publication]) -> None:
        """Notes how old the events are that can be read from now on."""
        times: dict[int, int] = {}
        for each in made:
            for second, count in each.times.items():
                times[second] = times.get(second, 0) + count
        if times:
            now = wall_clock.now()
            metrics.note(metrics.FRESHNESS_P50, quantile(times, now, 0.5), self.name)
            metrics.note(metrics.FRESHNESS_P99, quantile(times, now, 0.99), self.name)

    def _follow(self, seconds: float, told: str) -> None:
        while not self._ends.wait(seconds):
            told = self._tried(told)

    def _tried(self, told: str) -> str:
        """Refreshes; returns what failed, which is logged if it is not what was told last."""
        try:
            self.refresh()
        except (TfhybridError, OSError) as error:
            if str(error) != told:
                _log.error("%s stays at what it has: %s", self.name, error)
            return str(error)
        return ""


def _write(rows: ServedRows, loaded: Loaded) -> None:
    """Writes what a publication has: removed keys first, some of them may have a row again."""
    for table, kind, arrays in loaded:
        if kind == "removed":
            rows.remove(table, arrays["keys"])
    for table, kind, arrays in loaded:
        if kind == "rows":
            rows.write(table, arrays["keys"], arrays["embeddings"])
