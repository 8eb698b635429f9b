"""The writes of a stream's processes on a disk that fails; started with disk_calls.c preloaded.

    stream_job.py FAULT FOLDER MEMORY

Each function does its work again and again, lets another call fail each time, checks what there is
then, and does the same work once more without a failure. FOLDER/result.json gets the number of
works that raised, and of those that did not, for each function.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.support.serving.publishing import Site
from tests.support.stream.model_folder import ModelFolder
from tests.support.stream.model_updates import begun_model, lease_update
from tests.support.stream.queue_contract import read_all
from tests.unit.disk.watched_disk import Fault, watched
from tfhybrid.errors import OutOfSpaceError, PublicationError, TfhybridError
from tfhybrid.stream.provider.deaths import DeathFile, Deaths
from tfhybrid.stream.provider.set_aside import SetAside, SetAsideLease
from tfhybrid.stream.queues import dead_letters, numbered_writer
from tfhybrid.stream.queues.dead_letters import DeadLetters
from tfhybrid.stream.queues.log_queue import LogQueue
from tfhybrid.stream.queues.numbered_writer import Numbered, NumberedWriter
from tfhybrid.stream.queues.queue import QueuePosition, Record
from tfhybrid.stream.weights import weight_base

FIRST = QueuePosition(0, 0)


class FailingFolder:
    """A folder in which work is done that may fail.

    Args:
        path: Path of the folder.
        memory: Directory for stores.
        fault: How calls fail.
    """

    def __init__(self, path: Path, memory: Path, fault: Fault) -> None:
        self.path, self.memory, self._fault = path, memory, fault
        self.counts: Counter[str] = Counter(raised=0, went_on=0)

    def each(
        self,
        work: Callable[[int], object],
        errors: type[Exception] | tuple[type[Exception], ...],
        check: Callable[[int, bool], object],
    ) -> None:
        """Does some work with another failing call each time, until none is left to fail.

        Args:
            work: Function of the number of the failing call, from 1.
            errors: Errors that the work may raise.
            check: Function of that number, and whether the work raised.
        """
        for failing in range(1, 10_000):
            made, raised = failing, False
            try:
                made = watched(self.path, partial(work, failing), failing, fault=self._fault)
            except errors:
                raised = True
            check(failing, raised)
            if made < failing:
                return
            self.counts["raised" if raised else "went_on"] += 1


def journal(folder: FailingFolder) -> None:
    """An update that is refused changes nothing, and is taken when it is sent again."""
    model_folder = ModelFolder(folder.path / "ads", folder.memory)
    model = begun_model(model_folder.opened())
    model._weights._journal._segment_bytes = 1  # each update begins a file

    def check(number: int, raised: bool) -> None:
        assert model.version == number - raised
        assert model.apply(lease_update(number)) == (number, raised)
        assert model_folder.records() == number + 2

    folder.each(lambda number: model.apply(lease_update(number)), OutOfSpaceError, check)
    digests, version = model.digests(), model.version
    model = model_folder.opened()
    assert (model.digests(), model.version) == (digests, version)
    model_folder.close()


def terms(folder: FailingFolder) -> None:
    """A provider's term begins or does not."""
    model_folder = ModelFolder(folder.path / "ads", folder.memory)
    model = begun_model(model_folder.opened())
    terms = [model.begin("video", FIRST).epoch]

    def check(_: int, raised: bool) -> None:
        term = model.begin("video", FIRST).epoch
        assert term == terms[-1] + (1 if raised else 2)
        terms.append(term)

    folder.each(lambda _: model.begin("video", FIRST), OutOfSpaceError, check)
    assert model_folder.opened().begin("video", FIRST).epoch == terms[-1] + 1
    model_folder.close()


def start_of_a_model(folder: FailingFolder) -> None:
    """A sync unit that cannot start leaves everything as it was, and the next one starts."""
    model_folder = ModelFolder(folder.path / "ads", folder.memory)
    model = begun_model(model_folder.opened())
    model.apply(lease_update(0))
    model.save()
    model.apply(lease_update(1))
    digests = model.digests()
    model_folder.close()

    def check(_: int, raised: bool) -> None:
        model = model_folder.opened()
        assert (model.digests(), model.version) == (digests, 2)
        assert len(weight_base.newest_first(model_folder.folder)) == 1
        model_folder.close()

    folder.each(lambda _: model_folder.opened(), (OSError, TfhybridError), check)


def base(folder: FailingFolder) -> None:
    """A base appears whole or not at all, and the weights survive without it."""
    model_folder = ModelFolder(folder.path / "ads", folder.memory)
    model = begun_model(model_folder.opened())
    model.apply(lease_update(0))

    def check(number: int, raised: bool) -> None:
        for path in weight_base.newest_first(model_folder.folder)[:2]:  # a third is being removed
            weight_base.read(path)
        model.save()
        assert len(weight_base.newest_first(model_folder.folder)) == min(number, 2)
        model.apply(lease_update(number))

    folder.each(lambda _: model.save(), (OSError, TfhybridError), check)
    digests = model.digests()
    assert model_folder.opened().digests() == digests
    model_folder.close()


def publication(folder: FailingFolder, deltas: int = 24) -> None:
    """Readers see the publication before or the new one; the next has what a failed one lacks."""
    site = Site(folder.path, folder.memory, deltas=deltas)
    site.publish()
    reader = site.reader()
    reader.refresh()

    def check(number: int, raised: bool) -> None:
        reader.refresh()
        if raised:
            site.publish()
            reader.refresh()
        site.assert_served(reader)
        site.train(number)

    site.train(0)
    folder.each(lambda _: site.publish(), PublicationError, check)
    reader.close()
    site.kill()


def bases(folder: FailingFolder) -> None:
    """The same for publications that are all bases."""
    publication(folder, deltas=0)


def queue(folder: FailingFolder) -> None:
    """A record is stored or refused, and sent again it is there once; numbers cost a warning."""
    numbered_writer._SNAPSHOT_RECORDS = 1
    segments, numbers = folder.path / "queue", folder.path / "numbers.json"
    writer = NumberedWriter(LogQueue(segments, write=True, segment_bytes=1), numbers)
    sent = []

    def record(number: int) -> Numbered:
        return Numbered("web", number, Record(b"row %d" % number))

    def check(number: int, raised: bool) -> None:
        sent.append(record(number).record.payload)
        assert writer.append([record(number)]) == raised
        assert [each.payload for each in read_all(writer.queue)] == sent

    folder.each(lambda number: writer.append([record(number)]), OutOfSpaceError, check)
    writer.close()
    writer = NumberedWriter(LogQueue(segments, write=True), numbers)
    assert writer.append([record(len(sent))]) == 0
    assert [each.payload for each in read_all(writer.queue)] == sent
    writer.close()


def bad_rows(folder: FailingFolder) -> None:
    """A bad row is counted, and its line is whole when there is space again."""
    path = folder.path / "bad-rows.jsonl"
    letters = DeadLetters(path, limit=10_000)

    def add(number: int) -> None:
        letters.add("video", QueuePosition(number, 0), "bad", b"x" * 100)

    def check(number: int, raised: bool) -> None:
        assert all(key is not None for _, _, key in dead_letters.read(path))
        add(10_000 + number)
        assert letters.count == 2 * number
        assert len([*dead_letters.read(path)]) == 2 * number

    folder.each(add, (), check)
    letters.close()


def set_aside(folder: FailingFolder) -> None:
    """Leases that were set aside, and deaths, are kept in memory and written with the next."""
    path, deaths_path = folder.path / "set-aside.json", folder.path / "deaths.json"
    aside = SetAside(path, DeathFile(deaths_path))

    def add(number: int) -> None:
        span = QueuePosition(number, 0), QueuePosition(number + 1, 0)
        aside.add(SetAsideLease("ads", "video", *span, 1, ("t",)))
        aside.deaths.replace("video", [Deaths("ads", "video", *span, ("t",))])

    def check(number: int, raised: bool) -> None:
        add(10_000 + number)
        known = SetAside(path, DeathFile(deaths_path))
        assert known.leases == aside.leases
        assert len(known.leases) == 2 * number
        assert known.deaths.of("video", "ads") == aside.deaths.of("video", "ads")

    folder.each(add, (), check)


WORKS = (
    journal,
    terms,
    start_of_a_model,
    base,
    publication,
    bases,
    queue,
    bad_rows,
    set_aside,
)


def main(fault: str, root: str, memory: str) -> None:
    result = {}
    for work in WORKS:
        path = Path(root) / work.__name__
        path.mkdir()
        folder = FailingFolder(path, Path(memory) / work.__name__, Fault[fault])
        folder.memory.mkdir()
        work(folder)
        result[work.__name__] = folder.counts
    (Path(root) / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
