"""A table with admission and eviction in the sync unit, and an update for each lease."""

from __future__ import annotations

import dataclasses

import numpy as np

import tfhybrid
from tfhybrid.initializers import Uniform
from tfhybrid.stream.queues.queue import QueuePosition
from tfhybrid.stream.weights.lease import FENCES_PER_TERM, Lease
from tfhybrid.stream.weights.model_spec import ModelSpec, TableSpec
from tfhybrid.stream.weights.weight_update import WeightUpdate

CONFIG = tfhybrid.TableConfig(
    dim=3,
    initializer=Uniform(),
    admission=tfhybrid.Admission(2, forget_after=9),
    eviction=tfhybrid.Eviction(unseen_steps=6, every_steps=2),
)
BY_TIME = dataclasses.replace(CONFIG, eviction=tfhybrid.Eviction(unseen_time=50, every_steps=2))
SPEC = ModelSpec({"item": TableSpec(3, Uniform().native)})
KEYS = np.arange(-30, 30)


def lease_update(number: int) -> WeightUpdate:
    random = np.random.default_rng(number)
    keys = np.unique(random.integers(-30, 30, 8))
    # Whole numbers, which float32 adds up as exactly as the reference does.
    values = random.integers(-9, 9, (len(keys), 3)).astype(np.float32)
    begin, end = QueuePosition(number, 0), QueuePosition(number + 1, 0)
    lease = Lease(FENCES_PER_TERM + number, "t", begin, end, 8)
    fields = {each.name: getattr(lease, each.name) for each in dataclasses.fields(lease)}
    del fields["holder"]
    return WeightUpdate(
        "ads",
        "video",
        **fields,
        trainer="t",
        version=0,
        keys={"item": keys},
        values={"item": values},
        event_time=event_time(number),
    )


def event_time(number: int) -> int | None:
    """Of an update: some are late, and some have none."""
    return None if number % 7 == 3 else 1_000_000 + 10 * number - 35 * (number % 5 == 2)
