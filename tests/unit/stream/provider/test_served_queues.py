"""A topic that other programs write is trained from all its partitions, and never written."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.roles.clusters import until
from tests.support.stream.counting_trainer import SPEC, update_of
from tests.support.stream.folder_topic import CompactedQueue, FolderTopic
from tfhybrid.errors import ConfigError, NameTakenError, PositionLostError, StreamError
from tfhybrid.stream.audit import ProviderLists, account_of
from tfhybrid.stream.provider.deaths import DeathFile
from tfhybrid.stream.provider.lease_book import StalenessBound
from tfhybrid.stream.provider.lease_length import LeaseLength
from tfhybrid.stream.provider.provider import Provider
from tfhybrid.stream.provider.routes import Routes
from tfhybrid.stream.provider.served_queue import LeaseRules, ServedQueue
from tfhybrid.stream.provider.served_queues import ServedQueues
from tfhybrid.stream.provider.set_aside import SetAside
from tfhybrid.stream.provider.topic_ids import TopicIds
from tfhybrid.stream.provider.work import Request
from tfhybrid.stream.queues import rows
from tfhybrid.stream.queues.dead_letters import DeadLetters
from tfhybrid.stream.queues.numbered_writer import ForeignWriters
from tfhybrid.stream.queues.queue import Record, Slice
from tfhybrid.stream.queues.queue_reader import QueueReader
from tfhybrid.stream.queues.row_columns import RowColumns
from tfhybrid.stream.sync_unit.lease_ledger import LeaseLedger
from tfhybrid.stream.sync_unit.recovery import checked_lines
from tfhybrid.stream.sync_unit.target_model import TargetModel

COLUMNS = RowColumns.read({"item": "int64"})
ROUTES = Routes((), {}, {"ads": ["clicks"]}, others=["clicks"])
AVRO = b"\0\0\0\0\x2a\x0e"  # schema 42, and an Avro long


class Weights:
    """The present model of a site, as a client that connects to a restarted sync unit."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def __getattr__(self, name: str) -> Any:
        return getattr(self._site.model, name)


class Site:
    """A model, and providers one after another, of one topic."""

    def __init__(self, folder: Path, memory: Path, partitions: int = 4) -> None:
        self.folder = folder
        self.topic = FolderTopic(folder / "topic", partitions)
        self.memory = memory
        self.open_model()
        self.provider: Provider | None = None
        self.expires_seconds = 60.0
        self._number = 0

    def open_model(self) -> None:
        self.model = TargetModel("ads", self.folder / "ads", self.memory, fsync="never")
        self.model.open(SPEC, [])

    def start(self, seconds: float = 60.0) -> Provider:
        if self.provider is not None:
            self.provider.close()
            self.provider = None
        letters = DeadLetters(self.folder / "bad.jsonl", limit=100)
        bounds = {"ads": StalenessBound()}
        aside = SetAside(self.folder / "set-aside.json", DeathFile(self.folder / "deaths.json"))

        def serve(
            name: str, declared_as: str, writers: ForeignWriters, beside: ServedQueue | None
        ) -> ServedQueue:
            assert declared_as == "clicks"
            reader = QueueReader(writers.queue, COLUMNS, letters)
            rules = LeaseRules(bounds, self.expires_seconds, aside)
            return ServedQueue(name, writers, reader, {"ads": Weights(self)}, rules, beside)

        ids = TopicIds(self.folder / "topics.json")
        queues = ServedQueues({}, {"clicks": self.topic}, serve, ids, seconds=seconds)
        length = LeaseLength(rows=2)
        self.provider = Provider(queues, COLUMNS, ROUTES, letters, length=length)
        return self.provider

    def train(self, queue: str = "any") -> str | None:
        """Trains a lease; returns the name of its queue."""
        assert self.provider is not None
        self._number += 1
        work = self.provider.lease(Request("t", self._number, "ads", queue))
        if work is None:
            return None
        self.model.apply(update_of(work, "ads", "t"))
        self.provider.finish("ads", work.queue, work.lease.fence)
        return work.queue

    def counts(self, items: int) -> list[float]:
        return self.model.read({"item": np.arange(items)})[0]["item"][:, 0].tolist()

    def close(self) -> None:
        if self.provider is not None:
            self.provider.close()
        self.model.close()


@pytest.fixture
def site(tmp_path: Path, shm_directory: Path) -> Iterator[Site]:
    site = Site(tmp_path, shm_directory)
    yield site
    site.close()


def test_all_partitions_are_trained_once(site: Site):
    for partition in range(4):
        site.topic.write_items(partition, *range(partition * 5, partition * 5 + 5))
    provider = site.start()
    assert provider.lag("ads") == {f"clicks/{number}": 5 for number in range(4)}
    assert site.train("clicks/2") == "clicks/2"
    assert site.train("clicks") in provider.lag("ads")
    provider = site.start()  # a new one, of the same topic
    while site.train() is not None:
        pass
    assert site.counts(20) == [1.0] * 20
    assert sum(provider.lag("ads").values()) == 0
    assert not provider.has_rows(Request("t", 0, "ads"))


def test_rows_cannot_be_put(site: Site):
    provider = site.start()
    record = Record(b'{"item": 1}')
    with pytest.raises(ConfigError, match="Only other programs write the queue clicks/1"):
        provider.put("web", 0, record, queue="clicks/1")
    with pytest.raises(ConfigError, match=r"other programs write all queues, \['clicks'\]"):
        provider.put("web", 0, record)
    assert provider.last_record("web") is None
    assert sum(provider.lag("ads").values()) == 0


def test_a_record_without_value_is_no_row(site: Site):
    site.topic.write(0, rows.NO_ROWS, b'{"item": 0}', rows.NO_ROWS, rows.NO_ROWS)
    provider = site.start()
    while site.train() is not None:
        pass
    assert site.counts(1) == [1.0]
    assert provider.lag("ads")["clicks/0"] == 0
    assert provider.stats()["stream_bad_rows"] == {"": 0.0}


def test_another_format_is_refused_by_name(site: Site):
    site.topic.write(3, rows.NO_ROWS, AVRO, AVRO)
    reason = "Queue clicks cannot be trained.*/3 .*Avro, Protobuf or JSON of schema 42"
    for _ in range(2):  # and again
        with pytest.raises(ConfigError, match=reason):
            site.start()


def test_a_record_of_another_format_is_one_bad_row(site: Site):
    site.topic.write_items(0, 0)
    provider = site.start()
    site.topic.write(0, AVRO, b'{"item": 1}')
    while site.train() is not None:
        pass
    assert site.counts(2) == [1.0, 1.0]
    assert provider.stats()["stream_bad_rows"] == {"": 1.0}
    assert "schema 42 of a registry" in (site.folder / "bad.jsonl").read_text()


def test_added_partitions_are_found(site: Site):
    provider = site.start(seconds=0.01)
    site.topic.add_partition()
    site.topic.write_items(4, 0, 1, 2)
    until(lambda: "clicks/4" in provider.lag("ads"), seconds=60)
    assert [site.train() for _ in range(3)] == ["clicks/4", "clicks/4", None]
    assert site.counts(3) == [1.0] * 3


def test_a_lease_is_cut_again_if_records_vanish(site: Site, caplog: pytest.LogCaptureFixture):
    site.topic.write_items(0, *range(5))
    provider = site.start()
    request = Request("t", 7, "ads")
    first = provider.lease(request)
    assert first.batch["item"].to_pylist() == [0, 1]
    provider.lease(Request("other", 8, "ads"))
    site.topic.removed |= {1, 2}
    provider.leave("other", "ads")
    again = provider.lease(request)  # the first answer was lost
    assert again.batch["item"].to_pylist() == [0]
    assert again.lease.fence > first.lease.fence
    assert "is cut again: it has 2 rows, but the queue has 1 now" in caplog.text
    site.model.apply(update_of(again, "ads", "t"))
    provider.finish("ads", again.queue, again.lease.fence)
    assert not site.model.apply(update_of(first, "ads", "t"))[1]  # nor is a late answer trained
    while site.train() is not None:
        pass
    assert site.counts(5) == [1.0, 0.0, 0.0, 1.0, 1.0]
    assert provider.lag("ads")["clicks/0"] == 0


def test_rows_that_compaction_removed_after_they_were_trained_are_not_missing(site: Site):
    site.topic.write_items(0, *range(5))
    site.start()
    while site.train() is not None:
        pass
    site.topic.removed |= {1, 2}
    ledger = LeaseLedger("ads")
    for _ in checked_lines(site.folder / "ads", ledger):
        pass
    lists = ProviderLists(COLUMNS, set(), ())
    with closing(site.topic.open(0)) as queue:
        account = account_of("ads", "clicks/0", queue, ledger, lists, is_ours=False)
        ours = account_of("ads", "clicks/0", queue, ledger, lists, is_ours=True)
    assert (account.put, account.trained, account.missing) == (3, 3, 0)
    assert ours.missing == -2


def test_a_provider_that_a_newer_one_has_followed_takes_no_new_partition(site: Site):
    older, site.provider = site.start(seconds=0.01), None
    newer = site.start(seconds=0.01)
    site.topic.add_partition()
    site.topic.write_items(4, 0, 1, 2)
    until(lambda: "clicks/4" in newer.lag("ads"), seconds=60)
    until(lambda: _has_ended(older), seconds=60)
    older.close()
    assert [site.train("clicks/4") for _ in range(3)] == ["clicks/4", "clicks/4", None]
    newer.check()


def test_how_often_queues_and_brokers_are_read(site: Site, monkeypatch: pytest.MonkeyPatch):
    site.topic.write_items(0, *range(601))
    site.topic.removed.add(600)
    provider = site.start()
    reads, ends = [], []
    read, end = CompactedQueue.read, CompactedQueue.end

    def counted_read(queue: CompactedQueue, offset: int, **choices: Any) -> Slice:
        if queue.name.endswith("/0"):
            reads.append(offset)
        return read(queue, offset, **choices)

    def counted_end(queue: CompactedQueue) -> int:
        ends.append(queue.name)
        return end(queue)

    monkeypatch.setattr(CompactedQueue, "read", counted_read)
    monkeypatch.setattr(CompactedQueue, "end", counted_end)
    work = provider.lease(Request("t", 0, "ads", batch=600, steps=1))
    assert work.batch.num_rows == 600
    assert reads == [0, 64, 128, 192, 256, 320, 384, 448, 512, 576]
    begun = time.monotonic()
    assert provider.lease(Request("u", 0, "ads"), wait_seconds=0.5) is None
    assert len(ends) <= 4 * (2 + time.monotonic() - begun)
    assert reads[10:12] == [600, 601]
    assert set(reads[11:]) == {601}  # where the client is: at another one it asks for the ends


def test_a_topic_that_was_made_again_is_refused(site: Site):
    site.topic.write_items(0, 0, 1, 2)
    site.start(seconds=0.01)
    assert site.train() == "clicks/0"
    request = Request("u", 0, "ads")
    assert site.provider.lease(request) is not None
    site.topic.id = "second"
    assert "was deleted and made again" in _refusal(site)
    with pytest.raises(PositionLostError, match="was deleted and made again"):
        site.provider.lease(request)  # the first answer was lost
    with pytest.raises(PositionLostError, match=r"must be first.*Received: second"):
        site.start()
    site.topic.id = "first"
    site.start()
    assert site.train() == "clicks/0"


@pytest.mark.parametrize("keeps", ["some rows", "not even the term"])
def test_rows_that_the_weights_have_lost_are_leased_again(
    site: Site, keeps: str, caplog: pytest.LogCaptureFixture
):
    """As after a power cut of a sync unit with `fsync: never`."""
    site.expires_seconds = 0.0  # so that it compares at each request
    site.topic.write_items(0, *range(6))
    kept = site.folder / "kept"
    if keeps == "not even the term":
        shutil.copytree(site.folder / "ads", kept)
    provider = site.start()
    assert site.train() == "clicks/0"
    if keeps == "some rows":
        shutil.copytree(site.folder / "ads", kept)
    assert [site.train() for _ in range(3)] == ["clicks/0", "clicks/0", None]
    site.model.close()
    shutil.rmtree(site.folder / "ads")
    kept.rename(site.folder / "ads")
    site.open_model()
    while site.train() is not None:
        pass
    assert site.counts(6) == [1.0] * 6
    assert "The weights of ads have lost rows of queue clicks/0" in caplog.text
    provider.check()


def _has_ended(provider: Provider) -> bool:
    try:
        provider.check()
    except NameTakenError as error:
        return "Queue clicks/0 has a newer provider" in str(error)
    return False


def _refusal(site: Site) -> str:
    """Returns the error of the provider's requests, which comes once it has looked at the topic."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            site.provider.has_rows(Request("t", 0, "ads"))
        except PositionLostError as error:
            return str(error)
    pytest.fail("No request was refused")


def test_a_damaged_file_of_ids(site: Site, caplog: pytest.LogCaptureFixture):
    site.start()
    ids = site.folder / "topics.json"
    ids.write_bytes(ids.read_bytes()[:-2] + b"x}")
    site.topic.id = "second"
    site.start()
    assert "Topics count as those that were trained" in caplog.text
    assert (site.folder / "damaged-topics.json").exists()
    assert TopicIds(ids).knows("clicks")


def test_a_topic_that_does_not_exist(tmp_path: Path, shm_directory: Path):
    site = Site(tmp_path, shm_directory, partitions=0)
    with pytest.raises(StreamError, match="does not exist"):
        site.start()
    site.close()
