"""Two model specifications, their dense weights, and an update for each lease."""

from __future__ import annotations

import dataclasses

import numpy as np

from tfhybrid.core.native import OptimizerKind
from tfhybrid.initializers import Uniform
from tfhybrid.stream.queues.queue import QueuePosition
from tfhybrid.stream.sync_unit.target_model import TargetModel
from tfhybrid.stream.weights.lease import FENCES_PER_TERM
from tfhybrid.stream.weights.model_spec import (
    DENSE_TABLE,
    ModelSpec,
    TableSpec,
    dense_rows,
)
from tfhybrid.stream.weights.weight_update import WeightUpdate

ADAGRAD = {
    "kind": OptimizerKind.ADAGRAD,
    "initial_accumulator_value": 0.1,
    "epsilon": 1e-7,
}
DELTAS = ModelSpec(
    {"item": TableSpec(3, Uniform().native), "user": TableSpec(16, Uniform().native)},
    [(16, 5), (5,), ()],
    seed=3,
)
GRADIENTS = ModelSpec(
    {
        "item": TableSpec(3, Uniform().native, {"kind": OptimizerKind.SGD}),
        "user": DELTAS.tables["user"],
    },
    DELTAS.dense,
    seed=3,
    dense_optimizer={"kind": OptimizerKind.SGD},
)
DENSE = [np.random.default_rng(0).normal(size=shape).astype(np.float32) for shape in DELTAS.dense]
FENCE = FENCES_PER_TERM


def lease_update(number: int, spec: ModelSpec = DELTAS, **changes) -> WeightUpdate:
    """The update of the lease of ten rows that begins at record `number`."""
    random = np.random.default_rng(number)
    keys = {name: np.unique(random.integers(-40, 40, 30)) for name in spec.tables}
    keys[DENSE_TABLE] = dense_rows(DENSE)[0]
    values = {
        name: random.normal(size=(len(keys[name]), table.dim)).astype(np.float32)
        for name, table in spec.all_tables.items()
    }
    update = WeightUpdate(
        model="ads",
        queue="video",
        fence=FENCE + number,
        begin=QueuePosition(number, 0),
        end=QueuePosition(number + 1, 0),
        rows=10,
        trainer="t",
        version=0,
        keys=keys,
        values=values,
        rates=dict.fromkeys(spec.all_tables, 0.05),
    )
    return dataclasses.replace(update, **changes)


def begun_model(model: TargetModel, spec: ModelSpec = DELTAS) -> TargetModel:
    model.open(spec, DENSE)
    model.begin("video", QueuePosition(0, 0))
    return model
