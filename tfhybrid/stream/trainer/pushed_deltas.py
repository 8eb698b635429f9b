"""Pushed deltas, for trainers that run the optimizers: the changes of the weights in a lease."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from tfhybrid.store import Table
from tfhybrid.stream.trainer.pushing import Push, Pushed
from tfhybrid.stream.weights.model_spec import ModelSpec, TableSpec


class PushedDeltas(Push):
    """Deltas of rows and of dense weights.

    Args:
        tables: Tables of the model, by name.
        weights: Dense weights of the model, including those without gradients: the statistics of
            batch normalization are summed over the trainers, as weights are.
    """

    def __init__(self, tables: Mapping[str, Table], weights: Sequence[Any]) -> None:
        self._tables = tables
        self._weights = weights
        self._keys: Mapping[str, np.ndarray] = {}
        self._rows: Mapping[str, np.ndarray] = {}
        self._dense: Sequence[np.ndarray] = ()

    @override
    def spec(self) -> ModelSpec:
        return ModelSpec(
            {
                name: TableSpec(table.dim, table.config.initializer.native)
                for name, table in sorted(self._tables.items())
            },
            [tuple(each.shape) for each in self._weights],
            seed=next((table.seed for table in self._tables.values()), 0),
        )

    @override
    def states(self) -> None:
        return None  # the optimizers stay in this process

    @override
    def begin(
        self,
        keys: Mapping[str, np.ndarray],
        rows: Mapping[str, np.ndarray],
        dense: Sequence[np.ndarray],
        version: int,
    ) -> None:
        self._keys, self._rows, self._dense = keys, rows, dense

    @override
    def collect(self) -> Pushed:
        values = {
            name: table.lookup(self._keys[name]) - self._rows[name]
            for name, table in self._tables.items()
        }
        dense = [
            np.asarray(now, np.float32) - before
            for now, before in zip(self._weights, self._dense, strict=True)
        ]
        return Pushed(self._keys, values, dense)

    @override
    def close(self) -> None:
        pass  # the model has trained its own weights all along
