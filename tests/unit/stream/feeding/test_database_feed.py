"""`tfhybrid stream feed --database`: each row of SQLite is put once, and each bad row is told."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support.stream.broker import ROOT
from tests.support.stream.online_site import Site
from tests.support.stream.queue_contract import read_all
from tfhybrid.cli.main import app
from tfhybrid.errors import DataError
from tfhybrid.stream.feeding.database import Database
from tfhybrid.stream.feeding.database_feed import DatabaseFeed
from tfhybrid.stream.feeding.source_producer import SourceProducer
from tfhybrid.stream.queues import rows

COLUMNS = {"item": "int64", "price": "float32", "medium": "string", "seen": "int64?"}
QUERY = "SELECT id, item, price, medium, seen FROM clicks"


@pytest.fixture
def site(tmp_path: Path, shm_directory: Path) -> Iterator[Site]:
    with closing(Site(tmp_path, shm_directory, columns=COLUMNS, media=("video", "news"))) as site:
        yield site


def shop(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, timeout=30)
    connection.execute(
        "CREATE TABLE clicks (id INTEGER PRIMARY KEY, item, price, medium, seen, at)"
    )
    return connection


def insert(connection: sqlite3.Connection, items: range, **values: Any) -> None:
    row = {"price": 0.5, "medium": "tv", "seen": None, **values}
    names = ", ".join(row)
    marks = ", ".join(f":{name}" for name in row)
    statement = f"INSERT INTO clicks (item, {names}) VALUES (:item, {marks})"
    connection.executemany(statement, [{"item": item, **row} for item in items])


def arguments(site: Site, *databases: object, query: str = QUERY, after: str = "id") -> list[str]:
    options = [f"--database={each}" for each in databases]
    options += ["--query", query, "--after", after]
    return ["stream", "feed", str(site.config), "video", *options]


def feed(site: Site, *databases: object, more: tuple[str, ...] = ("--lag=0",), **choices: Any):
    return CliRunner().invoke(app, [*arguments(site, *databases, **choices), *more])


def stored(site: Site, queue: str = "video") -> list[dict[str, Any]]:
    records = read_all(site.queue(queue))
    batches = (rows.decode(record, site.settings.row_columns).batch for record in records)
    return [row for batch in batches for row in batch.to_pylist()]


def items(site: Site) -> list[int]:
    return [row["item"] for row in stored(site)]


def letters(site: Site) -> list[dict[str, Any]]:
    file = Path(site.settings.folder) / "bad-rows.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_new_rows_are_put_once_in_their_order(site: Site, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    with closing(shop(tmp_path / "shop.db")) as connection:
        for new in (range(250), range(250, 251), range(251, 251), range(251, 400)):
            insert(connection, new)
            result = feed(site, url, more=("--lag=0", "--rows=100"))
            assert result.exit_code == 0, result.exception
            words = f"{len(new)} new rows" if new else "begins at the row after id 251"
            assert words in result.stdout
    assert items(site) == [*range(400)]
    assert stored(site)[0] == {"item": 0, "price": 0.5, "medium": "tv", "seen": None}
    assert stored(site, "news") == []  # the named queue gets all rows, whatever the routes say


BAD = {
    "item": [None, "seven", 1.5, 2**63 - 1, b"\xff"],
    "price": [float("inf"), "cheap", 1e39],
    "medium": [None, 7, b"\xff\xfe"],
    "seen": ["", 0.5],
}


@pytest.mark.parametrize("number", [1, 3, 100])
def test_a_bad_row_costs_one_row(site: Site, tmp_path: Path, number: int) -> None:
    with closing(shop(tmp_path / "shop.db")) as connection:
        bad = 0
        for column, values in BAD.items():
            for value in values:
                insert(connection, range(10, 12))
                if column == "item":
                    connection.execute(
                        "INSERT INTO clicks (item, price, medium) VALUES (?, 1, 'tv')", (value,)
                    )
                else:
                    insert(connection, range(1), **{column: value})
                bad += value != 2**63 - 1
        # Text that is no UTF-8, as other programs write it.
        connection.execute("INSERT INTO clicks (item, medium) VALUES (1, CAST(x'ff41' AS TEXT))")
        bad += 1
        insert(connection, range(5))
    result = feed(site, f"sqlite:///{tmp_path}/shop.db", more=("--lag=0", f"--rows={number}"))
    assert result.exit_code == 0, result.exception
    good = [10, 11] * sum(map(len, BAD.values()))
    assert sorted(items(site)) == sorted([*good, 2**63 - 1, *range(5)])
    assert len(letters(site)) == bad
    assert {each["queue"] for each in letters(site)} == {f"producer sqlite:///{tmp_path}/shop.db"}


def test_rows_that_are_all_bad_are_told_once(site: Site, tmp_path: Path) -> None:
    with closing(shop(tmp_path / "shop.db")) as connection:
        for _ in range(2):
            insert(connection, range(3), price="cheap")
            for _ in range(2):
                assert feed(site, f"sqlite:///{tmp_path}/shop.db").exit_code == 0
    assert items(site) == []
    assert len(letters(site)) == 6


def test_each_database_has_its_own_position(site: Site, tmp_path: Path) -> None:
    urls = [f"eu=sqlite:///{tmp_path}/eu.db", f"us=sqlite:///{tmp_path}/us.db"]
    with closing(shop(tmp_path / "eu.db")) as eu, closing(shop(tmp_path / "us.db")) as us:
        insert(eu, range(3))
        insert(us, range(100, 101))
        assert "eu: 3 new rows" in feed(site, *urls).stdout
        insert(us, range(101, 103))
        result = feed(site, *urls)
        assert "us: begins at the row after id 1\n" in result.stdout
        assert "us: 2 new rows" in result.stdout
        (tmp_path / "moved.db").write_bytes((tmp_path / "eu.db").read_bytes())
        moved = f"eu=sqlite:///{tmp_path}/moved.db"
        assert "eu: begins at the row after id 3\n" in feed(site, moved).stdout
    assert sorted(items(site)) == [0, 1, 2, 100, 101, 102]


def test_a_database_that_is_down_stops_no_other(site: Site, tmp_path: Path) -> None:
    down = "down=postgresql://me:secret@127.0.0.1:1/shop"
    with closing(shop(tmp_path / "shop.db")) as connection:
        insert(connection, range(3))
    result = feed(site, down, f"sqlite:///{tmp_path}/shop.db")
    assert result.exit_code == 1
    assert "down: " in result.stderr
    assert "Connection refused" in result.stderr
    assert "secret" not in result.output
    assert items(site) == [0, 1, 2]


def test_another_query_is_refused_naming_both(site: Site, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    other = f"{QUERY} WHERE item > 4"
    with closing(shop(tmp_path / "shop.db")) as connection:
        insert(connection, range(3))
        assert feed(site, url).exit_code == 0
        insert(connection, range(3, 7))
        for choices in ({"query": other}, {"after": "item"}):
            refused = feed(site, url, **choices)
            assert refused.exit_code == 1
            assert f"another query: '{QUERY}' --after id." in refused.stderr.replace("\n", " ")
            assert f"Received: '{choices.get('query', QUERY)}'" in refused.stderr
            assert ("--new-query" in refused.stderr) is ("query" in choices)
        assert feed(site, url, after="item", more=("--new-query",)).exit_code == 1
        assert feed(site, url, query=other, more=("--lag=0", "--new-query")).exit_code == 0
        assert items(site) == [0, 1, 2, 5, 6]
        assert feed(site, url, query=other).exit_code == 0
    assert items(site) == [0, 1, 2, 5, 6]


def test_options_that_do_not_fit_are_refused(site: Site, tmp_path: Path) -> None:
    with closing(shop(tmp_path / "shop.db")) as connection:
        insert(connection, range(3))
    url = f"sqlite:///{tmp_path}/shop.db"
    command = ["stream", "feed", str(site.config)]
    for words, message in (
        ([*command, "video", "--database", url, "--query", QUERY], "needs the name of one queue"),
        ([*command, "a.jsonl", "--query", QUERY], "need --database"),
        (arguments(site, url, url), "must have a name of its own"),
        (arguments(site, url, after="nothing"), r"must return the columns \['nothing'\] once"),
        (arguments(site, url, query="SELECT 1 FROM nowhere"), "no such table: nowhere"),
        (
            [*command, "radio", *arguments(site, url)[4:]],
            r"must be one of \['news', 'video'\]. Received: 'radio'",
        ),
    ):
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 1
        assert re.search(message, result.stderr), result.stderr
    assert items(site) == []


def opened(site: Site, path: Path, after: str) -> DatabaseFeed:
    database = Database(f"sqlite:///{path}", "SELECT * FROM clicks", after, [*COLUMNS])
    producer = SourceProducer(site.provider, database.name, "video")
    return DatabaseFeed(database, producer, count=10)


def at_once(_: int) -> None:
    """Does not wait before a record."""


def test_a_row_that_becomes_visible_late_is_not_lost(site: Site, tmp_path: Path) -> None:
    """A writer commits an equal and a smaller value after a greater one, within the lag."""
    with closing(shop(tmp_path / "shop.db")) as connection:
        feed = opened(site, tmp_path / "shop.db", "at")
        insert(connection, range(1), at=10)
        newest = feed.newest()
        for item, at in ((1, 9), (2, 10), (3, 11)):
            insert(connection, range(item, item + 1), at=at)
        assert feed.take(newest, at_once).new == 3
        assert sorted(items(site)) == [0, 1, 2]
        assert feed.take(feed.newest(), at_once).new == 1
    assert sorted(items(site)) == [0, 1, 2, 3]


def test_a_row_that_comes_too_late_is_told(
    site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(shop(tmp_path / "shop.db")) as connection:
        feed = opened(site, tmp_path / "shop.db", "at")
        insert(connection, range(1), at=None)
        insert(connection, range(3), at=10)
        feed.take(feed.newest(), at_once)
        assert "1 rows have no at. They are not fed until they have one" in caplog.text
        insert(connection, range(3, 5), at=9)
        assert feed.newest() is None
    assert "2 rows with at up to 10 appeared after those rows were read" in caplog.text


@pytest.mark.parametrize("value", [float("inf"), b"bytes"])
def test_a_value_that_nothing_can_follow_is_refused(site: Site, tmp_path: Path, value: Any) -> None:
    with closing(shop(tmp_path / "shop.db")) as connection:
        insert(connection, range(1), at=value)
        feed = opened(site, tmp_path / "shop.db", "at")
        with pytest.raises(DataError, match="at must have integers, finite numbers, text, times"):
            feed.take(feed.newest(), at_once)
    assert items(site) == []


def test_two_feeds_of_a_database_lose_no_row(site: Site, tmp_path: Path) -> None:
    """The second one knows less than the queue has, and is refused."""
    with closing(shop(tmp_path / "shop.db")) as connection:
        one, other = (opened(site, tmp_path / "shop.db", "id") for _ in range(2))
        insert(connection, range(3))
        assert one.take(one.newest(), at_once).new == 3
        insert(connection, range(3, 5))
        with pytest.raises(DataError, match="Is another process feeding the same source"):
            other.take(other.newest(), at_once)
        assert one.take(one.newest(), at_once).new == 2
    assert items(site) == [0, 1, 2, 3, 4]


def test_each_row_is_put_once_through_kills(site: Site, tmp_path: Path) -> None:
    dice = random.Random(7)
    command = [sys.executable, "-m", "tfhybrid.cli"]
    command += arguments(site, f"sqlite:///{tmp_path}/shop.db")
    command += ["--lag=0", "--every=0.01", "--rows=7"]
    with closing(shop(tmp_path / "shop.db")) as connection:
        numbers = itertools.count(0, 50)
        for _ in range(6):
            process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
            until = time.monotonic() + 1.0 + dice.random()
            while time.monotonic() < until:
                first = next(numbers)
                insert(connection, range(first, first + 50))
                time.sleep(0.01)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        assert feed(site, f"sqlite:///{tmp_path}/shop.db").exit_code == 0
    assert items(site) == [*range(next(numbers))]
