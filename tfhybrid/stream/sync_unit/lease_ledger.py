"""The ledger of a target model: which rows of each queue its weights contain, and ended leases."""

from __future__ import annotations

from tfhybrid.errors import LeaseRefusedError, NameTakenError
from tfhybrid.stream.queues.queue import QueuePosition
from tfhybrid.stream.weights.applied_ranges import AppliedRanges
from tfhybrid.stream.weights.lease import FENCES_PER_TERM, Lease, Range
from tfhybrid.stream.weights.weight_base import WeightBase
from tfhybrid.stream.weights.weight_update import WeightUpdate


class LeaseLedger:
    """The applied ranges, the current term and the revoked leases of each queue of a model.

    Not thread-safe: the model's lock guards it.

    Args:
        model: Name of the target model.

    Attributes:
        terms: Number of the current provider's term, by queue.
        applied: Ranges whose rows are in the weights, by queue.
        rows: Number of rows of the updates in the weights, by queue; `None` if it is unknown,
            because they began with a version of tfhybrid that did not count.
        refused: Number of updates that were refused because of their model or lease.
    """

    def __init__(self, model: str) -> None:
        self._model = model
        self.terms: dict[str, int] = {}
        self.applied: dict[str, AppliedRanges] = {}
        self.rows: dict[str, int] | None = {}
        self._revoked: dict[str, set[int]] = {}
        self.refused = 0

    def load(self, base: WeightBase) -> None:
        """Takes the terms and the applied ranges that a base recorded.

        Args:
            base: Metadata of the base, a complete copy of the model on disk.
        """
        self.terms = dict(base.epochs)
        self.rows = None if base.rows is None else dict(base.rows)
        for queue, (frontier, ranges) in base.done.items():
            self.applied[queue] = AppliedRanges(frontier, ranges)
            self._revoked[queue] = set()

    def start_term(self, queue: str, term: int, first: QueuePosition) -> None:
        """Starts a provider's term, which ends all leases of earlier ones.

        Args:
            queue: Name of the queue.
            term: Number of the term.
            first: Position at which to begin, if the model has trained nothing of the queue.
        """
        self.terms[queue] = term
        self.applied.setdefault(queue, AppliedRanges(first))
        self._revoked[queue] = set()

    def add(self, update: WeightUpdate) -> None:
        """Records that an update, whose lease was admitted, is in the weights.

        Args:
            update: Update from a trainer.
        """
        self.applied[update.queue].add(update.range)
        if self.rows is not None:
            self.rows[update.queue] = self.rows.get(update.queue, 0) + update.rows

    def ranges(self, queue: str) -> AppliedRanges:
        """Returns the ranges of a queue's rows that are in the model's weights.

        Args:
            queue: Name of the queue.

        Raises:
            LeaseRefusedError: The model is not trained from the queue.
        """
        if queue not in self.applied:
            raise LeaseRefusedError(
                f"Model '{self._model}' is trained from the queues {sorted(self.applied)}. "
                f"Received: a lease of queue '{queue}'"
            )
        return self.applied[queue]

    def revoke(self, queue: str, lease: Lease) -> bool:
        """Ends a lease, unless its rows are applied; returns whether they are.

        Args:
            queue: Name of the queue.
            lease: Lease of the queue.

        Raises:
            LeaseRefusedError: The model is not trained from the queue.
            NameTakenError: Another provider has granted the lease than the current one.
        """
        self.check_term(queue, lease.term)
        if self.ranges(queue).covers(lease.range):
            return True
        self._revoked[queue].add(lease.fence)
        return False

    def check_term(self, queue: str, term: int) -> None:
        """Checks that no provider of a queue is newer than that of a term.

        Args:
            queue: Name of the queue.
            term: Number of the term.

        Raises:
            NameTakenError: A newer provider has started on the queue.
        """
        current = self.terms.get(queue, 0)
        if term < current:
            raise NameTakenError(
                f"Queue {queue} has a newer provider, so all leases of this one are over. Stop one "
                f"of the two. Received: a lease of term {term}, in term {current}"
            )

    def check_skip(self, queue: str, span: Range) -> None:
        """Checks that a range without good rows can be recorded as applied. Changes nothing.

        Args:
            queue: Name of the queue.
            span: Range to record.

        Raises:
            LeaseRefusedError: The model is not trained from the queue, the range is empty, or some
                of its rows are applied.
        """
        if span[0] >= span[1] or self.ranges(queue).overlaps(span):
            raise LeaseRefusedError(
                f"Model '{self._model}' can only skip rows that it has not trained. Received: "
                f"{span} of queue {queue}"
            )

    def admits(self, update: WeightUpdate) -> bool:
        """Checks the lease of an update; returns whether its rows are still to be applied.

        Args:
            update: Update from a trainer.

        Raises:
            LeaseRefusedError: The update is for another model or from a queue that it is not
                trained from, or its lease has ended.
        """
        if update.model != self._model:
            raise self._refusal(update, f"model '{update.model}'")
        applied = self.ranges(update.queue)
        if applied.covers(update.range):
            return False
        if update.fence // FENCES_PER_TERM < self.terms[update.queue]:
            raise self._refusal(update, "a lease of an earlier provider")
        if update.fence in self._revoked[update.queue] or applied.overlaps(update.range):
            raise self._refusal(update, "a lease that has expired")
        return True

    def _refusal(self, update: WeightUpdate, reason: str) -> LeaseRefusedError:
        self.refused += 1
        return LeaseRefusedError(
            f"Model '{self._model}' takes only updates of its own open leases. Received: {reason}, "
            f"lease {update.fence} of queue {update.queue}, from {update.trainer}"
        )
