"""Weights of a target model with their journal: both always have the same entries."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from tfhybrid.errors import NameTakenError, OutOfSpaceError, StreamError, TfhybridError
from tfhybrid.stream.queues.log_queue import LogQueue
from tfhybrid.stream.queues.queue import Record
from tfhybrid.stream.sync_unit import journal_entries
from tfhybrid.stream.sync_unit.journal_entries import Entry, ModelEntry
from tfhybrid.stream.sync_unit.lease_ledger import LeaseLedger
from tfhybrid.stream.sync_unit.recovery import load_newest, records_from
from tfhybrid.stream.sync_unit.snapshot import next_history
from tfhybrid.stream.sync_unit.submitted import Submitted
from tfhybrid.stream.weights import weight_base
from tfhybrid.stream.weights.first_weights import FirstWeights
from tfhybrid.stream.weights.model_spec import ModelSpec
from tfhybrid.stream.weights.weight_base import WeightBase
from tfhybrid.stream.weights.weight_store import WeightStore
from tfhybrid.stream.weights.weight_update import WeightUpdate

_log = logging.getLogger("tfhybrid.stream")


class JournaledWeights:
    """Weights of a target model, the ledger of their rows, and the journal of both.

    Not thread-safe: the model's lock guards it. Whatever may fail is done before an entry is in the
    journal. An entry that cannot be applied all the same when it is read again is set aside: it is
    named in the log, and the entries after it are applied.

    Args:
        name: Name of the model.
        folder: Folder of the journal and the bases. No other process may use it.
        memory: Directory of the store, in shared memory.
        fsync: When the journal reaches the disk, as in `LogQueue`.
        changed: Function that is called when the weights were created, with `None`, and after each
            update, with it.

    Attributes:
        store: Store of the weights; `None` before they are created.
        ledger: Terms and applied ranges.
        history: Hash of all updates so far; empty before the weights are created.
        set_aside: Reason for each journal record that was set aside, by its offset.

    Raises:
        NameTakenError: Another process writes the journal.
        CorruptFileError: The newest file of the journal is damaged.
        ConfigError: `fsync` has another value.
        OSError: The folder cannot be read or written.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        memory: Path,
        fsync: str,
        changed: Callable[[WeightUpdate | None], None],
    ) -> None:
        self._name = name
        self._folder = folder
        self._memory = memory
        self._changed = changed
        self._journal = LogQueue(folder / "journal", write=True, fsync=fsync)
        self.store: WeightStore | None = None
        self.ledger = LeaseLedger(name)
        self.history = ""
        self.set_aside: dict[int, str] = {}

    def opened(self) -> WeightStore:
        """Returns the store of the weights.

        Raises:
            StreamError: No trainer has opened the model yet.
        """
        if self.store is None:
            raise StreamError(f"Model '{self._name}' has no weights yet: start a trainer first")
        return self.store

    def recover(self) -> WeightBase | None:
        """Recovers the weights from the newest base that is whole, and the journal after it.

        Returns:
            Metadata of the base; `None` without one.

        Raises:
            CorruptFileError: The journal is damaged, or the newest base and what could replace it.
            OutOfSpaceError: Shared memory is full.
            NameTakenError: A store of that model is open in this process.
            OSError: A file cannot be read.
        """
        loaded = load_newest(self._folder, self._journal, self._loaded)
        base, offset = None, self._journal.begin()
        if loaded is not None:
            base, self.store = loaded
            self.history, offset = base.history, base.journal
            self.ledger.load(base)
            self._changed(None)
        for number, record in records_from(self._journal, offset):
            self._replay(number, record)
        return base

    def record(self, entry: Entry) -> None:
        """Writes an entry to the journal, and applies it.

        Args:
            entry: Entry that is no update.

        Raises:
            DataError, ConfigError, LeaseRefusedError: The entry cannot be applied.
            OutOfSpaceError: Disk or shared memory is full. Nothing was changed.
            TfhybridError: The store cannot be created. Nothing was changed.
        """
        self._check(entry)
        record, created = journal_entries.encoded(entry), self._created(entry)
        try:
            self._journal.append([record])
        except BaseException:
            if created is not None:
                created.close()
            raise
        self._take(entry, record, created)

    def write_updates(self, updates: Sequence[Submitted]) -> None:
        """Writes updates to the journal. Then `apply` must be called with each, in this order.

        Args:
            updates: Updates that were admitted, and for which there is space.

        Raises:
            OutOfSpaceError: The disk is full. Nothing was changed.
        """
        self._journal.append([each.record for each in updates])

    def apply(self, update: Submitted) -> None:
        """Applies an update that `write_updates` has written.

        Args:
            update: Update from a trainer.
        """
        self._take(update.update, update.record)

    def begin_from(self, spec: ModelSpec, dense: list[np.ndarray], first: FirstWeights) -> None:
        """Creates the weights from a checkpoint and writes a base; the journal needs no record.

        Args:
            spec: Specification of the model, with policies.
            dense: Initial dense weights, float32.
            first: Rows of the checkpoint.

        Raises:
            ConfigError: The store has no such tables or optimizers, or rows have wrong shapes.
            OutOfSpaceError: Disk or shared memory is full.
            OSError: A file cannot be written.
        """
        store = WeightStore(spec, self._memory, self._name)
        with store.closed_on_error():
            store.set_dense(dense, first.dense_states)
            store.load_checkpoint(first)
            attributes = {"spec": spec.to_json(), "digests": json.dumps(store.digests())}
            self.history = next_history("", Record(b"", attributes))
            base = self.base_of(store)
            with store.frozen() as frozen:
                weight_base.write(self._folder, base, lambda at: store.write(frozen, at))
        self.store = store
        self._changed(None)

    def base_of(self, store: WeightStore) -> WeightBase:
        """Returns the metadata of a base of the weights as they are now.

        Args:
            store: Store of the weights.
        """
        applied = self.ledger.applied
        return WeightBase(
            store.spec.to_json(),
            store.version,
            self._journal.end(),
            dict(self.ledger.terms),
            {queue: (each.frontier, each.ranges) for queue, each in applied.items()},
            dict(store.optimizer_starts),
            self.history,
            store.event_time,
            None if self.ledger.rows is None else dict(self.ledger.rows),
        )

    def forget_before(self, offset: int) -> None:
        """Removes the files of the journal whose records all lie before an offset.

        Args:
            offset: Offset of the first record to keep.

        Raises:
            OSError: A file cannot be removed.
        """
        self._journal.forget_before(offset)

    def close(self) -> None:
        """Frees memory and files. No other method may be called afterwards."""
        self._journal.close()
        if self.store is not None:
            self.store.close()

    def _loaded(self, base: WeightBase, files: list[tuple[str, Path]]) -> WeightStore:
        store = WeightStore(ModelSpec.from_json(base.spec), self._memory, self._name)
        with store.closed_on_error():
            store.load(files, base)
        return store

    def _replay(self, number: int, record: Record) -> None:
        """Applies a record that is read again, or sets it aside if that is impossible."""
        try:
            entry = journal_entries.decoded(record)
            self._check(entry)
            created = self._created(entry)
        except (OutOfSpaceError, NameTakenError):
            raise
        except TfhybridError as error:
            self.set_aside[number] = str(error)
            _log.error(
                "Model '%s': RECORD %d OF THE JOURNAL IS SET ASIDE, because it cannot be applied "
                "(%s): %s",
                *(self._name, number, journal_entries.described(record), error),
            )
            return
        self._take(entry, record, created)

    def _check(self, entry: Entry) -> None:
        spec = None if self.store is None else self.store.spec
        journal_entries.check(entry, spec, self.ledger)

    def _created(self, entry: Entry) -> WeightStore | None:
        """Returns the weights that an entry creates; `None` if it creates none."""
        if not isinstance(entry, ModelEntry):
            return None
        store = WeightStore(entry.spec, self._memory, self._name)
        with store.closed_on_error():
            store.set_dense(list(entry.dense))
        return store

    def _take(self, entry: Entry, record: Record, created: WeightStore | None = None) -> None:
        """Applies an entry that is checked, and whose record the journal has.

        Args:
            entry: Entry to apply.
            record: Record of the entry.
            created: Weights that the entry creates, from `_created`. Default: none.
        """
        if created is not None:
            self.store = created
            self.history = next_history("", record)
            self._changed(None)
            return
        if isinstance(entry, WeightUpdate):
            store = self.opened()
            store.apply(entry.keys, entry.values, entry.rates, entry.rows, entry.event_time)
            self.history = next_history(self.history, record)
        journal_entries.note(entry, self.ledger)
        if isinstance(entry, WeightUpdate):
            self._changed(entry)
