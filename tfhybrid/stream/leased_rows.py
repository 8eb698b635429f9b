"""The rows of leases, read from the queues by the trainer itself."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from tfhybrid.errors import LeaseRefusedError
from tfhybrid.stream.lease_book import Lease
from tfhybrid.stream.opening import open_queue
from tfhybrid.stream.queue_reader import QueueReader


class LeasedRows:
    """Reads leased ranges from queues that this process can reach, and opens each queue once.

    So the rows travel once, and not through the provider. It has read them before, to know how many
    good ones there are: bad rows are its to tell.

    Args:
        address_of: Returns the address of a queue.
        schema: Columns of the rows.
    """

    def __init__(self, address_of: Callable[[str], str], schema: pa.Schema) -> None:
        self._address_of = address_of
        self._schema = schema
        self._readers: dict[str, QueueReader] = {}

    def read(self, queue: str, lease: Lease) -> pa.RecordBatch:
        """Returns the rows of a lease.

        Raises:
            LeaseRefusedError: The queue here has other rows than the provider's.
            PositionLostError: Retention has removed them.
            StreamError: The queue cannot be reached.
        """
        if queue not in self._readers:
            address = self._address_of(queue)
            self._readers[queue] = QueueReader(open_queue(address), self._schema, None)
        taken = self._readers[queue].take(lease.begin, lease.rows, lease.end)
        found = 0 if taken is None else taken.batch.num_rows
        if taken is None or found != lease.rows:
            raise LeaseRefusedError(
                f"Lease {lease.fence} of queue {queue} has {lease.rows} rows. Received: {found} in "
                f"{self._address_of(queue)}, which must be the provider's queue"
            )
        return taken.batch
