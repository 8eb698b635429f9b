"""Target model of the sync unit: its weights, its journal, and the rows that they contain."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from typing_extensions import override

from tfhybrid._remote import remote
from tfhybrid.errors import ConfigError, TfhybridError
from tfhybrid.stream.queues.queue import QueuePosition, Record
from tfhybrid.stream.sync_unit.group_commit import GroupCommit, Ticket
from tfhybrid.stream.sync_unit.journal_entries import ModelEntry, SkipEntry, TermEntry
from tfhybrid.stream.sync_unit.journaled_weights import JournaledWeights
from tfhybrid.stream.sync_unit.snapshot import WeightSnapshot
from tfhybrid.stream.sync_unit.submitted import Submitted
from tfhybrid.stream.weights import update_check, weight_base
from tfhybrid.stream.weights.first_weights import read_checkpoint
from tfhybrid.stream.weights.lease import Lease, QueueProgress, TargetWeights
from tfhybrid.stream.weights.model_spec import DENSE_DIM, DENSE_TABLE, ModelSpec
from tfhybrid.stream.weights.observed import Observed
from tfhybrid.stream.weights.weight_update import WeightUpdate

_CURSOR = "publisher"  # name of the cursor that tracks changed rows for publications
_STALENESS_OF = 1000  # updates whose staleness is remembered


class TargetModel(TargetWeights):
    """Target model, to which the update of each lease is applied exactly once. Thread-safe.

    An update is in the journal, with its lease, before it is applied and acknowledged. Updates that
    arrive while others are being written go to disk together (`GroupCommit`). After `kill -9` the
    weights are recovered bit for bit from the last base (a complete copy on disk) and the journal
    after it, which has the updates in the order in which they were applied. So weights and rows
    always belong together. If the last base is damaged, the one before it and its journal give the
    same weights.

    Methods that need weights raise `StreamError` until a trainer has opened the model.

    Args:
        name: Name of the model.
        folder: Folder of the journal and the bases. No other process may use it.
        memory: Directory of the model's store, in shared memory.
        fsync: When the journal reaches the disk: `"always"` (default), before an update is
            acknowledged, or `"never"`, when the kernel writes it.
        policies: Admission and eviction of keys, as fields of `native.RowPolicyStruct` by table.
            Default: every key gets a row and keeps it.
        published: Version of the last published weights, and hash of their updates. Default:
            nothing published.

    Attributes:
        knows_changes: Whether all changes since the last publication are known.
        staleness: Staleness of the last 1000 updates: the number of other updates applied between
            the version that the update is based on and the update.

    Raises:
        NameTakenError: Another process writes the journal.
        CorruptFileError: The journal is damaged, or the newest base and what could replace it.
        OutOfSpaceError: Shared memory is full.
        ConfigError: `fsync` has another value.
        OSError: The folder cannot be read or written.
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
        self._lock = threading.RLock()
        self._saving = threading.Lock()  # acquired before _lock
        self._updates: GroupCommit[Submitted] = GroupCommit(self._lock, self._commit)
        self._saved: dict[str, int] = {}
        self._observed = Observed()
        self._published = published
        self.knows_changes = False
        self.staleness: deque[int] = deque(maxlen=_STALENESS_OF)
        self._weights = JournaledWeights(name, folder, memory, fsync, self._changed)
        try:
            base = self._weights.recover()
        except BaseException:
            self.close()
            raise
        if base is not None:
            self._saved = base.offsets()

    @property
    def refused(self) -> int:
        """Number of updates that were refused."""
        return self._weights.ledger.refused

    @property
    def set_aside(self) -> dict[int, str]:
        """Reason for each journal record that was set aside at the start, by its offset."""
        return self._weights.set_aside

    @property
    def version(self) -> int:
        """Number of updates in the weights."""
        return 0 if self._weights.store is None else self._weights.store.version

    @property
    def is_open(self) -> bool:
        """Whether the model has weights, because a trainer has opened it."""
        return self._weights.store is not None

    @property
    def unpublished_rows(self) -> int:
        """Number of rows of the queues, which are samples, trained since the last publication."""
        return self._observed.rows

    @remote
    def open(
        self,
        spec: ModelSpec,
        dense: Sequence[np.ndarray],
        checkpoint: tuple[str, int] | None = None,
        states: np.ndarray | None = None,
    ) -> None:
        """Creates the model's weights, unless they exist: the first trainer's weights count.

        Args:
            spec: Specification of the model, without policies.
            dense: Initial dense weights, in the order of `spec.shapes`.
            checkpoint: Directory and step of a synchronous job's checkpoint, from which the tables
                are read. Default: `None`, the tables are empty.
            states: States of the dense weights' optimizer in that job, as returned by
                `ModelSpec.rows_of_states`. Default: `None`, the optimizer starts fresh.

        Raises:
            ConfigError: The model has another specification, the store has no such table or
                optimizer, weights or states do not fit or are not finite, or a policy names an
                unknown table.
            CheckpointError: The checkpoint cannot be read, or does not fit the model.
            OutOfSpaceError, OSError: Disk or shared memory is full, or a file cannot be written.
        """
        dense = _checked_weights(spec, dense, states)
        spec = spec.with_policies(self._policies)
        with self._lock:
            store = self._weights.store
            if store is not None:
                if store.spec.to_json() != spec.with_unseen(store.spec).to_json():
                    raise ConfigError(
                        f"Model '{self.name}' has the specification {store.spec.to_json()}. "
                        f"Received: a trainer with {spec.to_json()}"
                    )
            elif checkpoint is None:
                self._weights.record(ModelEntry(spec, dense))
            else:
                first = read_checkpoint(*checkpoint, spec)
                first = dataclasses.replace(first, dense_states=states)
                self._weights.begin_from(spec, dense, first)

    @override
    @remote
    def begin(
        self, queue: str, first: QueuePosition, beside: tuple[str, int] | None = None
    ) -> QueueProgress:
        with self._lock:
            if beside is not None:
                self._weights.ledger.check_term(*beside)
            term = self._weights.ledger.terms.get(queue, 0) + 1
            applied = self._weights.ledger.applied.get(queue)
            frontier = first if applied is None else applied.frontier
            self._weights.record(TermEntry(queue, term, frontier))
            applied = self._weights.ledger.applied[queue]
            return QueueProgress(term, applied.frontier, applied.ranges)

    @override
    @remote
    def progress(self, queue: str, term: int) -> QueueProgress | None:
        with self._lock:
            ledger = self._weights.ledger
            ledger.check_term(queue, term)
            if ledger.terms.get(queue) != term:
                return None
            applied = ledger.applied[queue]
            return QueueProgress(term, applied.frontier, applied.ranges)

    @override
    @remote
    def revoke(self, queue: str, lease: Lease) -> bool:
        with self._lock:
            return self._weights.ledger.revoke(queue, lease)

    @override
    @remote
    def skip(self, queue: str, lease: Lease) -> None:
        with self._lock:
            self._weights.ledger.check_term(queue, lease.term)
            if not self._weights.ledger.ranges(queue).covers(lease.range):
                self._weights.record(SkipEntry(queue, *lease.range))

    def apply(self, update: WeightUpdate) -> tuple[int, bool]:
        """Applies an update, unless the weights contain its rows: calling it again is harmless.

        Waits for the disk.

        Args:
            update: Update from a trainer.

        Returns:
            The version of the weights, and whether the update was new.

        Raises:
            LeaseRefusedError: The update is for another model, or its lease has ended.
            ConfigError: The update lacks a table of the model or a learning rate, has other dims or
                types, or a row would not stay finite.
            DataError: A field of the update has another type or an impossible value.
            OutOfSpaceError: Memory or disk has no space for the update. Nothing was changed.
            StreamError: No trainer has opened the model yet.
        """
        return self._submit(update, update.to_record())

    @remote
    def apply_record(self, record: Record) -> tuple[int, bool]:
        """Applies the update of a record, for a trainer in another process; see `apply`.

        An update travels as the record that the journal stores, so it is encoded once.

        Args:
            record: Result of `WeightUpdate.to_record`.

        Returns:
            The version of the weights, and whether the update was new.

        Raises:
            DataError: The record is not an update, or as in `apply`.
            LeaseRefusedError, ConfigError, OutOfSpaceError, StreamError: As in `apply`.
        """
        # A trainer must not choose the kind of a journal's record.
        record = dataclasses.replace(record, attributes={**record.attributes, "kind": "update"})
        return self._submit(WeightUpdate.from_record(record), record)

    def _submit(self, update: WeightUpdate, record: Record) -> tuple[int, bool]:
        """Checks an update as far as no other update matters, without the lock, and commits it."""
        spec = self._weights.opened().spec
        update_check.check_fields(update)
        update_check.check_shapes(spec, update)
        is_large = update_check.check_numbers(spec, update)
        version, new = self._updates.submit(Submitted(update, record, is_large))
        return int(version), bool(new)

    @remote
    def read(self, keys: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], int]:
        """Returns the rows of keys by table, all at the same version, and that version.

        Args:
            keys: Keys of each table, int64 `[n]`; the rows have their order.

        Raises:
            StreamError: No trainer has opened the model yet.
            KeyError: There is no such table.
        """
        return self._weights.opened().read(keys)

    @remote
    def save(self) -> Path:
        """Writes a base, a copy of the whole model on disk.

        Keeps the base before it, with the journal after that one, and removes what is older.
        Updates may be applied meanwhile. Waits for another save or a publication to end.

        Returns:
            Folder of the base.

        Raises:
            OSError: The folder cannot be written or emptied.
            StreamError: No trainer has opened the model yet.
            StoreError: A table cannot be written. Nothing was removed.
        """
        with self._saving:
            return self._save()

    def _save(self) -> Path:
        store = self._weights.opened()
        with contextlib.ExitStack() as stack:
            with self._lock:
                base = self._weights.base_of(store)
                frozen = stack.enter_context(store.frozen())
            folder = weight_base.write(self._folder, base, lambda at: store.write(frozen, at))
        older = [each for each in weight_base.newest_first(self._folder) if each.name < folder.name]
        if older:  # before the journal that it needs, so that nobody finds a base without one
            weight_base.remove_older(self._folder, older[0])
        with self._lock:
            self._saved = base.offsets()
            if older:
                self._weights.forget_before(weight_base.journal_of(older[0]))
        return folder

    @contextlib.contextmanager
    def publishing(self, *, only_changed: bool) -> Iterator[WeightSnapshot]:
        """Freezes the weights for a publication. Updates may be applied meanwhile.

        Waits for a save to end. The block must write the snapshot. If it raises, the next snapshot
        has its changes, too.

        Args:
            only_changed: Whether to freeze only the rows that changed since the last publication;
                without effect unless `knows_changes`.

        Yields:
            The frozen weights. They are thawed when the block ends.

        Raises:
            StreamError: No trainer has opened the model yet.
        """
        with self._saving, contextlib.ExitStack() as stack:
            with self._lock:
                store = self._weights.opened()
                frozen = stack.enter_context(
                    store.frozen(_CURSOR, only_changed=only_changed and self.knows_changes)
                )
                if not self.knows_changes:
                    store.track_changes(_CURSOR)
                observed, self._observed = self._observed, Observed()
                snapshot = WeightSnapshot(
                    store, frozen, store.version, self._weights.history, observed
                )
            try:
                yield snapshot
            except BaseException:
                with self._lock:
                    self._observed = observed + self._observed
                raise
            self.knows_changes = True

    def forget_scores(self) -> None:
        """Deletes the scores of the rows since the last publication; the next AUC lacks them."""
        with self._lock:
            self._observed = dataclasses.replace(self._observed, scores={})

    @remote
    def digests(self) -> dict[str, int]:
        """Returns a hash of each table's rows and optimizer states, by table.

        Raises:
            StreamError: No trainer has opened the model yet.
        """
        with self._lock:
            return self._weights.opened().digests()

    @remote
    def saved(self) -> dict[str, int]:
        """Returns the offset of each queue before which the newest base (on disk) has all rows.

        Queues that no save or recovery has recorded yet are left out.
        """
        with self._lock:
            return dict(self._saved)

    @remote
    def standing(self) -> dict[str, tuple[QueuePosition, int]]:
        """Returns which rows of each queue the weights contain, by queue.

        Returns:
            The frontier, before which all rows are contained, and the number of ranges after it.
        """
        with self._lock:
            return {
                queue: (each.frontier, len(each.ranges))
                for queue, each in self._weights.ledger.applied.items()
            }

    def close(self) -> None:
        """Frees memory and files. No other method may be called afterwards."""
        self._weights.close()

    def _commit(self, tickets: Sequence[Ticket[Submitted]]) -> None:
        """Applies updates in groups without overlapping ranges, each with one journal write."""
        rest = list(tickets)
        while rest:
            group: list[Ticket[Submitted]] = []
            rows: Counter[str] = Counter()
            while rest and not any(rest[0].item.excludes(each.item) for each in group):
                ticket = rest.pop(0)
                try:
                    new = self._admit(ticket.item, rows)
                except TfhybridError as error:
                    ticket.fail(error)
                    continue
                if new:
                    group.append(ticket)
                else:
                    ticket.succeed((self.version, False))
            if not group:
                continue
            self._weights.write_updates([ticket.item for ticket in group])
            for ticket in group:
                self.staleness.append(self.version - ticket.item.update.version)
                self._weights.apply(ticket.item)
                ticket.succeed((self.version, True))

    def _admit(self, submitted: Submitted, rows: Counter[str]) -> bool:
        """Checks an update's lease and reserves space for it; returns whether it is new.

        Args:
            submitted: Update from a trainer, whose arrays are checked already.
            rows: Number of rows in the group's earlier updates, by table; this one's are added.
        """
        store, update = self._weights.opened(), submitted.update
        if not self._weights.ledger.admits(update):
            return False
        if submitted.is_large:
            update_check.check_sums(
                store.spec, update, lambda name, keys: store.read({name: keys})[0][name]
            )
        counts = {name: len(keys) for name, keys in update.keys.items()}
        store.reserve({name: rows[name] + count for name, count in counts.items()})
        rows.update(counts)
        return True

    def _changed(self, update: WeightUpdate | None) -> None:
        """Adds what an update has observed; `None` if the weights were created."""
        if update is not None:
            self._observed += update.observations
        self._meet_published()

    def _meet_published(self) -> None:
        """Starts to track changes if the weights are those of the last publication."""
        if self._published == (self.version, self._weights.history):
            self._weights.opened().track_changes(_CURSOR)
            self._observed = Observed()
            self.knows_changes = True


def _checked_weights(
    spec: ModelSpec, dense: Sequence[np.ndarray], states: np.ndarray | None
) -> list[np.ndarray]:
    """Returns dense weights as float32, if they and their optimizer's states can begin a model."""
    shapes = [tuple(each.shape) for each in dense]
    if shapes != spec.shapes:
        raise ConfigError(f"Dense weights must have shapes {spec.shapes}. Received: {shapes}")
    shape = (len(spec.keys_of_weights().get(DENSE_TABLE, ())), spec.dense_slots, DENSE_DIM)
    if states is not None and states.shape != shape:
        raise ConfigError(f"Dense states must have the shape {shape}. Received: {states.shape}")
    weights = [np.asarray(each, np.float32) for each in dense]
    if not all(np.isfinite(each).all() for each in [*weights, *(() if states is None else states)]):
        raise ConfigError("Dense weights and states must be finite. Received: some that are not")
    return weights
