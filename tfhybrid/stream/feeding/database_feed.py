"""The feed of a query's rows into a queue: each row once, also through `kill -9`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from tfhybrid.stream.feeding.database import Database
from tfhybrid.stream.feeding.database_position import DatabasePosition
from tfhybrid.stream.feeding.query_rows import record_of
from tfhybrid.stream.feeding.source_producer import SourceProducer

_log = logging.getLogger("tfhybrid.stream")


class FedRows(NamedTuple):
    """Counts of the rows of one round.

    Attributes:
        new: Number of rows that were put into the queue.
        read: Number of rows that were read. The others are bad.
    """

    new: int
    read: int


class DatabaseFeed:
    """A feed of the rows of one database. Not thread-safe.

    The queue stores the position of the last row with the rows, so the feed has no file.

    Args:
        database: The database and its query.
        producer: Producer of the database's rows, with a queue.
        count: Number of rows in a record.
        new_query: Whether another query than that of the rows in the queue goes on after them.
            Default `False`: it is refused.

    Attributes:
        position: Position of the last row.

    Raises:
        ConfigError: There is no such queue, or its rows are of another query.
        StreamError: The provider does not answer.
    """

    def __init__(
        self,
        database: Database,
        producer: SourceProducer,
        *,
        count: int,
        new_query: bool = False,
    ) -> None:
        self._database = database
        self._producer = producer
        self._count = count
        self._number = -1
        self._begun = False
        self._last_round: tuple[Any, Any, int] | None = None
        self.position = start = DatabasePosition(database.query, database.after)
        last = producer.last()
        if last is not None:
            stored = DatabasePosition.of_text(last.position)
            stored.check_same(start, new_query=new_query)
            self._number = last.number
            self.position = start.moved(stored.value)

    @property
    def name(self) -> str:
        """Name of the database."""
        return self._database.name

    def newest(self) -> Any:
        """Returns the value of the newest row, to be passed to `take` a while later.

        Rows with at most this value may become visible until then. Warns of rows of the round
        before that came later still.

        Returns:
            The value; `None` if there is no new row.

        Raises:
            ConfigError: The query is not valid, or lacks a column, or has it twice.
            StreamError: The database does not answer.
        """
        if not self._begun:
            nulls = self._database.nulls()
            if nulls:
                _log.warning(
                    "%s: %d rows have no %s. They are not fed until they have one",
                    *(self.name, nulls, self.position.after),
                )
            self._begun = True
        newest = self._database.newest(self.position.value)
        if self._last_round is not None:
            low, high, count = self._last_round
            late = self._database.count(low, high) - count
            if late > 0:
                _log.warning(
                    "%s: %d rows with %s up to %s appeared after those rows were read. They are "
                    "not fed. Raise --lag above the length of the longest transaction",
                    *(self.name, late, self.position.after, high),
                )
            self._last_round = None
        return newest

    def take(self, newest: Any, pace: Callable[[int], None]) -> FedRows:
        """Puts the rows up to a value into the queue.

        Args:
            newest: Value of the increasing column, from `newest`.
            pace: Function that waits, called with the number of rows before each record.

        Returns:
            Number of rows.

        Raises:
            ConfigError: The query is not valid.
            DataError: There are too many bad rows, the increasing column has values that cannot be
                compared, or another process feeds the same database.
            StreamError: The database does not answer; the rows before are in the queue.
            OutOfSpaceError: The disk of the queue is full.
            StoreError: A file of the provider cannot be written.
        """
        before, new, taken = self.position.value, 0, 0
        while True:
            batch = self._database.rows(self.position.value, newest, self._count)
            if batch is None:
                break
            position = self.position.moved(batch.last)
            pace(len(batch.rows))
            record = record_of(self._database.columns, batch.rows)
            new += self._producer.put(self._number + 1, record, position.to_text())
            self._number += 1
            self.position = position
            taken += len(batch.rows)
        if taken:
            self._last_round = before, self.position.value, taken
        return FedRows(new, taken)
