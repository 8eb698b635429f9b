"""The reader of leased rows in a trainer that reads the queues itself."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from tfhybrid.errors import LeaseRefusedError
from tfhybrid.stream.queues.queue import Queue
from tfhybrid.stream.queues.queue_reader import QueueReader
from tfhybrid.stream.queues.row_columns import RowColumns
from tfhybrid.stream.weights.lease import Lease


class LeasedRows:
    """A reader of leased ranges, for queues that this process can reach. Not thread-safe.

    The rows then do not travel through the provider. The provider still reads them once, to count
    the good rows of a lease, and reports the bad ones. Each queue is opened once and stays open.

    Args:
        opened: Function that opens a queue for reading, by its name.
        columns: Columns of the rows.
    """

    def __init__(self, opened: Callable[[str], Queue], columns: RowColumns) -> None:
        self._opened = opened
        self._columns = columns
        self._queues: dict[str, Queue] = {}
        self._readers: dict[str, QueueReader] = {}

    def read(self, queue: str, lease: Lease) -> pa.RecordBatch:
        """Returns the rows of a lease.

        Args:
            queue: Name of the queue.
            lease: Lease that this process holds.

        Raises:
            LeaseRefusedError: The queue at this address has other rows than the provider's queue.
            PositionLostError: Retention has removed the rows.
            StreamError: The queue does not exist, or cannot be reached.
            CorruptFileError: A record is damaged.
            ConfigError: The address of the queue is not valid.
            UnsupportedError: The queue is in Kafka, and confluent-kafka is not installed.
        """
        if queue not in self._readers:
            self._queues[queue] = self._opened(queue)
            self._readers[queue] = QueueReader(self._queues[queue], self._columns, None)
        reader = self._readers[queue]
        taken = reader.take(lease.begin, lease.rows, lease.end)
        count = 0 if taken is None else taken.batch.num_rows
        if taken is None or count != lease.rows:
            reader.forget()
            raise LeaseRefusedError(
                f"Lease {lease.fence} of queue {queue} has {lease.rows} rows. Received: {count} in "
                f"{self._queues[queue].name}. That must be the provider's queue"
            )
        return taken.batch
