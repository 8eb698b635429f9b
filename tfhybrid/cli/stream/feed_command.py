"""`tfhybrid stream feed`: puts the rows of files and databases into queues."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tfhybrid.cli.stream.stream_top import Config
from tfhybrid.cli.terminal.option_groups import grouped
from tfhybrid.errors import ConfigError, StreamError

if TYPE_CHECKING:
    from tfhybrid.stream.feeding.database_feed import DatabaseFeed
    from tfhybrid.stream.provider.provider import Provider
    from tfhybrid.stream.stream_settings import StreamSettings

_log = logging.getLogger("tfhybrid.stream")

_of_database = functools.partial(typer.Option, rich_help_panel="Databases instead of files")


@dataclasses.dataclass(frozen=True)
class _Databases:
    """Options of databases."""

    database: Annotated[
        list[str] | None,
        _of_database(
            metavar="[NAME=]URL",
            help="URL of a database whose new rows to put into QUEUE; repeatable.",
        ),
    ] = None
    query: Annotated[str | None, _of_database(metavar="SQL", help="Query of the rows.")] = None
    after: Annotated[
        str | None,
        _of_database(
            metavar="COLUMN", help="Column of the query whose values grow from row to row."
        ),
    ] = None
    every: Annotated[
        float | None,
        _of_database(
            min=0.01,
            metavar="SECONDS",
            show_default="read once, then exit",
            help="Time between two readings.",
        ),
    ] = None
    lag: Annotated[
        float,
        _of_database(
            min=0.0, metavar="SECONDS", help="Longest time that a transaction takes to commit."
        ),
    ] = 5.0
    new_query: Annotated[
        bool, _of_database(help="Read after the last row although the query has changed.")
    ] = False


@grouped
def feed(
    config: Config,
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="FILES|QUEUE",
            help="Files with lines of JSON, or Arrow IPC streams; the name of a queue with "
            "--database.",
        ),
    ],
    databases: _Databases,
    rows: Annotated[
        int, typer.Option(min=1, metavar="N", help="Lines of JSON in a record of a queue.")
    ] = 1000,
    rate: Annotated[
        float | None,
        typer.Option(
            min=0.001, metavar="N", show_default="no limit", help="Lines of JSON per second."
        ),
    ] = None,
) -> None:
    """Put the rows of files or databases into queues.

    A data provider must run. Each row is put once: feeding a file again puts only the lines that
    were added to it, and the rows of a database only those after the last one.

    $ tfhybrid stream feed stream.yaml clicks-*.jsonl
    $ tfhybrid stream feed s.yaml clicks --database $URL --query "$SQL" --after id
    """
    from tfhybrid.stream.stream_settings import StreamSettings

    settings = StreamSettings.read(config)
    provider = settings.remote_provider("feed")
    pace = _pace_of(rate)
    if databases.database is None:
        if databases != _Databases():
            raise ConfigError(
                "--query, --after, --every, --lag and --new-query need --database. Received: none"
            )
        _feed_files(provider, sources, rows, pace)
        return
    with _opened(provider, settings, sources, databases, rows) as feeds:
        _feed_databases(feeds, databases, pace)


def _pace_of(rate: float | None) -> Callable[[int], None]:
    """Returns a function that waits until a number of rows may be sent."""
    begun, sent = time.monotonic(), 0

    def pace(count: int) -> None:
        nonlocal sent
        if rate is not None:
            time.sleep(max(begun + sent / rate - time.monotonic(), 0.0))
        sent += count

    return pace


def _feed_files(
    provider: Provider, files: Sequence[str], rows: int, pace: Callable[[int], None]
) -> None:
    from tfhybrid.stream.feeding.file_records import file_records
    from tfhybrid.stream.feeding.source_producer import SourceProducer

    for file in files:
        producer = SourceProducer(provider, str(Path(file).absolute()))
        new = 0
        for number, record, lines, position in file_records(Path(file), rows, producer.last()):
            pace(lines)
            new += producer.put(number, record, position)
        typer.echo(f"{file}: {new} new rows")


@contextlib.contextmanager
def _opened(
    provider: Provider,
    settings: StreamSettings,
    queues: Sequence[str],
    databases: _Databases,
    rows: int,
) -> Iterator[list[DatabaseFeed]]:
    from tfhybrid.stream.feeding.database import Database
    from tfhybrid.stream.feeding.database_feed import DatabaseFeed
    from tfhybrid.stream.feeding.source_producer import SourceProducer

    query, after, names = databases.query, databases.after, settings.row_columns.names
    if len(queues) != 1 or query is None or after is None:
        raise ConfigError(
            "--database needs the name of one queue, --query and --after. "
            f"Received: {[*queues]}, --query {query!r}, --after {after!r}"
        )
    with contextlib.ExitStack() as stack:
        feeds: list[DatabaseFeed] = []
        for address in databases.database or ():
            database = stack.enter_context(
                contextlib.closing(Database(address, query, after, names))
            )
            if database.name in [feed.name for feed in feeds]:
                raise ConfigError(
                    f"Each database must have a name of its own. Received: {database.name} twice"
                )
            producer = SourceProducer(provider, database.name, queues[0])
            feeds.append(
                DatabaseFeed(database, producer, count=rows, new_query=databases.new_query)
            )
        yield feeds


def _feed_databases(
    feeds: Sequence[DatabaseFeed], databases: _Databases, pace: Callable[[int], None]
) -> None:
    for feed in feeds:
        value = feed.position.value
        begin = "the first row" if value is None else f"the row after {feed.position.after} {value}"
        typer.echo(f"{feed.name}: begins at {begin}")
    every = databases.every
    while True:
        begun = time.monotonic()
        failures = _round(feeds, databases.lag, pace)
        if every is None:
            break
        for failure in failures:
            _log.warning("%s. Trying again in %g s", failure, every)
        time.sleep(max(begun + every - time.monotonic(), 0.0))
    if failures:
        raise StreamError("; ".join(failures))


def _round(feeds: Sequence[DatabaseFeed], lag: float, pace: Callable[[int], None]) -> list[str]:
    """Puts the rows of all databases that are there now; returns the errors of those that fail."""
    failures: list[str] = []
    newest: list[tuple[DatabaseFeed, Any]] = []
    for feed in feeds:
        try:
            newest.append((feed, feed.newest()))
        except StreamError as error:
            failures.append(str(error))
    if any(value is not None for _, value in newest):
        time.sleep(lag)  # rows of transactions that were under way become visible
    for feed, value in newest:
        try:
            if value is not None:
                fed = feed.take(value, pace)
                typer.echo(f"{feed.name}: {fed.new} new rows, {fed.read} read")
        except StreamError as error:
            failures.append(str(error))
    return failures
