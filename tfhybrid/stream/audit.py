"""Account of a stream: where each row is that was put into its queues."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence, Set
from contextlib import closing

import numpy as np

from tfhybrid.stream.provider import set_aside
from tfhybrid.stream.queues import dead_letters, rows
from tfhybrid.stream.queues.queue import Queue, QueuePosition
from tfhybrid.stream.queues.row_columns import RowColumns
from tfhybrid.stream.stream_files import StreamFiles
from tfhybrid.stream.stream_queues import StreamQueues
from tfhybrid.stream.stream_settings import StreamSettings
from tfhybrid.stream.sync_unit.lease_ledger import LeaseLedger
from tfhybrid.stream.sync_unit.recovery import checked_lines
from tfhybrid.stream.weights.applied_ranges import AppliedRanges
from tfhybrid.stream.weights.lease import Range


@dataclasses.dataclass(frozen=True)
class QueueAccount:
    """Numbers of rows of a queue, for one target model.

    Args:
        model: Name of the target model.
        queue: Name of the queue.
        put: Rows in the queue.
        trained: Rows of the updates in the weights, as the sync unit has counted them.
        bad: Bad rows that the provider has written into its file.
        waiting: Rows that are in neither: in the queue, or leased.
        aside: Rows of leases that were set aside.
        removed: Records that retention has removed, whose rows nobody can count. If there are any,
            or if the weights began with a version of tfhybrid that did not count, `trained` is the
            number of rows in the ranges that the updates cover.
    """

    model: str
    queue: str
    put: int
    trained: int
    bad: int
    waiting: int
    aside: int
    removed: int

    @property
    def missing(self) -> int:
        """Number of rows that are nowhere; negative if more rows were trained than there are."""
        return self.put - self.trained - self.bad - self.waiting - self.aside


def audit(settings: StreamSettings) -> list[QueueAccount]:
    """Accounts for the rows of a stream, from its files and queues. Processes may run meanwhile.

    Reads all queues, and the journals. It must run where the files of provider and sync unit are.

    Args:
        settings: Settings of the stream.

    Returns:
        An account for each model and queue.

    Raises:
        StreamError: A queue or a journal cannot be read.
        CorruptFileError: A record, the metadata of a base or the file of leases set aside is
            damaged.
        OSError: A file cannot be read.
    """
    models, files = settings.queue_routes.models, StreamFiles(settings.folder)
    ledgers = {model: LeaseLedger(model) for model in models}
    for model, ledger in ledgers.items():
        for _ in checked_lines(files.models / model, ledger):
            pass
    # What is applied is looked at before what is listed: rows may move meanwhile.
    letters = dead_letters.read(files.bad_rows)
    listed = {key for _, _, key in letters if key is not None}
    aside = set_aside.read(files.set_aside)
    accounts = []
    queues = StreamQueues(settings.queues, settings.folder)
    for model, names in models.items():
        ledger = ledgers[model]
        for name in itertools.chain.from_iterable(map(queues.names, names)):
            spans = [each.range for each in aside if (each.model, each.queue) == (model, name)]
            with closing(queues.open(name)) as queue:
                counts = _counts(
                    queue, settings.row_columns, ledger.applied.get(name), spans, listed
                )
                removed = queue.begin()
            if ledger.rows is not None and not removed:
                counts["trained"] = ledger.rows.get(name, 0)
            accounts.append(QueueAccount(model, name, **counts, removed=removed))
    return accounts


def _counts(
    queue: Queue,
    columns: RowColumns,
    applied: AppliedRanges | None,
    aside: Sequence[Range],
    listed: Set[tuple[str, QueuePosition]],
) -> dict[str, int]:
    """Returns the numbers of an account, with the rows in applied ranges as those trained.

    Args:
        queue: Queue to read.
        columns: The declared columns.
        applied: Ranges in the weights; `None` if no provider has served the queue yet.
        aside: Ranges that are set aside.
        listed: Queue and position of each bad row in the provider's file.
    """
    counts = dict.fromkeys(("put", "trained", "bad", "waiting", "aside"), 0)
    done = [] if applied is None else [(QueuePosition(0, 0), applied.frontier), *applied.ranges]
    offset, end = queue.begin(), queue.end()
    while offset < end:
        chunk = queue.read(offset, wait_seconds=1.0)
        for at, record in chunk.records:
            decoded = rows.decode(record, columns)
            is_done = _within(at, decoded.numbers, done)
            is_aside = _within(at, decoded.numbers, aside) & ~is_done
            bad = [QueuePosition(at, row.number) for row in decoded.bad]
            is_listed = [(queue.name, position) in listed for position in bad]
            is_lost = _within(at, np.array([row for _, row in bad], np.int64), done)
            counts["put"] += decoded.count
            counts["trained"] += int(is_done.sum())
            counts["aside"] += int(is_aside.sum())
            counts["waiting"] += int((~is_done & ~is_aside).sum())
            counts["bad"] += sum(is_listed)
            counts["waiting"] += int((~is_lost & ~np.array(is_listed, bool)).sum())
        offset = chunk.next_offset
    return counts


def _within(offset: int, numbers: np.ndarray, spans: Sequence[Range]) -> np.ndarray:
    """Returns which rows of a record lie in any of some ranges, bool `[n]`."""
    within = np.zeros(len(numbers), bool)
    for begin, end in spans:
        if begin.offset <= offset <= end.offset:
            low = begin.row if begin.offset == offset else 0
            high = end.row if end.offset == offset else numbers.max(initial=-1) + 1
            within |= (numbers >= low) & (numbers < high)
    return within
