"""A trainer's side of the rows that embedding nodes push."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from tfhybrid.core import split_batches
from tfhybrid.core.engine import Engine
from tfhybrid.data_nodes.read_log import ReadLog, middle

_FLOAT_BYTES = 4

_log = logging.getLogger("tfhybrid.data_nodes")


class EngineRows:
    """Receiver of the rows that owners push to a trainer; it logs the versions that were read.

    Args:
        engine: Engine of the trainer.
        dims: Dim of each of its tables, by name; read anew by each call.
        log: Read log of the trainer.
    """

    def __init__(self, engine: Engine, dims: Mapping[str, int], log: ReadLog) -> None:
        self._engine = engine
        self._dims = dims
        self._log = log

    def begin(self, tables: Sequence[str]) -> dict[str, int]:
        """Waits until all updates so far are applied, and returns the version of each table.

        Args:
            tables: Names of the tables.

        Raises:
            TfhybridError: An update failed.
        """
        for table in tables:
            self._engine.wait(table)
        return {
            # Not the override of `NodesEngine`, which would call the nodes.
            table: int(Engine.table_stats(self._engine, table).version)
            for table in tables
        }

    def expect(self, ticket: int, versions: Mapping[str, int], staleness: int) -> None:
        """Announces the table versions at which a batch is read.

        Args:
            ticket: Ticket of the batch.
            versions: Version with every update before the batch, by table.
            staleness: Maximum number of these updates that the rows may lack.

        Raises:
            StoreError: No store is open.
        """
        split_batches.expect(self._engine, ticket, versions, staleness)

    def forget(self, tickets: Sequence[int]) -> None:
        """Logs the reads so far, then frees the pushed rows of batches.

        Args:
            tickets: Tickets of batches that are looked up no more.

        Raises:
            StoreError: The read log cannot be written.
        """
        self._log.forget(tickets)
        split_batches.forget(self._engine, tickets)

    def name(self, ticket: int, batch: str) -> None:
        """Tells the read log (the log of versions that were read) which batch has a ticket.

        Args:
            ticket: Ticket of the batch.
            batch: Identity of the batch, the text of a `BatchId`.
        """
        self._log.name(ticket, batch)

    def note(self, function: str) -> None:
        """Writes the read log at the end of an epoch, and logs how many updates rows lacked so far.

        The numbers are those of all data sets of this trainer since its start.

        Args:
            function: Name of the function that makes the data set, for the log line.

        Raises:
            StoreError: The read log cannot be written.
        """
        missing = self._log.missing()
        if missing:
            median, most = middle(missing), max(missing)
            _log.info(
                "Rows for %s lacked %d updates (median), %d (maximum)", function, median, most
            )

    def row_bytes(self, table: str) -> int:
        """Returns the number of bytes in which a row of a table is sent.

        Args:
            table: Name of the table.

        Raises:
            KeyError: There is no such table.
        """
        return self._dims[table] * _FLOAT_BYTES
