"""Rows of a database by an increasing column, as the database itself orders and compares them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tfhybrid.errors import ConfigError, StreamError, UnsupportedError
from tfhybrid.stream.feeding.database import Database

QUERY = "SELECT * FROM clicks"


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE clicks (id INTEGER PRIMARY KEY, at, item, medium)")
        yield connection


def database(tmp_path: Path, query: str = QUERY, after: str = "id") -> Database:
    return Database(f"sqlite:///{tmp_path}/shop.db", query, after, ("item", "medium"))


def insert(shop: sqlite3.Connection, *rows: tuple[Any, Any]) -> None:
    shop.executemany("INSERT INTO clicks (at, item, medium) VALUES (?, ?, 'tv')", rows)


def read(of: Database, count: int, value: Any = None) -> list[list[int]]:
    """Reads all rows after a value; returns the items of each piece."""
    pieces = []
    newest = of.newest(value)
    while newest is not None:
        rows = of.rows(value, newest, count)
        if rows is None:
            break
        pieces.append([item for item, _ in rows.rows])
        value = rows.last
    of.close()
    return pieces


def test_rows_of_the_same_value_stay_together(tmp_path: Path, shop: sqlite3.Connection) -> None:
    times = [1, 1, 2, 2, 2, 2, 3, 5, 5]
    insert(shop, *((time, item) for item, time in enumerate(times)))
    assert read(database(tmp_path, after="at"), 3) == [[0, 1, 2, 3, 4, 5], [6, 7, 8]]
    assert read(database(tmp_path, after="at"), 1, 2) == [[6], [7, 8]]


def test_the_order_of_the_query_does_not_matter(tmp_path: Path, shop: sqlite3.Connection) -> None:
    insert(shop, *((time, time) for time in (3, 1, 2, 5, 4)))
    for order in ("", "ORDER BY at DESC", "-- no order", ";"):
        of = database(tmp_path, f"{QUERY} {order}", "at")
        assert read(of, 2) == [[1, 2], [3, 4], [5]]


@pytest.mark.parametrize(
    "values",
    [
        ["2026-11-27 09:30:38", "2026-11-27 09:30:38.5", "2026-11-28"],
        ["A", "b", "c", "d"],
        [-1.5, 0.1, 0.2, 1e300],
        [-(2**63), -1, 0, 2**63 - 1],
    ],
    ids=["times", "texts", "floats", "integers"],
)
def test_values_of_any_order_are_a_position(
    tmp_path: Path, shop: sqlite3.Connection, values: list[Any]
) -> None:
    insert(shop, *((value, item) for item, value in enumerate(values)))
    for done, value in enumerate(values):
        pieces = read(database(tmp_path, after="at"), 1, value)
        assert pieces == [[item] for item in range(done + 1, len(values))]


def test_texts_that_the_database_finds_equal_stay_together(
    tmp_path: Path, shop: sqlite3.Connection
) -> None:
    insert(shop, ("b", 2), ("B", 3), ("a", 0), ("A", 1), ("c", 4))
    of = database(tmp_path, "SELECT at COLLATE NOCASE AS at, item, medium FROM clicks", "at")
    assert [sorted(piece) for piece in read(of, 1)] == [[0, 1], [2, 3], [4]]


def test_rows_without_a_value_are_counted_and_not_read(
    tmp_path: Path, shop: sqlite3.Connection
) -> None:
    insert(shop, (None, 0), (1, 1), (None, 2))
    of = database(tmp_path, after="at")
    assert of.nulls() == 2
    assert read(of, 5) == [[1]]


def test_text_of_the_query_is_taken_as_it_is(tmp_path: Path, shop: sqlite3.Connection) -> None:
    insert(shop, (":at", 1), ("%s", 2), ("a:b", 3))
    query = "SELECT id, item, medium FROM clicks WHERE at IN (':at', '%s', 'a:b')"
    assert read(database(tmp_path, query), 2) == [[1, 2], [3]]


def test_a_missing_column_is_named(tmp_path: Path, shop: sqlite3.Connection) -> None:
    insert(shop, (1, 1))
    with pytest.raises(ConfigError, match=r"must return the columns \['medium'\] once"):
        database(tmp_path, "SELECT id, item FROM clicks").newest(None)
    of = database(tmp_path)
    assert of.newest(None) == 1
    shop.execute("ALTER TABLE clicks RENAME COLUMN item TO article")
    with pytest.raises(ConfigError, match=r"must return the columns \['item'\] once. Received: \["):
        of.newest(None)


def test_a_database_that_is_busy_is_a_stream_error(
    tmp_path: Path, shop: sqlite3.Connection
) -> None:
    of = Database(f"sqlite:///{tmp_path}/shop.db?timeout=0.01", QUERY, "id", ("item", "medium"))
    shop.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StreamError, match=r"shop\.db: database is locked"):
        of.newest(None)
    shop.execute("COMMIT")
    assert of.newest(None) is None


def test_a_file_that_does_not_exist_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"SQLite database '.*shop.db' must exist"):
        database(tmp_path)
    assert not (tmp_path / "shop.db").exists()


SECRET = "pa:ss/w@rd"
QUOTED = "pa%3Ass%2Fw%40rd"


def test_no_error_shows_a_password() -> None:
    for url in (f"postgresql://me:{SECRET}:5432:5432/x", f"me:{SECRET}"):
        with pytest.raises(ConfigError, match="must be a URL of SQLAlchemy") as raised:
            Database(url, QUERY, "id", ())
        assert "pa:ss" not in str(raised.value)
    url = f"postgresql://me:{QUOTED}@127.0.0.1:1/shop?application_name=x"
    of = Database(url, QUERY, "id", ())
    assert of.name == "postgresql://127.0.0.1:1/shop"
    assert Database(f"eu={url}", QUERY, "id", ()).name == "eu"
    with pytest.raises(StreamError, match="Connection refused") as refused:
        of.newest(None)
    shown = of._shown(ValueError(f"connect {SECRET} {QUOTED}"))
    assert shown == "connect *** ***"
    assert SECRET not in f"{refused.value} {refused.value.__cause__}"


def test_a_driver_that_is_missing_is_named() -> None:
    with pytest.raises(UnsupportedError, match="package oracledb is needed"):
        Database("oracle+oracledb://me@host/shop", QUERY, "id", ())
    with pytest.raises(ConfigError, match="nonsense"):
        Database("nonsense://me@host/shop", QUERY, "id", ())
