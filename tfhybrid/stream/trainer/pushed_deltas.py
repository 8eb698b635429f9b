"""What a trainer sends that runs the optimizers itself: how the weights have changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfhybrid.store import Table
from tfhybrid.stream.trainer.pushing import Pushed
from tfhybrid.stream.weights.model_spec import ModelSpec, TableSpec


class PushedDeltas:
    """Deltas of rows and of dense weights; see `Push`.

    Args:
        tables: Of the model, by name.
        weights: Its dense weights, those without gradients too: what batch normalisation counts is
            added up over the trainers as weights are.
    """

    def __init__(self, tables: Mapping[str, Table], weights: Sequence[Any]) -> None:
        self._tables = tables
        self._weights = weights
        self._keys: Mapping[str, np.ndarray] = {}
        self._rows: Mapping[str, np.ndarray] = {}
        self._dense: Sequence[np.ndarray] = ()

    def spec(self) -> ModelSpec:
        """Returns what the model consists of."""
        return ModelSpec(
            {
                name: TableSpec(table.dim, table.config.initializer.native)
                for name, table in sorted(self._tables.items())
            },
            [tuple(each.shape) for each in self._weights],
            seed=next((table.seed for table in self._tables.values()), 0),
        )

    def states(self) -> None:
        """Returns none: the optimizers stay here."""

    def begin(
        self,
        keys: Mapping[str, np.ndarray],
        rows: Mapping[str, np.ndarray],
        dense: Sequence[np.ndarray],
        version: int,
    ) -> None:
        """Notes with which weights a lease begins."""
        self._keys, self._rows, self._dense = keys, rows, dense

    def collect(self) -> Pushed:
        """Returns how they have changed since."""
        values = {
            name: table.lookup(self._keys[name]) - self._rows[name]
            for name, table in self._tables.items()
        }
        dense = [
            np.asarray(now, np.float32) - before
            for now, before in zip(self._weights, self._dense, strict=True)
        ]
        return Pushed(self._keys, values, dense)

    def close(self) -> None:
        """Does nothing: the model trains its own weights."""
