"""Recovery of a target model's weights: the newest base that is whole, and the journal after it.

What an operator does to them while no sync unit runs is here, too.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tfhybrid.errors import (
    CheckpointError,
    CorruptFileError,
    StreamError,
    TfhybridError,
)
from tfhybrid.stream.queues import log_queue
from tfhybrid.stream.queues.log_queue import LogQueue
from tfhybrid.stream.queues.queue import Queue, StoredRecord
from tfhybrid.stream.sync_unit import journal_entries
from tfhybrid.stream.sync_unit.journal_entries import ModelEntry
from tfhybrid.stream.sync_unit.lease_ledger import LeaseLedger
from tfhybrid.stream.weights import weight_base
from tfhybrid.stream.weights.model_spec import ModelSpec
from tfhybrid.stream.weights.weight_base import WeightBase
from tfhybrid.stream.weights.weight_store import WeightStore

_log = logging.getLogger("tfhybrid.stream")

Load = Callable[[WeightBase, list[tuple[str, Path]]], WeightStore]


def load_newest(folder: Path, journal: Queue, load: Load) -> tuple[WeightBase, WeightStore] | None:
    """Loads the newest base that is whole, and moves newer ones, which are damaged, aside.

    An older base gives the same weights, because the journal reaches back to it. Each damaged base
    is named in an error in the log.

    Args:
        folder: Folder of the target model.
        journal: Journal of the model.
        load: Function that loads the weights of a base from its files.

    Returns:
        The metadata and weights of the base. `None` if there is no base, or if all are damaged and
        the journal creates the weights.

    Raises:
        CorruptFileError, CheckpointError: The newest base is damaged, and neither an older one nor
            the journal replaces it.
        OutOfSpaceError: Shared memory is full.
        OSError: A file cannot be read, or a base cannot be moved.
    """
    damaged: list[tuple[Path, Exception]] = []
    loaded = None
    for path in weight_base.newest_first(folder):
        try:
            base, files = weight_base.read(path)
            if damaged and base.journal < journal.begin():
                break
            loaded = base, load(base, files)
            break
        except (CorruptFileError, CheckpointError, FileNotFoundError) as error:
            cause = error.__cause__
            if isinstance(cause, OSError) and not isinstance(cause, FileNotFoundError):
                raise cause from None  # such as no descriptors: the base may be whole
            damaged.append((path, error))
    if damaged and loaded is None and not _creates_weights(journal):
        raise damaged[0][1]
    for path, reason in damaged:
        _move_aside(path, reason, None if loaded is None else loaded[0])
    return loaded


def _move_aside(path: Path, reason: Exception, other: WeightBase | None) -> None:
    """Renames a damaged base, and logs which one is used instead; `None` is the journal alone."""
    moved = weight_base.move_aside(path)
    begin = "the model's beginning" if other is None else weight_base.name_of(other.journal)
    _log.error(
        "A BASE IS DAMAGED: %s. It is now %s. The weights are those of %s and the journal after "
        "it, which are the same. Look at the disk, and remove the damaged base",
        *(reason, moved, begin),
    )


def records_from(queue: Queue, offset: int) -> Iterator[StoredRecord]:
    """Yields the records of a queue from an offset to its end. Does not wait for new ones.

    Args:
        queue: Queue to read.
        offset: Offset of the first record.

    Raises:
        PositionLostError: The queue no longer has, or never had, the records there.
        CorruptFileError: A record is damaged; the records before it were yielded.
    """
    while True:
        piece = queue.read(offset)
        yield from piece.records
        if piece.next_offset == offset:
            return
        offset = piece.next_offset


class JournalLine(NamedTuple):
    """A record of a journal, for people.

    Attributes:
        offset: Offset of the record.
        bytes: Size of its payload, in bytes.
        text: Description of the record.
        fault: Reason why it cannot be applied; empty if it can, or if that was not looked at.
    """

    offset: int
    bytes: int
    text: str
    fault: str


def last_lines(folder: Path, count: int) -> list[JournalLine]:
    """Returns the last records of a target model's journal, without looking for faults.

    A sync unit may run meanwhile.

    Args:
        folder: Folder of the target model.
        count: Maximum number of records.

    Raises:
        StreamError: There is no journal.
        CorruptFileError: A record is damaged.
    """
    with contextlib.closing(LogQueue(folder / "journal")) as journal:
        first = max(journal.end() - count, journal.begin())
        return [_line(stored, "") for stored in records_from(journal, first)]


def checked_lines(folder: Path, ledger: LeaseLedger) -> Iterator[JournalLine]:
    """Yields the records of a target model's journal, with the faults of those it would set aside.

    Records before the oldest base are left out: no start reads them. A sync unit may run meanwhile.

    Args:
        folder: Folder of the target model.
        ledger: New ledger of the model. In the end it has what a start would find.

    Raises:
        StreamError: There is no journal.
        CorruptFileError: The metadata of the oldest base are damaged; or a record, and those before
            it were yielded.
        OSError: A file cannot be read.
    """
    with contextlib.closing(LogQueue(folder / "journal")) as journal:
        spec, offset = None, journal.begin()
        base = _oldest(folder)
        if base is not None:
            spec, offset = ModelSpec.from_json(base.spec), base.journal
            ledger.load(base)
        for stored in records_from(journal, offset):
            fault = ""
            try:
                entry = journal_entries.decoded(stored.record)
                journal_entries.check(entry, spec, ledger)
                journal_entries.note(entry, ledger)
                spec = entry.spec if isinstance(entry, ModelEntry) else spec
            except TfhybridError as error:
                fault = str(error)
            yield _line(stored, fault)


def cut(folder: Path, offset: int) -> Path:
    """Takes the records from an offset on out of a model's journal, and the bases that have them.

    The rows of their updates are trained again. Files are kept: those of the journal in the folder
    that is returned, bases under a name that begins with `cut-`. No sync unit may run.

    Args:
        folder: Folder of the target model.
        offset: Offset of the first record to take out.

    Returns:
        The folder with the journal's files.

    Raises:
        StreamError: There is no such record, or nothing that the weights could be recovered from.
        NameTakenError: A sync unit runs.
        OSError: A file cannot be read, copied or moved.
    """
    bases = weight_base.newest_first(folder)
    later = [base for base in bases if weight_base.journal_of(base) > offset]
    if len(later) == len(bases):
        with contextlib.closing(LogQueue(folder / "journal")) as journal:
            if offset == 0 or not _creates_weights(journal):
                raise StreamError(
                    f"The weights of {folder} can be cut only behind a base, or behind the record "
                    f"that created them. Received: {offset}, with the bases "
                    f"{[base.name for base in bases]}"
                )

    def prepare() -> None:
        for base in later:  # the newest first: a base needs what the journal has
            weight_base.move_aside(base, "cut")

    return log_queue.cut(folder / "journal", offset, prepare)


def _line(stored: StoredRecord, fault: str) -> JournalLine:
    text = journal_entries.described(stored.record)
    return JournalLine(stored.offset, len(stored.record.payload), text, fault)


def _oldest(folder: Path) -> WeightBase | None:
    """Returns the metadata of the oldest base, also while a sync unit removes older ones."""
    for path in reversed(weight_base.newest_first(folder)):
        with contextlib.suppress(FileNotFoundError):
            return weight_base.read_metadata(path)
    return None


def _creates_weights(journal: Queue) -> bool:
    first = journal.read(0, max_records=1).records if journal.begin() == 0 else ()
    return bool(first) and first[0].record.attributes.get("kind") == "model"
