"""An update that waits to be written to the journal of a target model."""

from __future__ import annotations

from typing import NamedTuple

from tfhybrid.stream.queues.queue import Record
from tfhybrid.stream.weights.weight_update import WeightUpdate


class Submitted(NamedTuple):
    """Submitted update, with its record for the journal.

    Attributes:
        update: Update from a trainer.
        record: Result of `update.to_record()`.
    """

    update: WeightUpdate
    record: Record

    def overlaps(self, other: Submitted) -> bool:
        """Returns whether the leases of the two updates have rows in common.

        Args:
            other: Other update; updates from different queues never overlap.
        """
        mine, theirs = self.update, other.update
        same = mine.queue == theirs.queue
        return same and mine.begin < theirs.end and theirs.begin < mine.end
