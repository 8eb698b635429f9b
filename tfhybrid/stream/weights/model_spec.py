"""What a target model consists of, as the sync unit must know it: tables, and dense weights."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfhybrid.core.native import WAITING_SUFFIX, OptimizerKind
from tfhybrid.errors import ConfigError

DENSE_TABLE = "tfhybrid/dense"
STATISTICS_TABLE = "tfhybrid/statistics"
DENSE_DIM = 64  # floats of a row of dense weights


@dataclasses.dataclass(frozen=True)
class TableSpec:
    """A table.

    Args:
        dim: Floats of an embedding.
        initializer: `native` of one of `tfhybrid.initializers`.
        optimizer: Fields of `native.OptimizerConfigStruct`; or none, if trainers send deltas.
        slots: Vectors of floats in a row's optimizer state.
        slot_dim: Floats in each of them; `dim` by default.
        policy: Fields of `native.RowPolicyStruct`: which keys get a row and keep it; by default all
            do. The sync unit's settings say it, never a trainer.
    """

    dim: int
    initializer: tuple[int, float, float] = (0, 0.0, 0.0)
    optimizer: Mapping[str, float] | None = None
    slots: int = 0
    slot_dim: int | None = None
    policy: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def state_shape(self) -> tuple[int, int]:
        """Vectors in a row's optimizer state, and floats in each."""
        return self.slots, self.dim if self.slot_dim is None else self.slot_dim

    @property
    def adds(self) -> bool:
        """Whether updates are deltas, which are added."""
        return self.optimizer is None

    @property
    def settings(self) -> Mapping[str, float]:
        """Of the engine's optimizer. A delta is the gradient of SGD at rate 1, negated."""
        return {"kind": OptimizerKind.SGD} if self.optimizer is None else self.optimizer


@dataclasses.dataclass(frozen=True)
class ModelSpec:
    """A target model. All its trainers say the same.

    Args:
        tables: By name.
        dense: Shape of each dense weight, in their order.
        seed: Of the initial embeddings.
        dense_optimizer: As of `TableSpec`, for the dense weights.
        dense_slots: Likewise.
        statistics: Shape of each dense weight that no gradient trains, if `dense` has an optimizer.
            Trainers send its delta.

    Raises:
        ConfigError: There is nothing to train, or a table has a name that is taken.

    Example:

    >>> spec = ModelSpec({"item": TableSpec(8)}, [(8, 1), (1,)])
    >>> ModelSpec.from_json(spec.to_json()) == spec
    True
    """

    tables: Mapping[str, TableSpec]
    dense: Sequence[tuple[int, ...]] = ()
    seed: int = 0
    dense_optimizer: Mapping[str, float] | None = None
    dense_slots: int = 0
    statistics: Sequence[tuple[int, ...]] = ()

    def __post_init__(self) -> None:
        taken = {DENSE_TABLE, STATISTICS_TABLE} & set(self.tables)
        if taken or not (self.tables or self.dense):
            raise ConfigError(
                f"A target model has tables or dense weights, and no table '{DENSE_TABLE}' or "
                f"'{STATISTICS_TABLE}'. Received: tables {sorted(self.tables)}, {len(self.dense)} "
                "dense weights"
            )

    def with_policies(self, policies: Mapping[str, Mapping[str, float]]) -> ModelSpec:
        """Returns the same model whose tables have these policies.

        Args:
            policies: As of `TableSpec`, by table; other tables have none.

        Raises:
            ConfigError: The model has no such table.
        """
        unknown = sorted(set(policies) - set(self.tables))
        if unknown:
            raise ConfigError(
                f"Policies are those of tables of the model. Received: {unknown}, and the tables "
                f"{sorted(self.tables)}"
            )
        tables = {
            name: dataclasses.replace(table, policy=policies.get(name, {}))
            for name, table in self.tables.items()
        }
        return dataclasses.replace(self, tables=tables)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Of all dense weights: those of `dense`, then those of `statistics`."""
        return [tuple(shape) for shape in (*self.dense, *self.statistics)]

    @property
    def all_tables(self) -> dict[str, TableSpec]:
        """The tables, and last those whose rows are the dense weights, if there are any."""
        tables = dict(self.tables)
        if self.dense:
            tables[DENSE_TABLE] = TableSpec(
                DENSE_DIM, optimizer=self.dense_optimizer, slots=self.dense_slots
            )
        if self.statistics:
            tables[STATISTICS_TABLE] = TableSpec(DENSE_DIM)
        return tables

    @property
    def stored_tables(self) -> dict[str, TableSpec]:
        """All tables, and those of the keys that wait for admission to them."""
        waiting = {
            name + WAITING_SUFFIX: TableSpec(1, policy=table.policy)
            for name, table in self.tables.items()
            if table.policy.get("admission", 0) > 1
        }
        return self.all_tables | waiting

    def rows_of(self, weights: Sequence[np.ndarray]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Returns the keys and rows that stand for dense weights, by table.

        Args:
            weights: As many as `shapes`.
        """
        count = len(self.dense)
        parts = {DENSE_TABLE: weights[:count], STATISTICS_TABLE: weights[count:]}
        return {name: dense_rows(part) for name, part in parts.items() if len(part)}

    def rows_of_states(self, states: Sequence[Sequence[np.ndarray]]) -> np.ndarray | None:
        """Returns the optimizer states of the rows that stand for the weights of `dense`.

        Args:
            states: As many as `dense_slots`; of each, an array for each weight.

        Returns:
            float32 `[rows, dense_slots, DENSE_DIM]`, or `None` if there are none. What fills up the
            last row is as in a new row's state.
        """
        if not states or not self.dense:
            return None
        slots = np.stack([dense_rows(slot)[1] for slot in states], axis=1)
        size = sum(int(np.prod(shape)) for shape in self.dense)
        first = (self.dense_optimizer or {}).get("initial_accumulator_value", 0.0)
        slots[-1, 0, DENSE_DIM - (-size % DENSE_DIM) :] = first
        return slots

    def states_of(self, rows: np.ndarray) -> list[list[np.ndarray]]:
        """Returns the optimizer states that `rows_of_states` made rows of."""
        return [dense_weights(rows[:, slot], self.dense) for slot in range(self.dense_slots)]

    def keys_of_weights(self) -> dict[str, np.ndarray]:
        """Returns the keys of the rows that stand for dense weights, by table."""
        parts = {DENSE_TABLE: self.dense, STATISTICS_TABLE: self.statistics}
        return {name: dense_keys(part) for name, part in parts.items() if len(part)}

    def weights_of(self, rows: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Returns the dense weights that `rows_of` made rows of."""
        parts = {DENSE_TABLE: self.dense, STATISTICS_TABLE: self.statistics}
        return [
            weight
            for name, shapes in parts.items()
            if len(shapes)
            for weight in dense_weights(rows[name], shapes)
        ]

    def to_json(self) -> str:
        """Returns it as text."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> ModelSpec:
        """Returns what `to_json` was called on.

        Raises:
            ConfigError: The text is none.
        """
        try:
            found: dict[str, Any] = json.loads(text)
            tables = {
                name: TableSpec(**{**table, "initializer": tuple(table["initializer"])})
                for name, table in found.pop("tables").items()
            }
            dense, statistics = (
                [tuple(shape) for shape in found.pop(name, ())] for name in ("dense", "statistics")
            )
            return cls(tables, dense, statistics=tuple(statistics), **found)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ConfigError(
                f"A target model was described by {text[:200]!r}: {error!r}"
            ) from error


def dense_rows(weights: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Returns keys and rows, float32 `[n, DENSE_DIM]`, of dense weights laid end to end."""
    flat = np.concatenate([np.ravel(np.asarray(each, np.float32)) for each in weights])
    count = -(-len(flat) // DENSE_DIM)
    padded = np.zeros(count * DENSE_DIM, np.float32)
    padded[: len(flat)] = flat
    return np.arange(count, dtype=np.int64), padded.reshape(count, DENSE_DIM)


def dense_weights(rows: np.ndarray, shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    """Returns the dense weights that `dense_rows` made rows of."""
    sizes = [int(np.prod(shape)) for shape in shapes]
    pieces = np.split(rows.reshape(-1)[: sum(sizes)], np.cumsum(sizes)[:-1])
    return [piece.reshape(shape) for piece, shape in zip(pieces, shapes, strict=True)]


def dense_keys(shapes: Sequence[tuple[int, ...]]) -> np.ndarray:
    """Returns the keys of the rows that dense weights of these shapes have."""
    size = sum(int(np.prod(shape)) for shape in shapes)
    return np.arange(-(-size // DENSE_DIM), dtype=np.int64)
