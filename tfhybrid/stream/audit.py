"""Account of a stream: where each row is that was put into its queues."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence, Set
from contextlib import closing

import numpy as np

from tfhybrid.stream.provider import set_aside
from tfhybrid.stream.provider.set_aside import SetAsideLease
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
        trained: Rows of the updates in the weights, as the sync unit has counted them. If other
            programs write the queue, those of them that are still in it: compaction removes others.
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
    lists = ProviderLists(
        settings.row_columns,
        {key for _, _, key in letters if key is not None},
        set_aside.read(files.set_aside),
    )
    accounts = []
    queues = StreamQueues(settings.queues, settings.folder)
    for model, names in models.items():
        for declared in names:
            for name in queues.names(declared):
                with closing(queues.open(name)) as queue:
                    is_ours = declared not in queues.others
                    account = account_of(model, name, queue, ledgers[model], lists, is_ours=is_ours)
                accounts.append(account)
    return accounts


@dataclasses.dataclass(frozen=True)
class ProviderLists:
    """Lists in the files of a provider.

    Args:
        columns: Columns of the rows.
        bad: Queue and position of each bad row.
        aside: Leases that were set aside.
    """

    columns: RowColumns
    bad: Set[tuple[str, QueuePosition]]
    aside: Sequence[SetAsideLease]


def account_of(
    model: str, name: str, queue: Queue, ledger: LeaseLedger, lists: ProviderLists, *, is_ours: bool
) -> QueueAccount:
    """Accounts for the rows of a queue.

    Args:
        model: Name of the target model.
        name: Name of the queue.
        queue: The queue, which is read from its begin to its end.
        ledger: Ledger of the model.
        lists: Lists of the provider.
        is_ours: Whether the provider writes the queue.

    Raises:
        StreamError: The queue cannot be read.
        CorruptFileError: A record is damaged.
    """
    aside = [each.range for each in lists.aside if (each.model, each.queue) == (model, name)]
    begin = queue.begin()
    is_whole, counts = _counts(queue, lists, ledger.applied.get(name), aside)
    if ledger.rows is not None and not begin:
        trained = ledger.rows.get(name, 0)
        if not is_ours and not is_whole:  # compaction may have removed trained rows
            trained = min(trained, counts["trained"])
        counts["trained"] = trained
    return QueueAccount(model, name, **counts, removed=begin)


def _counts(
    queue: Queue, lists: ProviderLists, applied: AppliedRanges | None, aside: Sequence[Range]
) -> tuple[bool, dict[str, int]]:
    """Returns whether each offset has a record, and the numbers of an account.

    Those trained are the rows in applied ranges.

    Args:
        queue: Queue to read.
        lists: Lists of the provider.
        applied: Ranges in the weights; `None` if no provider has served the queue yet.
        aside: Ranges that are set aside.
    """
    records = 0
    counts = dict.fromkeys(("put", "trained", "bad", "waiting", "aside"), 0)
    done = [] if applied is None else [(QueuePosition(0, 0), applied.frontier), *applied.ranges]
    begin, end = queue.begin(), queue.end()
    offset = begin
    while offset < end:
        chunk = queue.read(offset, wait_seconds=1.0)
        records += len(chunk.records)
        for at, record in chunk.records:
            decoded = rows.decode(record, lists.columns)
            is_done = _within(at, decoded.numbers, done)
            is_aside = _within(at, decoded.numbers, aside) & ~is_done
            bad = [QueuePosition(at, row.number) for row in decoded.bad]
            is_listed = [(queue.name, position) in lists.bad for position in bad]
            is_lost = _within(at, np.array([row for _, row in bad], np.int64), done)
            counts["put"] += decoded.count
            counts["trained"] += int(is_done.sum())
            counts["aside"] += int(is_aside.sum())
            counts["waiting"] += int((~is_done & ~is_aside).sum())
            counts["bad"] += sum(is_listed)
            counts["waiting"] += int((~is_lost & ~np.array(is_listed, bool)).sum())
        offset = chunk.next_offset
    return records == offset - begin, counts


def _within(offset: int, numbers: np.ndarray, spans: Sequence[Range]) -> np.ndarray:
    """Returns which rows of a record lie in any of some ranges, bool `[n]`."""
    within = np.zeros(len(numbers), bool)
    for begin, end in spans:
        if begin.offset <= offset <= end.offset:
            low = begin.row if begin.offset == offset else 0
            high = end.row if end.offset == offset else numbers.max(initial=-1) + 1
            within |= (numbers >= low) & (numbers < high)
    return within
