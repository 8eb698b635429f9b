"""Rows under which trainers die cost one lease, and each row is accounted for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.support.stream.online_site import Site
from tfhybrid.cli.main import app
from tfhybrid.errors import ConfigError
from tfhybrid.stream.audit import QueueAccount, audit
from tfhybrid.stream.provider.deaths import DeathFile
from tfhybrid.stream.provider.set_aside import SetAside
from tfhybrid.stream.provider.work import GrantedWork, Request
from tfhybrid.stream.queues.queue import QueuePosition, Record
from tfhybrid.stream.stream_settings import StreamSettings
from tfhybrid.stream.weights.model_spec import ModelSpec, TableSpec

ROW = {"history": [2], "medium": "video", "label": 1.0}


class Stream:
    """A stream whose leases expire at once, of two rows each."""

    def __init__(self, folder: Path, memory: Path) -> None:
        self.number = 0
        self.site = Site(folder, memory, expires_seconds=0.0, lease={"rows": 2})
        self.model.open(ModelSpec({"item": TableSpec(1)}), [])

    @property
    def model(self):
        return self.site.unit.models["ads"]

    def put(self, *items: object) -> int:
        self.number += 1
        rows = [{**ROW, "item": item} for item in items]
        return self.site.provider.put("p", self.number, Record(json.dumps(rows).encode()))

    def lease(self, trainer: str) -> GrantedWork | None:
        self.number += 1
        return self.site.provider.lease(Request(trainer, self.number, "ads"))

    def apply(self, work: GrantedWork, trainer: str) -> None:
        keys, counts = np.unique(work.batch["item"].to_numpy(), return_counts=True)
        values = {"item": counts.astype(np.float32)[:, None]}
        self.model.apply(work.update("ads", trainer, 0, {"item": keys}, values))

    def train(self, work: GrantedWork, trainer: str) -> None:
        self.apply(work, trainer)
        self.site.provider.finish("ads", work.queue, work.lease.fence)

    def restart(self) -> None:
        """Replaces the provider by a new one."""
        self.site.provider.close()
        self.site.provider = self.site.settings.open_provider()

    def account(self) -> QueueAccount:
        (account,) = audit(self.site.settings)
        assert account.missing == 0, account
        return account

    def command(self, *options: object) -> str:
        arguments = ["stream", options[0], str(self.site.config), *map(str, options[1:])]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
        return result.output


@pytest.fixture
def stream(tmp_path: Path, shm_directory: Path) -> Iterator[Stream]:
    stream = Stream(tmp_path, shm_directory)
    yield stream
    stream.site.close()


def test_rows_under_which_three_trainers_die_are_set_aside(
    stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    stream.put(*range(6))
    for trainer in "abc":
        assert stream.lease(trainer).batch["item"].to_pylist() == [0, 1]
    work = stream.lease("d")  # the third has died
    assert work.batch["item"].to_pylist() == [2, 3]
    assert "Lease ads/video[0:0,0:2) IS SET ASIDE with its 2 rows" in caplog.text
    assert "3 trainers have died under it, a, b, c" in caplog.text
    stream.train(work, "d")
    account = stream.account()
    assert (account.put, account.trained, account.aside, account.waiting) == (6, 2, 2, 2)
    shown = json.loads(stream.command("top", "--count", 1, "--json"))
    assert shown["stream_set_aside_rows"] == {"ads/video[0:0,0:2)": 2.0}
    assert shown["stream_bad_rows"] == {"": 2.0}
    stream.train(stream.lease("e"), "e")
    assert stream.lease("e") is None
    text = stream.command("retry", "ads")
    assert text == "ads: 2 rows of queue video are leased again\n"
    assert stream.site.provider.stats()["stream_set_aside_rows"] == {}
    stream.train(stream.lease("e"), "e")
    account = stream.account()
    assert (account.put, account.trained, account.aside, account.waiting) == (6, 6, 0, 0)
    rows, _ = stream.model.read({"item": np.arange(6)})
    np.testing.assert_array_equal(rows["item"], 1.0)


def test_a_trainer_that_gives_its_rows_back_has_not_died(stream: Stream) -> None:
    stream.put(0, 1)
    for number in range(5):
        assert stream.lease(f"t{number}") is not None
        stream.site.provider.leave(f"t{number}", "ads")
    assert stream.lease("b") is not None
    assert stream.site.provider.stats()["stream_set_aside_rows"] == {}


def test_parts_of_the_rows_of_a_dead_trainer_remember_it(stream: Stream) -> None:
    stream.put(*range(4))
    work = stream.site.provider.lease(Request("a", 900, "ads", steps=4))
    assert work.lease.rows == 4
    for trainer in "bc":
        assert stream.lease(trainer).batch["item"].to_pylist() == [0, 1]
    assert stream.lease("d").batch["item"].to_pylist() == [2, 3]
    assert stream.lease("e").batch["item"].to_pylist() == [2, 3]  # d is the second to die
    assert stream.lease("f") is None
    assert stream.account().aside == 4


def test_a_new_provider_knows_what_is_set_aside(
    stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    stream.put(*range(4))
    for trainer in "abcd":
        last = stream.lease(trainer)
    assert last.batch["item"].to_pylist() == [2, 3]
    file = Path(stream.site.settings.folder) / "set-aside.json"
    content = file.read_bytes()
    for damage in (b"", b"{", content[:-1], content.replace(b"video", b"audio")):
        file.write_bytes(damage)
        stream.restart()
        assert "The leases set aside are given out again" in caplog.text
        assert file.with_name("damaged-set-aside.json").read_bytes() == damage
        assert stream.lease("e").batch["item"].to_pylist() == [0, 1]
    file.write_bytes(content)
    stream.restart()
    work = stream.lease("e")
    assert work.batch["item"].to_pylist() == [2, 3]
    stream.train(work, "e")
    assert stream.lease("e") is None
    assert stream.account().aside == 2
    stream.restart()
    assert stream.site.provider.retry("ads") == {"video": 2}
    stream.train(stream.lease("e"), "e")
    assert stream.account().trained == 4


def test_a_new_provider_knows_how_many_have_died(
    stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    stream.put(*range(6))
    work = stream.site.provider.lease(Request("a", 900, "ads", steps=4))
    assert work.lease.rows == 4
    trained = stream.lease("b")
    assert trained.batch["item"].to_pylist() == [0, 1]
    stream.train(trained, "b")
    for trainer in "bc":  # after each death a new provider
        assert stream.lease(trainer).batch["item"].to_pylist() == [2, 3]
        stream.lease("d")
        stream.restart()
    assert stream.lease("e").batch["item"].to_pylist() == [4, 5]
    assert "3 trainers have died under it, a, b, c" in caplog.text
    assert stream.account().aside == 2


def test_deaths_are_known_behind_rows_whose_trainer_died_when_they_were_applied(
    stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    stream.put(*range(4))
    assert stream.site.provider.lease(Request("a", 900, "ads", steps=4)).lease.rows == 4
    stream.apply(stream.lease("b"), "b")
    assert stream.lease("c").batch["item"].to_pylist() == [2, 3]
    stream.restart()
    for trainer in "de":
        assert stream.lease(trainer).batch["item"].to_pylist() == [2, 3]
    assert stream.lease("f") is None
    assert "3 trainers have died under it, a, d, e" in caplog.text
    assert stream.account().aside == 2


@pytest.mark.parametrize("damage", [b"", b"{", b"00000000\n[]"])
def test_a_damaged_file_of_deaths_is_named_and_replaced(
    stream: Stream, caplog: pytest.LogCaptureFixture, damage: bytes
) -> None:
    stream.put(0, 1)
    for trainer in "ab":
        assert stream.lease(trainer) is not None
    file = Path(stream.site.settings.folder) / "deaths.json"
    file.write_bytes(damage)
    stream.restart()
    assert "Deaths of trainers are counted from 0 again" in caplog.text
    for trainer in "abc":
        assert stream.lease(trainer) is not None
    assert file.read_bytes() != damage
    assert stream.lease("d") is None
    assert stream.account().aside == 2


def test_how_many_may_die(tmp_path: Path, stream: Stream) -> None:
    with pytest.raises(ConfigError, match="max_deaths must be at least 1"):
        SetAside(tmp_path / "aside.json", DeathFile(tmp_path / "deaths.json"), 0)
    config = stream.site.config
    config.write_text(config.read_text() + "max_deaths: 0\n")
    with pytest.raises(ConfigError, match=r"max_deaths must be positive\. Received: 0"):
        StreamSettings.read(config)
    config.write_text(config.read_text().replace("max_deaths: 0", "max_deaths: null"))
    stream.site.provider.close()
    stream.site.provider = StreamSettings.read(config).open_provider()
    stream.put(0, 1)
    for number in range(10):
        assert stream.lease(f"t{number}") is not None


def test_each_row_is_accounted_for(stream: Stream) -> None:
    assert stream.account() == QueueAccount("ads", "video", 0, 0, 0, 0, 0, 0)
    queue = stream.site.provider._queues["video"]._writer.queue
    lines = [{**ROW, "item": item} for item in (1, "bad", 2, None, 3)]
    queue.append([Record(json.dumps(lines).encode()), Record(b"nonsense"), Record(b"[]")])
    assert stream.put(4, 5) == 2
    account = stream.account()
    assert (account.put, account.trained, account.bad, account.waiting) == (8, 0, 0, 8)
    while (work := stream.lease("t")) is not None:
        stream.train(work, "t")
        account = stream.account()
        assert account.put == 8
    assert (account.trained, account.bad, account.waiting) == (5, 3, 0)
    assert "missing" in stream.command("audit")
    stream.model.save()
    stream.model.save()
    assert stream.account() == account


def test_a_row_that_was_lost_is_missing(stream: Stream) -> None:
    stream.put(*range(4))
    first, second = (stream.lease(each) for each in "ab")
    stream.site.provider.leave("b", "ads")
    assert first is not None
    assert second is not None
    work = stream.lease("c")
    keys = {"item": np.array([0], np.int64)}
    update = work.update("ads", "c", 0, keys, {"item": np.ones((1, 1), np.float32)})
    stream.model.apply(update.__class__(**{**vars(update), "rows": 1}))
    result = CliRunner().invoke(app, ["stream", "audit", str(stream.site.config), "--json"])
    assert result.exit_code == 1
    (account,) = json.loads(result.output)
    assert account["missing"] == 1
    letters = Path(stream.site.settings.folder) / "bad-rows.jsonl"
    assert letters.read_bytes() == b""
    assert QueuePosition(0, 2) == work.lease.end
