"""Leases: what the provider and the sync unit tell each other about rows of a queue."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol

from tfhybrid.stream.queues.queue import QueuePosition

Range = tuple[QueuePosition, QueuePosition]

# Number of fences in a term. A fence of an earlier term is smaller than any of a later one.
FENCES_PER_TERM = 1 << 40


@dataclasses.dataclass(frozen=True)
class Lease:
    """The right to train some rows of a queue.

    Args:
        fence: Number of the lease: unique, and greater than that of every lease granted before.
        holder: Name of the trainer that holds the lease.
        begin: Position of the first row.
        end: Position behind the last row.
        rows: Number of good rows between `begin` and `end`.
    """

    fence: int
    holder: str
    begin: QueuePosition
    end: QueuePosition
    rows: int

    @property
    def range(self) -> Range:
        """Range of the lease: position of its first row, and position behind its last row."""
        return self.begin, self.end

    @property
    def term(self) -> int:
        """Number of the term in which the lease was granted."""
        return self.fence // FENCES_PER_TERM


@dataclasses.dataclass(frozen=True)
class QueueProgress:
    """Rows of one queue that a target model's weights contain.

    Args:
        epoch: Term of the provider: number of providers that have started on this queue. Leases of
            earlier terms are over.
        frontier: Position before which all rows are contained.
        ranges: Ranges behind the frontier that are contained.
    """

    epoch: int
    frontier: QueuePosition
    ranges: Sequence[Range]


class TargetWeights(Protocol):
    """The calls that the provider makes to a target model in the sync unit."""

    def begin(
        self, queue: str, first: QueuePosition, beside: tuple[str, int] | None = None
    ) -> QueueProgress:
        """Ends all leases of earlier providers of a queue, and starts the next term.

        Args:
            queue: Name of the queue.
            first: Position at which to begin, if the model has trained nothing of the queue.
            beside: Another queue, and the caller's term on it, which must be the current one.
                Default: none, for a provider that starts.

        Returns:
            The new term, and the rows that the weights contain.

        Raises:
            NameTakenError: A newer provider has started on the other queue. Nothing was changed.
            OutOfSpaceError: The journal cannot be written. Nothing was changed.
            StreamError: The sync unit does not answer. The term may have been started.
        """

    def progress(self, queue: str, term: int) -> QueueProgress | None:
        """Returns the rows that the weights contain; `None` if they have lost the caller's term.

        A sync unit with `fsync: never` loses its last records at a power cut.

        Args:
            queue: Name of the queue.
            term: The caller's term.

        Raises:
            NameTakenError: A newer provider has started on the queue.
            StreamError: The sync unit does not answer.
        """

    def revoke(self, queue: str, lease: Lease) -> bool:
        """Ends a lease: an update that arrives later is refused.

        Args:
            queue: Name of the queue.
            lease: Lease of the queue.

        Returns:
            Whether the weights contain the update of the lease.

        Raises:
            LeaseRefusedError: The model is not trained from the queue.
            NameTakenError: A newer provider has started on the queue.
            StreamError: The sync unit does not answer. The lease may have been ended.
        """

    def skip(self, queue: str, lease: Lease) -> None:
        """Records the range of a lease as applied, because the lease has no good rows to train.

        A second call with the same lease does nothing.

        Args:
            queue: Name of the queue.
            lease: Lease of the queue; its range is not checked.

        Raises:
            LeaseRefusedError: The model is not trained from the queue.
            NameTakenError: A newer provider has started on the queue.
            OutOfSpaceError: The journal cannot be written. Nothing was changed.
            StreamError: The sync unit does not answer. The range may have been recorded.
        """
