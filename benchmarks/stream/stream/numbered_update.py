"""Updates of a target model without leases: one row of the queue after the other."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tfhybrid.stream.queues.queue import QueuePosition
from tfhybrid.stream.weights.lease import FENCES_PER_TERM
from tfhybrid.stream.weights.weight_update import WeightUpdate


def numbered_update(
    queue: str,
    number: int,
    rows: int,
    version: int,
    keys: Mapping[str, np.ndarray],
    values: Mapping[str, np.ndarray],
    rates: Mapping[str, float] | None = None,
) -> WeightUpdate:
    """Returns the update of one record of a queue of the model `ads`.

    Args:
        queue: Its name.
        number: Of the record, which each update has for itself.
        rows: How many rows of data it stands for.
        version: Of the weights on which it is based.
        keys: int64 `[n]` of each table.
        values: float32 `[n, dim]` of each table.
        rates: Of the tables that the sync unit's optimizers train.
    """
    return WeightUpdate(
        model="ads",
        queue=queue,
        fence=FENCES_PER_TERM + number,
        begin=QueuePosition(number, 0),
        end=QueuePosition(number + 1, 0),
        rows=rows,
        trainer="benchmark",
        version=version,
        keys=keys,
        values=values,
        rates=rates or {},
    )
