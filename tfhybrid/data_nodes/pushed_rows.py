"""The rows that embedding nodes send a trainer unasked, as its engine takes them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from tfhybrid.core import split_batches
from tfhybrid.core.engine import Engine
from tfhybrid.data_nodes.read_log import ReadLog, middle

_FLOAT_BYTES = 4

_log = logging.getLogger("tfhybrid.data_nodes")


class EngineRows:
    """What a feed tells a trainer's engine of rows that are sent; as of `RowsSent`.

    Args:
        engine: Of the trainer.
        dims: Of its tables, by name.
        log: Of the trainer.
    """

    def __init__(self, engine: Engine, dims: Mapping[str, int], log: ReadLog) -> None:
        self._engine = engine
        self._dims = dims
        self._log = log

    def begin(self, tables: Sequence[str]) -> dict[str, int]:
        """Returns the version that each table has once all updates so far are applied."""
        for table in tables:
            self._engine.wait(table)
        return {
            table: int(Engine.table_stats(self._engine, table).version)  # as this host knows it
            for table in tables
        }

    def expect(self, ticket: int, versions: Mapping[str, int], staleness: int) -> None:
        """Says of which versions the rows of a batch will be, or how many updates before."""
        split_batches.expect(self._engine, ticket, versions, staleness)

    def forget(self, tickets: Sequence[int]) -> None:
        """Forgets the rows of batches."""
        self._log.forget(tickets)
        split_batches.forget(self._engine, tickets)

    def name(self, ticket: int, batch: str) -> None:
        """Says which batch has a ticket."""
        self._log.name(ticket, batch)

    def note(self, function: str) -> None:
        """Has the log note what was read, at the end of an epoch of a data set."""
        missing = self._log.missing()
        if missing:
            median, most = middle(missing), max(missing)
            _log.info("Rows for %s lacked %d updates, %d at most", function, median, most)

    def row_bytes(self, table: str) -> int:
        """Returns what a row takes."""
        return self._dims[table] * _FLOAT_BYTES
