"""The reader of leased rows in a trainer that reads the queues itself."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from tfhybrid.errors import LeaseRefusedError
from tfhybrid.stream.queues.queue_address import open_queue
from tfhybrid.stream.queues.queue_reader import QueueReader
from tfhybrid.stream.queues.row_columns import RowColumns
from tfhybrid.stream.weights.lease import Lease


class LeasedRows:
    """A reader of leased ranges, for queues that this process can reach. Not thread-safe.

    The rows then do not travel through the provider. The provider still reads them once, to count
    the good rows of a lease, and reports the bad ones. Each queue is opened once and stays open.

    Args:
        address_of: Function that returns the address of a queue, by its name.
        columns: Columns of the rows.
    """

    def __init__(self, address_of: Callable[[str], str], columns: RowColumns) -> None:
        self._address_of = address_of
        self._columns = columns
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
            address = self._address_of(queue)
            self._readers[queue] = QueueReader(open_queue(address), self._columns, None)
        taken = self._readers[queue].take(lease.begin, lease.rows, lease.end)
        count = 0 if taken is None else taken.batch.num_rows
        if taken is None or count != lease.rows:
            raise LeaseRefusedError(
                f"Lease {lease.fence} of queue {queue} has {lease.rows} rows. Received: {count} in "
                f"{self._address_of(queue)}. That address must be the provider's queue"
            )
        return taken.batch
