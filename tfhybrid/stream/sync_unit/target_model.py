"""A target model of the sync unit: its weights, its journal, and which rows are in the weights."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import threading
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import safetensors.numpy

from tfhybrid.core import native
from tfhybrid.core.frozen_table import FrozenTable
from tfhybrid.errors import ConfigError, LeaseRefusedError, StreamError, TfhybridError
from tfhybrid.stream.provider.lease_book import Lease
from tfhybrid.stream.provider.served_queue import FENCES_OF_AN_EPOCH, Standing
from tfhybrid.stream.queues.applied_ranges import AppliedRanges
from tfhybrid.stream.queues.log_queue import LogQueue
from tfhybrid.stream.queues.queue import Position, Record
from tfhybrid.stream.sync_unit.group_commit import GroupCommit, Ticket
from tfhybrid.stream.weights import weight_base
from tfhybrid.stream.weights.first_weights import FirstWeights, read_checkpoint
from tfhybrid.stream.weights.model_spec import DENSE_DIM, DENSE_TABLE, ModelSpec
from tfhybrid.stream.weights.observed import Observed
from tfhybrid.stream.weights.weight_base import Base
from tfhybrid.stream.weights.weight_store import WeightStore
from tfhybrid.stream.weights.weight_update import WeightUpdate

_CURSOR = "publisher"  # of the changed rows
_STALENESS_OF = 1000  # updates


class Snapshot(NamedTuple):
    """The weights of a target model at one version.

    Attributes:
        store: That has them.
        frozen: As of `WeightStore.frozen`.
        version: Updates that are in them.
        history: By which two histories of weights of one version are told apart.
        observed: Of the rows that were trained since the last publication.
    """

    store: WeightStore
    frozen: Mapping[str, FrozenTable]
    version: int
    history: str
    observed: Observed


class Submitted(NamedTuple):
    """An update, and what the journal will have of it.

    Attributes:
        update: What a trainer sends.
        record: `update.to_record()`.
    """

    update: WeightUpdate
    record: Record


class TargetModel:
    """Applies each lease's update once. Thread-safe.

    An update is in the journal, with its lease, before it is applied and acknowledged. Updates that
    come while others are being written go to the disk together (`GroupCommit`). After
    `kill -9` the weights come from the last base and the journal behind it, to the bit: the journal
    has the order in which updates were applied. So rows and weights cannot part.

    Args:
        name: Of the model.
        folder: Of its journal and bases; of no other process.
        memory: Directory of its store, in shared memory.
        fsync: As of `LogQueue`, for the journal.
        policies: Of its tables, as of `ModelSpec.with_policies`.
        published: Version and history of the weights that were published last, if any were.

    Attributes:
        continues: Whether what has changed since they were published is known.
        refused: Updates that were refused.
        staleness: Of the last updates: how many came between the weights that each is based on and
            those that it was added to.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        memory: Path,
        *,
        fsync: str = "always",
        policies: Mapping[str, Mapping[str, float]] | None = None,
        published: tuple[int, str] | None = None,
    ) -> None:
        self._policies = policies or {}
        self.name = name
        self._folder = folder
        self._memory = memory
        self._lock = threading.RLock()
        self._saving = threading.Lock()  # before _lock
        self._journal = LogQueue(folder / "journal", write=True, fsync=fsync)
        self._store: WeightStore | None = None
        self._done: dict[str, AppliedRanges] = {}
        self._epochs: dict[str, int] = {}
        self._revoked: dict[str, set[int]] = {}
        self._updates: GroupCommit[Submitted] = GroupCommit(self._lock, self._commit)
        self._saved: dict[str, int] = {}
        self._history = ""
        self._observed = Observed()
        self._published = published
        self.continues = False
        self.refused = 0
        self.staleness: deque[int] = deque(maxlen=_STALENESS_OF)
        try:
            self._recover()
        except BaseException:
            self.close()
            raise

    @property
    def version(self) -> int:
        """Updates that were applied."""
        return 0 if self._store is None else self._store.version

    @property
    def is_open(self) -> bool:
        """Whether a trainer has said what the model consists of."""
        return self._store is not None

    @property
    def unpublished_rows(self) -> int:
        """Rows of data that were trained since the last publication."""
        return self._observed.rows

    def open(
        self,
        spec: ModelSpec,
        dense: Sequence[np.ndarray],
        checkpoint: tuple[str, int] | None = None,
        states: np.ndarray | None = None,
    ) -> None:
        """Begins the model, unless it has been.

        Args:
            spec: What it consists of.
            dense: Initial dense weights; those of the first trainer that comes.
            checkpoint: Of a synchronous job, from which the rows of the tables come: directory and
                step. By default tables are empty.
            states: Of the optimizer of the dense weights in that job, as of
                `ModelSpec.rows_of_states`. By default that optimizer begins now.

        Raises:
            ConfigError: It was begun with another one, or the weights do not fit.
            CheckpointError: The checkpoint cannot be read, or has other tables.
        """
        shapes = [tuple(each.shape) for each in dense]
        if shapes != spec.shapes:
            raise ConfigError(f"Dense weights are {spec.shapes}. Received: {shapes}")
        wanted = (len(spec.keys_of_weights().get(DENSE_TABLE, ())), spec.dense_slots, DENSE_DIM)
        if states is not None and states.shape != wanted:
            raise ConfigError(f"Their optimizer's states are {wanted}. Received: {states.shape}")
        spec = spec.with_policies(self._policies)
        with self._lock:
            if self._store is not None:
                if self._store.spec.to_json() != spec.to_json():
                    raise ConfigError(
                        f"Model '{self.name}' is {self._store.spec.to_json()}. Received: a trainer "
                        f"with {spec.to_json()}"
                    )
                return
            if checkpoint is not None:
                first = read_checkpoint(*checkpoint, spec)
                self._begin_from(spec, dense, dataclasses.replace(first, dense_states=states))
                return
            arrays = {str(i): np.asarray(each, np.float32) for i, each in enumerate(dense)}
            record = Record(
                safetensors.numpy.save(arrays), {"kind": "model", "spec": spec.to_json()}
            )
            self._append_and_replay(record)

    def begin(self, queue: str, first: Position) -> Standing:
        """Ends the leases of earlier providers; see `Weights`.

        Args:
            queue: Name of the queue.
            first: Where it begins, for a model that has had nothing of it.
        """
        with self._lock:
            epoch = self._epochs.get(queue, 0) + 1
            known = self._done.get(queue)
            frontier = first if known is None else known.frontier
            text = json.dumps([queue, epoch, *frontier])
            self._append_and_replay(Record(b"", {"kind": "epoch", "epoch": text}))
            done = self._done[queue]
            return Standing(epoch, done.frontier, done.ranges)

    def revoke(self, queue: str, lease: Lease) -> bool:
        """Ends a lease; see `Weights`."""
        with self._lock:
            if self._ranges(queue).covers(lease.range):
                return True
            self._revoked[queue].add(lease.fence)
            return False

    def pass_over(self, queue: str, lease: Lease) -> None:
        """Notes that a lease had no good rows; see `Weights`."""
        with self._lock:
            if not self._ranges(queue).covers(lease.range):
                text = json.dumps([queue, *lease.begin, *lease.end])
                self._append_and_replay(Record(b"", {"kind": "passed", "range": text}))

    def apply(self, update: WeightUpdate, record: Record | None = None) -> tuple[int, bool]:
        """Applies an update, unless its rows are in the weights.

        Args:
            update: What a trainer sends.
            record: What `update.to_record` returns, if it is at hand.

        Returns:
            The version of the weights, and whether the update was new.

        Raises:
            LeaseRefusedError: It is another model's, or its lease is over.
            ConfigError: It has other tables, or a value that is not finite.
            OutOfSpaceError: There is no room for its rows; nothing was changed.
        """
        version, new = self._updates.submit(Submitted(update, record or update.to_record()))
        return int(version), bool(new)

    def read(self, keys: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], int]:
        """Returns rows of some tables as they all are after one update, and its number."""
        return self._opened().read(keys)

    def save(self) -> Path:
        """Writes a base, and removes what it makes needless; returns its folder."""
        with self._saving:
            return self._save()

    def _save(self) -> Path:
        store = self._opened()
        with contextlib.ExitStack() as stack:
            with self._lock:
                base = self._base_of(store)
                frozen = stack.enter_context(store.frozen())
            folder = weight_base.write(self._folder, base, lambda at: store.write(frozen, at))
        with self._lock:
            self._journal.forget_before(base.journal)
            self._saved = _offsets(base)
        weight_base.remove_older(self._folder, folder)
        return folder

    def _base_of(self, store: WeightStore) -> Base:
        return Base(
            store.spec.to_json(),
            store.version,
            self._journal.end(),
            dict(self._epochs),
            {queue: (each.frontier, each.ranges) for queue, each in self._done.items()},
            dict(store.optimizer_starts),
            self._history,
            store.event_time,
        )

    def _begin_from(
        self, spec: ModelSpec, dense: Sequence[np.ndarray], first: FirstWeights
    ) -> None:
        """Begins with a base, which appears whole: the journal need not know where it came from."""
        store = WeightStore(spec, self._memory, self.name)
        try:
            dense = [np.asarray(each, np.float32) for each in dense]
            store.set_dense(dense, first.dense_states)
            store.begin_with(first)
            told = {"spec": spec.to_json(), "digests": json.dumps(store.digests())}
            self._history = _continued("", Record(b"", told))
            with store.frozen() as frozen:
                weight_base.write(
                    self._folder, self._base_of(store), lambda at: store.write(frozen, at)
                )
        except BaseException:
            store.close()
            raise
        self._store = store
        self._meet_published()

    @contextlib.contextmanager
    def publishing(self, *, only_changed: bool) -> Iterator[Snapshot]:
        """Keeps the weights as they are meanwhile, to be written; updates may come.

        What has changed since the last publication is taken with them. If the block raises, the
        next publication has that, too.

        Args:
            only_changed: Whether to keep the rows that have changed alone.
        """
        with self._saving, contextlib.ExitStack() as stack:
            with self._lock:
                store = self._opened()
                frozen = stack.enter_context(
                    store.frozen(_CURSOR, only_changed=only_changed and self.continues)
                )
                if not self.continues:
                    store.track_changes(_CURSOR)
                observed, self._observed = self._observed, Observed()
                snapshot = Snapshot(store, frozen, store.version, self._history, observed)
            try:
                yield snapshot
            except BaseException:
                with self._lock:
                    self._observed = observed + self._observed
                raise
            self.continues = True

    def forget_scores(self) -> None:
        """Forgets how the model did on the rows that are not published yet."""
        with self._lock:
            self._observed = dataclasses.replace(self._observed, scores={})

    def digests(self) -> dict[str, int]:
        """Returns a hash of each table's rows and optimizer states."""
        with self._lock:
            return self._opened().digests()

    def saved(self) -> dict[str, int]:
        """Returns the offset of each queue before which all rows are in the newest base."""
        with self._lock:
            return dict(self._saved)

    def standing(self) -> dict[str, tuple[Position, int]]:
        """Returns the frontier of each queue, and how many ranges lie behind it."""
        with self._lock:
            return {queue: (each.frontier, len(each.ranges)) for queue, each in self._done.items()}

    def close(self) -> None:
        """Frees memory and files."""
        self._journal.close()
        if self._store is not None:
            self._store.close()

    def _recover(self) -> None:
        found = weight_base.newest(self._folder)
        offset = self._journal.begin()
        if found is not None:
            base, files = found
            self._store = WeightStore(ModelSpec.from_json(base.spec), self._memory, self.name)
            self._store.load(files, base)
            self._history = base.history
            self._saved = _offsets(base)
            self._meet_published()
            self._epochs = dict(base.epochs)
            for queue, (frontier, ranges) in base.done.items():
                self._done[queue] = AppliedRanges(frontier, ranges)
                self._revoked[queue] = set()
            offset = base.journal
        while True:
            piece = self._journal.read(offset)
            for _, record in piece.records:
                self._replay(record)
            if piece.next_offset == offset:
                return
            offset = piece.next_offset

    def _commit(self, tickets: Sequence[Ticket[Submitted]]) -> None:
        """Applies updates, as many as can be with one write to the journal."""
        rest = list(tickets)
        while rest:
            group: list[Ticket[Submitted]] = []
            rows: Counter[str] = Counter()
            while rest and not any(
                _overlap(rest[0].item.update, each.item.update) for each in group
            ):
                ticket = rest.pop(0)
                try:
                    new = self._admit(ticket.item.update, rows)
                except TfhybridError as error:
                    ticket.fail(error)
                    continue
                if new:
                    group.append(ticket)
                else:
                    ticket.succeed((self.version, False))
            if not group:
                continue
            self._journal.append([ticket.item.record for ticket in group])
            for ticket in group:
                self.staleness.append(self.version - ticket.item.update.version)
                self._replay_update(*ticket.item)
                ticket.succeed((self.version, True))

    def _admit(self, update: WeightUpdate, rows: Counter[str]) -> bool:
        """Checks an update and makes room for it; returns whether its rows are not applied yet.

        Args:
            update: What came.
            rows: Of the updates before it that are in no table yet, by table; its own are added.
        """
        store = self._opened()
        if update.model != self.name:
            raise self._refusal(update, f"model '{update.model}'")
        done = self._ranges(update.queue)
        if done.covers(update.range):
            return False
        if update.fence // FENCES_OF_AN_EPOCH < self._epochs[update.queue]:
            raise self._refusal(update, "a lease of an earlier provider")
        if update.fence in self._revoked[update.queue] or done.overlaps(update.range):
            raise self._refusal(update, "a lease that has expired")
        store.check(update.keys, update.values, update.rates)
        counts = {name: len(keys) for name, keys in update.keys.items()}
        store.reserve({name: rows[name] + count for name, count in counts.items()})
        rows.update(counts)
        return True

    def _append_and_replay(self, record: Record) -> None:
        self._journal.append([record])
        self._replay(record)

    def _replay(self, record: Record) -> None:
        """Does what a record of the journal says: when it has been written, and when it is read."""
        kind = record.attributes["kind"]
        if kind == "model":
            spec = ModelSpec.from_json(record.attributes["spec"])
            self._store = WeightStore(spec, self._memory, self.name)
            if spec.shapes:
                arrays = safetensors.numpy.load(record.payload)
                self._store.set_dense([arrays[str(i)] for i in range(len(spec.shapes))])
            self._history = _continued("", record)
            self._meet_published()
        elif kind == "epoch":
            queue, epoch, *frontier = json.loads(record.attributes["epoch"])
            self._epochs[queue] = epoch
            self._done.setdefault(queue, AppliedRanges(Position(*frontier)))
            self._revoked[queue] = set()
        elif kind == "passed":
            queue, *places = json.loads(record.attributes["range"])
            self._done[queue].add((Position(*places[:2]), Position(*places[2:])))
        else:
            self._replay_update(WeightUpdate.from_record(record), record)

    def _replay_update(self, update: WeightUpdate, record: Record) -> None:
        self._opened().apply(
            update.keys, update.values, update.rates, update.rows, update.event_time
        )
        self._done[update.queue].add(update.range)
        self._history = _continued(self._history, record)
        self._observed += Observed.from_json(update.observed, update.rows)
        self._meet_published()

    def _meet_published(self) -> None:
        """Begins to note what changes, where the weights are those that were published last."""
        if self._published == (self.version, self._history):
            self._opened().track_changes(_CURSOR)
            self._observed = Observed()
            self.continues = True

    def _ranges(self, queue: str) -> AppliedRanges:
        if queue not in self._done:
            raise LeaseRefusedError(
                f"Model '{self.name}' is trained from {sorted(self._done)}. Received: a lease of "
                f"queue '{queue}'"
            )
        return self._done[queue]

    def _refusal(self, update: WeightUpdate, what: str) -> LeaseRefusedError:
        self.refused += 1
        return LeaseRefusedError(
            f"Model '{self.name}' takes updates under its own leases. Received: {what}, lease "
            f"{update.fence} of queue {update.queue}, from {update.trainer}"
        )

    def _opened(self) -> WeightStore:
        if self._store is None:
            raise StreamError(f"No trainer has said what model '{self.name}' consists of")
        return self._store


def _overlap(one: WeightUpdate, other: WeightUpdate) -> bool:
    """Returns whether two updates have rows in common."""
    return one.queue == other.queue and one.begin < other.end and other.begin < one.end


def _offsets(base: Base) -> dict[str, int]:
    return {queue: frontier.offset for queue, (frontier, _) in base.done.items()}


def _continued(history: str, record: Record) -> str:
    """Returns the history of weights into which one more record went."""
    digest = hashlib.blake2b(history.encode(), digest_size=8)
    digest.update(native.crc32c(record.payload).to_bytes(4, "little"))
    for name in sorted(record.attributes):
        digest.update(f"{name}={record.attributes[name]};".encode())
    return digest.hexdigest()
