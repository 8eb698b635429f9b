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
        is_large: Whether the update could make a row overflow. It is then applied alone, after a
            look at the rows. Default `False`.
    """

    update: WeightUpdate
    record: Record
    is_large: bool = False

    def excludes(self, earlier: Submitted) -> bool:
        """Returns whether this update can only be checked after an earlier one is applied.

        Args:
            earlier: Other update. Leases of different queues have no rows in common.
        """
        if self.is_large:
            return True
        mine, theirs = self.update, earlier.update
        same = mine.queue == theirs.queue
        return same and mine.begin < theirs.end and theirs.begin < mine.end
