"""Rows of a real PostgreSQL: each is put once, whatever is killed and however transactions end."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from typer.testing import CliRunner

from tests.support.stream.broker import ROOT
from tests.support.stream.online_site import Site
from tests.support.stream.postgres import Postgres
from tests.support.stream.queue_contract import read_all
from tfhybrid.cli.main import app
from tfhybrid.errors import ConfigError, DataError
from tfhybrid.stream.feeding.database import Database
from tfhybrid.stream.queues import rows

KILLS = int(os.environ.get("TFHYBRID_STREAM_KILLS", "10"))
COLUMNS = {"item": "int64", "price": "float32", "medium": "string", "seen": "list<int64>"}
TABLE = """
CREATE TABLE clicks (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT now(),
    item bigint,
    price numeric(10, 2) DEFAULT 0.5,
    rate real DEFAULT 0.1,
    medium text DEFAULT 'tv',
    seen bigint[] DEFAULT '{}'
)
"""
QUERY = "SELECT id, at, rate, item, price, medium, seen FROM clicks"


@pytest.fixture
def site(tmp_path: Path, shm_directory: Path) -> Iterator[Site]:
    with closing(Site(tmp_path, shm_directory, columns=COLUMNS)) as site:
        yield site


@pytest.fixture
def clicks(postgres: Postgres) -> Iterator[psycopg.Connection]:
    with psycopg.connect(**postgres.address(), autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS clicks")
        connection.execute(TABLE)
        yield connection


def url(postgres: Postgres) -> str:
    address = postgres.address()
    password = quote(str(address["password"]), safe="")
    return f"shop=postgresql://postgres:{password}@127.0.0.1:{address['port']}/postgres"


def words(site: Site, postgres: Postgres, *options: str, after: str = "id") -> list[str]:
    source = ["--database", url(postgres), "--query", QUERY, "--after", after]
    return ["stream", "feed", str(site.config), "video", *source, *options]


def start(site: Site, postgres: Postgres, *options: str, **pipes: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-u", "-m", "tfhybrid.cli", *words(site, postgres, *options)]
    return subprocess.Popen(command, cwd=ROOT, text=True, **pipes)


def run(site: Site, postgres: Postgres, *options: str, after: str = "id") -> None:
    result = CliRunner().invoke(app, words(site, postgres, *options, after=after))
    assert result.exit_code == 0, result.exception


def items(site: Site) -> list[int]:
    found: list[int] = []
    for record in read_all(site.queue("video")):
        found += rows.decode(record, site.settings.row_columns).batch["item"].to_pylist()
    return found


@pytest.mark.parametrize("after", ["id", "at", "medium", "price"])
def test_types_of_columns(
    site: Site, postgres: Postgres, clicks: psycopg.Connection, after: str
) -> None:
    for new in (range(100), range(100, 130)):
        for item in new:
            clicks.execute(
                "INSERT INTO clicks (item, price, medium, seen) VALUES (%s, %s, %s, %s)",
                (item, item / 4, f"{item:05}", [item, 1]),
            )
        run(site, postgres, "--lag=0", "--rows=7", after=after)
    assert items(site) == [*range(130)]
    record = read_all(site.queue("video"))[-1]
    last = rows.decode(record, site.settings.row_columns).batch.to_pylist()[-1]
    assert last == {"item": 129, "price": 32.25, "medium": "00129", "seen": [129, 1]}


def test_a_value_that_python_cannot_hold_is_refused(
    postgres: Postgres, clicks: psycopg.Connection
) -> None:
    """A float32 comes as 0.1, which the database finds smaller than what it has."""
    clicks.execute("INSERT INTO clicks (item) VALUES (1)")
    database = Database(url(postgres), QUERY, "rate", ["item"])
    for value, newest in ((None, database.newest(None)), (0.1, 1.0)):
        with pytest.raises(DataError, match=r"Received: 0\.1, which the database finds less than"):
            database.rows(value, newest, 10)
    database.close()


def test_a_column_that_is_there_twice_is_refused(
    postgres: Postgres, clicks: psycopg.Connection
) -> None:
    database = Database(url(postgres), "SELECT *, 1 AS item FROM clicks", "id", ["item"])
    with pytest.raises(ConfigError, match=r"must return the columns \['item'\] once"):
        database.newest(None)
    database.close()


def test_a_server_that_stops_is_waited_for(
    site: Site, postgres: Postgres, clicks: psycopg.Connection
) -> None:
    clicks.execute("INSERT INTO clicks (item) VALUES (0)")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    feeding = start(site, postgres, "--lag=0", "--every=0.1", **pipes)
    assert feeding.stdout is not None
    assert feeding.stderr is not None
    assert "begins at the first row" in feeding.stdout.readline()
    assert "1 new rows" in feeding.stdout.readline()
    postgres.stop()
    assert "Trying again in 0.1 s" in feeding.stderr.readline()
    postgres.start()
    with psycopg.connect(**postgres.address(), autocommit=True) as connection:
        connection.execute("INSERT INTO clicks (item) VALUES (1)")
    assert "1 new rows" in feeding.stdout.readline()
    feeding.kill()
    output, errors = feeding.communicate()
    assert postgres.password not in output + errors
    assert items(site) == [0, 1]


@pytest.mark.timeout(600)
def test_each_row_is_put_once_through_kills(
    site: Site, postgres: Postgres, clicks: psycopg.Connection
) -> None:
    """Writers commit out of order, and roll back, while the feed is killed."""
    ended = threading.Event()
    committed: list[int] = []

    def write(number: int) -> None:
        dice = random.Random(number)
        item = number
        with psycopg.connect(**postgres.address()) as connection:
            while not ended.is_set():
                begun = time.monotonic()
                items = [item + 4 * i for i in range(dice.randrange(1, 20))]
                for each in items:
                    connection.execute("INSERT INTO clicks (item) VALUES (%s)", (each,))
                time.sleep(dice.random() * 0.05)
                item = items[-1] + 4
                # A transaction that is longer than the lag may not commit.
                if dice.random() < 0.2 or time.monotonic() > begun + 0.15:
                    connection.rollback()
                    continue
                connection.commit()
                committed.extend(items)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    dice = random.Random(7)
    for _ in range(KILLS):
        feeding = start(site, postgres, "--lag=1", "--every=0.01", "--rows=20")
        time.sleep(1.5 + dice.random())
        feeding.kill()
        feeding.wait()
    ended.set()
    for writer in writers:
        writer.join()
    run(site, postgres, "--lag=0")
    assert sorted(items(site)) == sorted(committed)
    ids = clicks.execute("SELECT count(*), max(id) FROM clicks").fetchone()
    assert ids is not None
    assert ids[1] > ids[0]  # some were rolled back
