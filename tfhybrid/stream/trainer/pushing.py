"""Ways to make a lease's update: the interface of both, and deltas, for trainers with optimizers.

`PushedGradients` is the other way, for trainers whose optimizers run in the sync unit.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from typing_extensions import override

from tfhybrid.store import Table
from tfhybrid.stream.weights.model_spec import ModelSpec, TableSpec

_log = logging.getLogger("tfhybrid.stream")


@dataclasses.dataclass(frozen=True)
class Pushed:
    """Content of a lease's update: deltas or gradients.

    Args:
        keys: Keys by table name, int64 `[n]`, each key once.
        values: Delta or gradient of each key by table name, float32 `[n, dim]`.
        dense: Delta or gradient of each dense weight, in the order of `ModelSpec.shapes`; `None`
            leaves the weights as they are.
        rates: Learning rate of each table that has an optimizer in the sync unit, by table name.
            Default: none.
    """

    keys: Mapping[str, np.ndarray]
    values: Mapping[str, np.ndarray]
    dense: Sequence[np.ndarray] | None
    rates: Mapping[str, float] = dataclasses.field(default_factory=dict)


class Push(Protocol):
    """Interface that turns a trained lease into an update. Used by the training thread alone."""

    def spec(self) -> ModelSpec:
        """Returns the specification of the model, from which the sync unit makes the weights.

        Raises:
            UnsupportedError: Gradients are pushed, and the sync unit does not have the optimizer.
            ConfigError: The model has no weights, or a table has a reserved name.
        """

    def states(self) -> np.ndarray | None:
        """Returns the states (such as momenta) of the dense weights' optimizer.

        Returns:
            float32 `[rows, slots, DENSE_DIM]`, in the rows in which `ModelSpec.rows_of_states` puts
            them; `None` if the sync unit runs no optimizer for the dense weights.
        """

    def begin(
        self,
        keys: Mapping[str, np.ndarray],
        rows: Mapping[str, np.ndarray],
        dense: Sequence[np.ndarray],
        version: int,
    ) -> None:
        """Remembers the weights at the beginning of a lease; the model has them already.

        Args:
            keys: Keys that the lease needs, by table name, int64 `[n]`, each key once.
            rows: Rows of these keys, by table name, float32 `[n, dim]`.
            dense: Dense weights, in the order of `ModelSpec.shapes`.
            version: Version of all these weights.
        """

    def collect(self) -> Pushed:
        """Returns the content of the update, once the lease is trained. Waits for the last step.

        A key's gradients are summed in the order of the batch. With gradients, a step that the
        optimizer skips has neither keys nor dense values.

        Raises:
            DataError: A pushed gradient is not finite, and the optimizer does not skip such steps.
        """

    def close(self) -> None:
        """Ends the pushing: the model's optimizer changes the weights of this process again."""


class OtherKeys:
    """Warnings of tables that train keys other than those of their columns; one for each table.

    Args:
        consequence: Consequence for these keys, for the warning.
    """

    def __init__(self, consequence: str) -> None:
        self._consequence = consequence
        self._warned: set[str] = set()

    def warn(self, table: str, count: int) -> None:
        """Warns if there are such keys, unless it has warned of the table.

        Args:
            table: Name of the table.
            count: Number of such keys in a lease.
        """
        if count == 0 or table in self._warned:
            return
        self._warned.add(table)
        _log.warning(
            "Table '%s' has trained %d keys that are not in its columns of the stream, so %s: name "
            "all of its columns in Online(tables=); put the keys themselves into them, or strings "
            "that the model hashes with tfhybrid.layers.StringKeys; or let a "
            "tfhybrid.features.Features of the model compute them",
            table,
            count,
            self._consequence,
        )


def table_spec(table: Table) -> TableSpec:
    """Returns the specification of a table whose deltas are pushed.

    Args:
        table: Table of the trainer's model.
    """
    return TableSpec(table.dim, table.config.initializer.native, unseen=table.unseen)


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
        self._counts: Mapping[str, int] = {}
        self._other_keys = OtherKeys("their changes do not reach the sync unit")

    @override
    def spec(self) -> ModelSpec:
        return ModelSpec(
            {name: table_spec(table) for name, table in sorted(self._tables.items())},
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
        self._counts = {name: table.rows for name, table in self._tables.items()}

    @override
    def collect(self) -> Pushed:
        values = {
            name: table.lookup(self._keys[name]) - self._rows[name]
            for name, table in self._tables.items()
        }
        for name, table in self._tables.items():
            self._other_keys.warn(name, table.rows - self._counts[name])
        dense = [
            np.asarray(now, np.float32) - before
            for now, before in zip(self._weights, self._dense, strict=True)
        ]
        return Pushed(self._keys, values, dense)

    @override
    def close(self) -> None:
        pass  # the model has trained its own weights all along
