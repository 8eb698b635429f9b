"""A producer that puts the records of a source, and learns from the provider what it has put."""

from __future__ import annotations

import logging
import time

from tfhybrid.errors import StreamError
from tfhybrid.stream.provider.provider import Provider
from tfhybrid.stream.queues.numbered_writer import LastRecord
from tfhybrid.stream.queues.queue import Record

_log = logging.getLogger("tfhybrid.stream")

_PAUSE_SECONDS = 1.0


class SourceProducer:
    """The producer of a source, such as a file. It keeps nothing: the queues know what they have.

    Args:
        provider: The provider, or a client of it.
        name: Name of the source, the same whenever it is fed.
        queue: Name of the queue of all rows. By default the routes decide.
    """

    def __init__(self, provider: Provider, name: str, queue: str | None = None) -> None:
        self.name = name
        self._provider = provider
        self._queue = queue

    def last(self) -> LastRecord | None:
        """Returns the last record that a queue has of this source; `None` if there is none.

        Raises:
            ConfigError: There is no such queue.
            StreamError: The provider does not answer.
        """
        return self._provider.last_record(self.name, self._queue)

    def put(self, number: int, record: Record, position: str) -> int:
        """Puts a record, and returns the number of new rows.

        Tries again until it succeeds: models may be too far behind, or a broker may be unavailable.

        Args:
            number: Number of the record, greater than those before it.
            record: The record.
            position: Description of where the record ends in the source.

        Raises:
            DataError: There are too many bad rows, the record is too long for a broker, or a queue
                has another record of this number: another process feeds the same source.
            OutOfSpaceError: The disk of a queue is full.
            StoreError: A file of the provider cannot be written.
        """
        while True:
            try:
                return self._provider.put(self.name, number, record, position, self._queue)
            except StreamError as error:
                _log.warning("%s. Trying again", error)
                time.sleep(_PAUSE_SECONDS)
