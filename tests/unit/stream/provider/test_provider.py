"""The provider over real queues and a real sync unit: every row reaches the weights once."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.support.stream.counting_trainer import update_of
from tfhybrid.errors import (
    ConfigError,
    DataError,
    LeaseRefusedError,
    NameTakenError,
    PositionLostError,
    StreamError,
)
from tfhybrid.stream.provider.deaths import DeathFile
from tfhybrid.stream.provider.lease_book import StalenessBound
from tfhybrid.stream.provider.lease_length import LeaseLength, Load
from tfhybrid.stream.provider.provider import Provider
from tfhybrid.stream.provider.routes import Routes
from tfhybrid.stream.provider.served_queue import LeaseRules, ServedQueue
from tfhybrid.stream.provider.served_queues import ServedQueues
from tfhybrid.stream.provider.set_aside import SetAside
from tfhybrid.stream.provider.work import GrantedWork, Request
from tfhybrid.stream.queues import rows
from tfhybrid.stream.queues.dead_letters import DeadLetters
from tfhybrid.stream.queues.log_queue import LogQueue
from tfhybrid.stream.queues.numbered_writer import NumberedWriter
from tfhybrid.stream.queues.queue import QueuePosition, Record
from tfhybrid.stream.queues.queue_reader import QueueReader
from tfhybrid.stream.queues.row_columns import RowColumns
from tfhybrid.stream.sync_unit.target_model import TargetModel
from tfhybrid.stream.trainer.leased_rows import LeasedRows
from tfhybrid.stream.weights.model_spec import ModelSpec, TableSpec

SCHEMA = pa.schema(
    [
        pa.field("item", pa.int64(), nullable=False),
        pa.field("medium", pa.string(), nullable=False),
        pa.field("slot", pa.string(), nullable=False),
    ]
)
COLUMNS = RowColumns.of(SCHEMA)
ROUTES = Routes(
    ("medium", "slot"),
    {"video/top": "video", "video/side": "video", "news/top": "news"},
    {"video-model": ["video"], "all": ["video", "news"]},
)
# A row adds one to the row of its item, so the table counts how often each was trained.
SPEC = ModelSpec({"item": TableSpec(1)})


class Site:
    """Queues, models and a provider in a folder; each may be found again by a new process."""

    def __init__(self, folder: Path, memory: Path) -> None:
        self.folder, self.memory = folder, memory
        self.models: dict[str, TargetModel] = {}
        self.provider: Provider | None = None

    def start_models(self) -> None:
        for model in self.models.values():
            model.close()
        for name in ROUTES.models:
            self.models[name] = TargetModel(name, self.folder / name, self.memory, fsync="never")
            self.models[name].open(SPEC, [])

    def start_provider(self, limit: int = 100, on_lost: str = "raise", **choices) -> Provider:
        if self.provider is not None:
            self.provider.close()
        letters = DeadLetters(self.folder / "bad.jsonl", limit=limit)
        queue_choices = {
            name: choices.pop(name)
            for name in ("segment_bytes", "retention_bytes")
            if name in choices
        }
        served = {
            name: choices.pop(name, default)
            for name, default in (("seconds", 60.0), ("max_behind", None))
        }
        staleness = choices.pop("staleness", None)
        bounds = {model: StalenessBound(staleness) for model in ROUTES.models}
        aside = SetAside(self.folder / "set-aside.json", DeathFile(self.folder / "deaths.json"))
        queues = {}
        for name in ("video", "news"):
            queue = LogQueue(self.folder / name, write=True, fsync="never", **queue_choices)
            weights = {m: self.models[m] for m, of in ROUTES.models.items() if name in of}
            queues[name] = ServedQueue(
                name,
                NumberedWriter(queue, self.folder / f"{name}.json"),
                QueueReader(queue, COLUMNS, letters, on_lost=on_lost),
                weights,
                LeaseRules(bounds, aside=aside, **served),
            )
        self.provider = Provider(ServedQueues(queues), COLUMNS, ROUTES, letters, **choices)
        return self.provider

    def close(self) -> None:
        if self.provider is not None:
            self.provider.close()
        for model in self.models.values():
            model.close()

    def train(self, model: str, work: GrantedWork, trainer: str = "t") -> bool:
        return self.models[model].apply(update_of(work, model, trainer))[1]

    def counts(self, model: str, items: int) -> np.ndarray:
        found, _ = self.models[model].read({"item": np.arange(items)})
        return found["item"][:, 0]


@pytest.fixture
def site(tmp_path: Path, shm_directory: Path) -> Iterator[Site]:
    site = Site(tmp_path, shm_directory)
    site.start_models()
    yield site
    site.close()


def _record(items: range, medium: str = "video", slot: str = "top") -> Record:
    found = [{"item": item, "medium": medium, "slot": slot} for item in items]
    return rows.encode(pa.RecordBatch.from_pylist(found, schema=SCHEMA))


def _request(number: int, **changes) -> Request:
    return Request(**{"trainer": "t", "number": number, "model": "video-model", **changes})


def test_rows_reach_the_queue_of_their_medium_and_slot_once(site: Site):
    provider = site.start_provider(length=LeaseLength(rows=1000))
    for _ in range(2):  # the producer sends everything again
        new = [
            provider.put("web", 0, _record(range(10), "video", "side")),
            provider.put("web", 1, _record(range(10, 15), "news", "top")),
            provider.put("app", 0, _record(range(20, 23), "video", "top")),
        ]
    assert new == [0, 0, 0]
    video = provider.lease(_request(0))
    assert video.batch["item"].to_pylist() == [*range(10), *range(20, 23)]
    assert provider.lease(_request(1)) is None
    news = provider.lease(_request(0, trainer="u", model="all", queue="news"))
    assert news.batch["item"].to_pylist() == list(range(10, 15))


def test_a_row_that_belongs_to_no_queue_is_a_bad_record(site: Site):
    provider = site.start_provider(limit=3)
    assert provider.put("web", 0, _record(range(3), "radio", "top")) == 0
    letters = (site.folder / "bad.jsonl").read_text()
    assert letters.count("No queue is declared for radio/top") == 3
    assert provider.put("web", 0, _record(range(3), "radio", "top")) == 0  # sent again
    with pytest.raises(DataError, match="At most 3 bad rows"):
        provider.put("web", 1, Record(b'{"item": 1}'))


def test_a_provider_that_another_one_has_followed_must_end(site: Site):
    provider = site.start_provider(length=LeaseLength(rows=4), seconds=0.0)
    provider.put("web", 0, _record(range(8)))
    assert provider.lease(_request(0)) is not None
    provider.check()
    site.models["video-model"].begin("video", QueuePosition(0, 0))
    assert provider.lease(_request(1)) is None  # trainers wait for the newer one
    assert provider.has_rows(_request(2))
    with pytest.raises(NameTakenError, match=r"Queue video has a newer provider.*in term 2"):
        provider.check()


def test_producers_wait_for_models_that_are_far_behind(site: Site):
    provider = site.start_provider(max_behind=2, length=LeaseLength(rows=1))
    for number in range(2):
        provider.put("web", number, _record(range(1)))
    with pytest.raises(StreamError, match="takes no more rows until its models are less than 2"):
        provider.put("web", 2, _record(range(1)))
    for model in ("video-model", "all"):
        provider.lease(_request(0, trainer=model, model=model, queue="video"))
    assert provider.put("web", 2, _record(range(1))) == 1
    assert provider.lag("all") == {"video": 2, "news": 0}


def test_which_queue_a_trainer_gets(site: Site):
    provider = site.start_provider(length=LeaseLength(rows=1), own={"t": "news"})
    for number in range(6):
        provider.put("web", number, _record(range(2), "news" if number % 3 else "video"))

    def taken(queue: str, numbers: range) -> list[str]:
        requests = (_request(number, model="all", queue=queue) for number in numbers)
        return [work.queue if (work := provider.lease(each)) else "none" for each in requests]

    assert taken("own", range(1)) == ["news"]
    assert taken("next", range(10, 14)) == ["video", "news", "video", "news"]
    assert taken("any", range(20, 22)) == ["news", "news"]
    assert taken("video", range(30, 33)) == ["video", "video", "none"]
    refused = [
        ({"queue": "news"}, r"'video-model' is trained from the queues \['video'\].*'news'"),
        ({"model": "audio"}, r"model must be one of .*Received: 'audio'"),
        ({"queue": "own", "trainer": "u"}, r"Trainer u requests its own queue, but has none"),
    ]
    for changes, message in refused:
        with pytest.raises(LeaseRefusedError, match=message):
            provider.lease(_request(99, **changes))
    with pytest.raises(ConfigError, match="queues of model 'm' must be among"):
        Routes(("medium",), {"video": "video"}, {"m": ["audio"]})


def test_a_request_that_comes_again_gets_the_same_lease(site: Site):
    provider = site.start_provider(length=LeaseLength(rows=4))
    provider.put("web", 0, _record(range(10)))
    first = provider.lease(_request(0))
    again = provider.lease(_request(0))
    assert (again.lease, again.batch.to_pylist()) == (first.lease, first.batch.to_pylist())
    assert provider.lease(_request(1)).batch["item"].to_pylist() == [4, 5, 6, 7]


def test_leases_are_as_long_as_the_load_warrants(site: Site):
    provider = site.start_provider(length=LeaseLength(seconds=2.0, first_rows=8))
    provider.put("web", 0, _record(range(1000)))
    loads = [Load(), Load(100.0), Load(25.0), Load(100.0, 1.5), Load(1.0)]
    lengths = [
        provider.lease(_request(i, load=load, batch=4)).lease.rows for i, load in enumerate(loads)
    ]
    assert lengths == [8, 200, 48, 48, 4]


def test_a_lease_that_expires_goes_back_to_the_head(site: Site):
    provider = site.start_provider(length=LeaseLength(rows=4), seconds=0.0)
    provider.put("web", 0, _record(range(8)))
    late = provider.lease(_request(0, trainer="slow"))
    applied = provider.lease(_request(0, trainer="dead"))
    # The lease of `slow` has expired; its rows are the head again.
    assert applied.batch["item"].to_pylist() == late.batch["item"].to_pylist()
    with pytest.raises(LeaseRefusedError, match="has expired"):
        site.train("video-model", late, "slow")
    # That of `dead` expires too, but its update is in the weights.
    assert site.train("video-model", applied, "dead")
    assert provider.lease(_request(0, trainer="quick")).batch["item"].to_pylist() == [4, 5, 6, 7]
    with pytest.raises(LeaseRefusedError, match="it is over"):
        provider.renew("slow", "video-model", "video", late.lease.fence)


def test_a_trainer_that_leaves_gives_its_rows_back(site: Site):
    provider = site.start_provider(length=LeaseLength(rows=4))
    provider.put("web", 0, _record(range(8)))
    provider.lease(_request(0))
    provider.leave("t", "video-model")
    assert provider.lease(_request(0, trainer="u")).batch["item"].to_pylist() == [0, 1, 2, 3]


def test_staleness_holds_leases_back(site: Site):
    provider = site.start_provider(length=LeaseLength(rows=1), staleness=1)
    provider.put("web", 0, _record(range(8)))
    first, second = (provider.lease(_request(0, trainer=each)) for each in "ab")
    assert provider.lease(_request(0, trainer="c")) is None
    provider.finish("video-model", "video", second.lease.fence)
    assert provider.lease(_request(1, trainer="c"), wait_seconds=0.05) is None
    provider.finish("video-model", "video", first.lease.fence)
    assert provider.lease(_request(2, trainer="c")) is not None


@pytest.mark.parametrize("staleness", [0, 1])
def test_staleness_is_bounded_over_all_queues_of_a_model(site: Site, staleness: int):
    """An update is never applied after more than so many others, whatever queues they are from."""
    dice = random.Random(staleness)
    provider = site.start_provider(length=LeaseLength(rows=1), staleness=staleness)
    for number in range(30):
        provider.put("web", number, _record(range(number, number + 1), "video"))
        provider.put("app", number, _record(range(30 + number, 31 + number), "news"))
    held: dict[str, tuple[GrantedWork, int]] = {}  # with the number of updates before its grant
    updates = 0
    for number in range(2000):
        trainer, queue = dice.choice("abcd"), dice.choice(["video", "news", "any", "next"])
        if trainer not in held:
            work = provider.lease(_request(number, trainer=trainer, model="all", queue=queue))
            assert len(held) <= staleness or work is None
            if work is not None:
                held[trainer] = work, updates
        elif dice.random() < 0.5:
            work, before = held.pop(trainer)
            assert updates - before <= staleness
            site.train("all", work, trainer)
            provider.finish("all", work.queue, work.lease.fence)
            updates += 1
    assert updates == 60
    assert provider.lease(_request(0, trainer="u", queue="video")) is not None  # another model


def test_a_lease_that_has_expired_holds_no_other_queue_back(site: Site):
    provider = site.start_provider(length=LeaseLength(rows=1), staleness=0, seconds=0.0)
    provider.put("web", 0, _record(range(1)))
    provider.put("web", 1, _record(range(1, 2), "news"))
    dead = provider.lease(_request(0, trainer="dead", model="all", queue="video"))
    news = _request(0, trainer="u", model="all", queue="news")
    assert provider.lease(news) is None  # looks at the other queues for the next request
    assert provider.lease(dataclasses.replace(news, number=1)) is not None
    with pytest.raises(LeaseRefusedError, match="has expired"):
        site.train("all", dead, "dead")


def test_rows_that_staleness_holds_back_are_left(site: Site):
    provider = site.start_provider(length=LeaseLength(rows=1), staleness=0)
    provider.put("web", 0, _record(range(2)))
    first = provider.lease(_request(0, trainer="a"))
    other = _request(0, trainer="b")
    assert provider.lease(other) is None
    assert provider.has_rows(other)
    provider.finish("video-model", "video", first.lease.fence)
    provider.lease(_request(1, trainer="a"))
    assert not provider.has_rows(other)  # the last row is leased
    with pytest.raises(LeaseRefusedError, match="model must be one of"):
        provider.has_rows(_request(0, model="audio"))


@pytest.mark.parametrize(
    ("columns", "queues", "message"),
    [
        ([], {"": "video"}, "at least one column"),
        ("medium", {"video": "video"}, "a list of at least one column"),
        (["medium"], None, "must be mappings"),
        (["medium", "slot"], {"video/top": "video", "video": "video"}, r"joined by.*\['video'\]"),
    ],
)
def test_routes_by_which_no_row_finds_a_queue_are_refused(columns, queues, message: str):
    with pytest.raises(ConfigError, match=message):
        Routes(columns, queues, {"m": ["video"]})


@pytest.mark.parametrize("name", ["", "a\0b", "\udc00", "../a", ".."])
def test_names_that_no_folder_can_have_are_refused(name: str):
    for queue, model in ((name, "m"), ("video", name)):
        with pytest.raises(ConfigError, match="text in UTF-8 without zeros and"):
            Routes(["medium"], {"video": queue}, {model: [queue]})


def test_numbers_are_values_of_routes():
    routes = Routes(["slot"], {7: "first", "8": "second"}, {"m": ["first", "second"]})
    dealt, lost = routes.deal(pa.record_batch({"slot": [8, 7, 9]}))
    assert {name: rows["slot"].to_pylist() for name, rows in dealt.items()} == {
        "second": [8],
        "first": [7],
    }
    assert lost.tolist() == [2]


def test_bad_rows_in_a_queue_are_passed_over(site: Site):
    queue = LogQueue(site.folder / "video", write=True)
    queue.append([Record(b"nonsense"), Record(b"{}"), Record(b'[{"item": 1}, {"item": "x"}]')])
    queue.close()
    provider = site.start_provider(length=LeaseLength(rows=4))
    assert provider.lease(_request(0)) is None
    assert site.models["video-model"].standing()["video"][0] == (3, 0)
    provider.put("web", 0, _record(range(2)))
    assert provider.lease(_request(1)).batch["item"].to_pylist() == [0, 1]


@pytest.mark.parametrize("on_lost", ["raise", "skip"])
def test_rows_that_retention_has_removed(site: Site, on_lost: str):
    provider = site.start_provider(
        on_lost=on_lost, segment_bytes=1, retention_bytes=100, length=LeaseLength(rows=1000)
    )
    for number in range(5):
        provider.put("web", number, _record(range(number, number + 1)))
    if on_lost == "raise":
        with pytest.raises(PositionLostError, match="offset 0: retention has removed"):
            provider.lease(_request(0))
        return
    work = provider.lease(_request(0))
    assert work.batch["item"].to_pylist() == [4]
    assert site.train("video-model", work)
    assert site.models["video-model"].standing() == {"video": ((5, 0), 0)}
    with pytest.raises(ConfigError, match="'raise' or 'skip'"):
        QueueReader(None, COLUMNS, None, on_lost="ignore")


@pytest.mark.parametrize("seed", range(8))
def test_every_row_is_in_the_weights_once_whoever_dies_when(  # noqa: C901 - a die of acts
    site: Site, seed: int
):
    """Producers send again, trainers die before and after an update, all others restart."""
    dice = random.Random(seed)
    items = 400
    provider = site.start_provider(seconds=0.0 if seed % 2 else 60.0)
    held: list[tuple[str, str, GrantedWork]] = []
    sent = request = 0
    while sent < items or any(
        site.counts(model, items).sum() < items for model in ("video-model", "all")
    ):
        request += 1
        act = dice.random()
        if act < 0.2 and sent < items:
            count = min(dice.randint(1, 30), items - sent)
            for _ in range(dice.randint(1, 2)):
                provider.put("web", sent, _record(range(sent, sent + count)))
            sent += count
        elif act < 0.6:
            trainer, model = dice.choice("abc"), dice.choice(["video-model", "all"])
            batch = dice.choice([1, 7, 16])
            work = provider.lease(
                _request(
                    request,
                    trainer=trainer,
                    model=model,
                    load=Load(dice.choice([0, 5])),
                    batch=batch,
                )
            )
            if work is not None:
                held.append((trainer, model, work))
        elif act < 0.9 and held:
            trainer, model, work = held.pop(dice.randrange(len(held)))
            try:
                site.train(model, work, trainer)
            except LeaseRefusedError:
                continue
            if dice.random() < 0.5:  # else it died before it could say so
                provider.finish(model, work.queue, work.lease.fence)
        elif act < 0.93:
            held = []
            for trainer in "abc":
                for model in ("video-model", "all"):
                    provider.leave(trainer, model)
        elif act < 0.96:
            provider = site.start_provider(seconds=0.0 if seed % 2 else 60.0)
        elif act < 0.98:
            dice.choice([*site.models.values()]).save()
        else:
            site.start_models()
            provider = site.start_provider(seconds=0.0 if seed % 2 else 60.0)
    for model in ("video-model", "all"):
        np.testing.assert_array_equal(site.counts(model, items), np.ones(items))
        assert site.models[model].standing()["video"][1] == 0


def test_a_trainer_that_reads_its_leases_itself(site: Site):
    """It gets the provider's rows, bad ones left out; from another queue, an error."""
    provider = site.start_provider(length=LeaseLength(rows=4))
    queue = LogQueue(site.folder / "video")
    provider.put("web", 0, _record(range(3)))
    provider.put("web", 1, _record(range(3, 9)))
    leased = LeasedRows(lambda name: LogQueue(site.folder / name), COLUMNS)
    for number in range(3):
        work = provider.lease(_request(number))
        assert leased.read(work.queue, work.lease).equals(work.batch)
    assert queue.end() == 2
    provider.put("web", 2, _record(range(2), "news"))
    elsewhere = LeasedRows(lambda _: LogQueue(site.folder / "news"), COLUMNS)
    with pytest.raises(LeaseRefusedError, match=r"has 4 rows. Received: 2 in .*news"):
        elsewhere.read("video", dataclasses.replace(work.lease, rows=4, begin=QueuePosition(0, 0)))
