"""Specification of a target model: the tables and dense weights that the sync unit holds."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from tfhybrid._remote import AsJson
from tfhybrid.core.native import WAITING_SUFFIX, OptimizerKind
from tfhybrid.errors import ConfigError

DENSE_TABLE = "tfhybrid/dense"
STATISTICS_TABLE = "tfhybrid/statistics"
DENSE_DIM = 64  # floats of a row of dense weights


@dataclasses.dataclass(frozen=True)
class TableSpec:
    """Specification of a table.

    Args:
        dim: Number of floats in an embedding.
        initializer: `native` form of one of `tfhybrid.initializers`. Default: zeros.
        optimizer: Fields of `native.OptimizerConfigStruct`, by name. Default: `None`, for trainers
            that send deltas.
        slots: Number of vectors in a row's optimizer state. Default 0.
        slot_dim: Number of floats in each of these vectors. Default: `dim`.
        policy: Fields of `native.RowPolicyStruct`, by name: admission and eviction of keys.
            Default: every key gets a row and keeps it. The sync unit's settings decide it; a
            trainer's specification never has one.
        unseen: Embedding that readers of publications get for keys without a row: `"zeros"`, or
            `"initial"`, the default, their initial values.

    Raises:
        ConfigError: `unseen` is something else.
    """

    dim: int
    initializer: tuple[int, float, float] = (0, 0.0, 0.0)
    optimizer: Mapping[str, float] | None = None
    slots: int = 0
    slot_dim: int | None = None
    policy: Mapping[str, float] = dataclasses.field(default_factory=dict)
    unseen: str = "initial"

    def __post_init__(self) -> None:
        if self.unseen not in ("zeros", "initial"):
            raise ConfigError(f"unseen must be 'zeros' or 'initial'. Received: {self.unseen!r}")

    @property
    def state_shape(self) -> tuple[int, int]:
        """Number of vectors in a row's optimizer state, and number of floats in each."""
        return self.slots, self.dim if self.slot_dim is None else self.slot_dim

    @property
    def adds(self) -> bool:
        """Whether updates are deltas, which are added to the rows."""
        return self.optimizer is None

    @property
    def settings(self) -> Mapping[str, float]:
        """Settings of the core's optimizer. A delta is a negated gradient of SGD at rate 1."""
        return {"kind": OptimizerKind.SGD} if self.optimizer is None else self.optimizer


@dataclasses.dataclass(frozen=True)
class ModelSpec(AsJson):
    """Specification of a target model. All its trainers must have the same one.

    The sync unit stores the dense weights as rows of further tables: see `all_tables` and
    `rows_of`.

    Args:
        tables: Specification of each table, by name.
        dense: Shape of each dense weight that `dense_optimizer` trains, in the model's order; of
            each dense weight, if that is `None`. Default: none.
        seed: Seed of the initial embeddings. Default 0.
        dense_optimizer: Optimizer of `dense`, with the fields of `TableSpec.optimizer`. Trainers
            send gradients for it. Default: `None`, trainers send deltas, which are added.
        dense_slots: Number of vectors in the optimizer state of a row of `dense`. Default 0.
        statistics: Shape of each further dense weight, which no gradient trains, such as the means
            of a batch normalization. Trainers always send its delta. Set it only with a
            `dense_optimizer`. Default: none.

    Raises:
        ConfigError: There are neither tables nor dense weights, or a table has one of the reserved
            names `DENSE_TABLE` and `STATISTICS_TABLE`.

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
                f"A target model needs tables or dense weights, and the names '{DENSE_TABLE}' and "
                f"'{STATISTICS_TABLE}' are reserved. Received: tables {sorted(self.tables)}, "
                f"{len(self.dense)} dense weights"
            )

    def with_policies(self, policies: Mapping[str, Mapping[str, float]]) -> ModelSpec:
        """Returns the specification with other policies of the tables.

        Args:
            policies: Policy of each table, by table name, as `TableSpec.policy`. Tables without an
                entry get no policy.

        Raises:
            ConfigError: `policies` names a table that the model does not have.
        """
        unknown = sorted(set(policies) - set(self.tables))
        if unknown:
            raise ConfigError(
                "Policies must name tables of the model. Received: policies of "
                f"{unknown}; the model's tables are {sorted(self.tables)}"
            )
        tables = {
            name: dataclasses.replace(table, policy=policies.get(name, {}))
            for name, table in self.tables.items()
        }
        return dataclasses.replace(self, tables=tables)

    def with_unseen(self, other: ModelSpec) -> ModelSpec:
        """Returns the specification with what keys without a row read in another one.

        Args:
            other: Other specification; tables that it does not have stay as they are.
        """
        tables = {
            name: dataclasses.replace(table, unseen=other.tables.get(name, table).unseen)
            for name, table in self.tables.items()
        }
        return dataclasses.replace(self, tables=tables)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shapes of all dense weights: `dense`, then `statistics`, which no gradient trains."""
        return [tuple(shape) for shape in (*self.dense, *self.statistics)]

    @property
    def all_tables(self) -> dict[str, TableSpec]:
        """The tables by name; last the tables whose rows hold the dense weights, if any."""
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
        """All tables in the sync unit's store, by name.

        These are `all_tables`, and for each table with an admission the table of its waiting keys.
        """
        waiting = {
            name + WAITING_SUFFIX: TableSpec(1, policy=table.policy)
            for name, table in self.tables.items()
            if table.policy.get("admission", 0) > 1
        }
        return self.all_tables | waiting

    def rows_of(self, weights: Sequence[np.ndarray]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Returns the keys and rows that hold the dense weights, by table.

        Args:
            weights: Dense weights, one for each of `shapes`.
        """
        count = len(self.dense)
        parts = {DENSE_TABLE: weights[:count], STATISTICS_TABLE: weights[count:]}
        return {name: dense_rows(part) for name, part in parts.items() if len(part)}

    def rows_of_states(self, states: Sequence[Sequence[np.ndarray]]) -> np.ndarray | None:
        """Returns the optimizer states of the rows that hold the weights of `dense`.

        Args:
            states: Optimizer states, one list for each of `dense_slots`, with one array for each
                weight.

        Returns:
            float32 `[rows, dense_slots, DENSE_DIM]`, or `None` without states or dense weights. The
            padding of the last row has the values of a new row's state.
        """
        if not states or not self.dense:
            return None
        slots = np.stack([dense_rows(slot)[1] for slot in states], axis=1)
        size = sum(int(np.prod(shape)) for shape in self.dense)
        first = (self.dense_optimizer or {}).get("initial_accumulator_value", 0.0)
        slots[-1, 0, DENSE_DIM - (-size % DENSE_DIM) :] = first
        return slots

    def states_of(self, rows: np.ndarray) -> list[list[np.ndarray]]:
        """Returns the optimizer states in rows, as given to `rows_of_states`.

        Args:
            rows: float32 `[rows, dense_slots, DENSE_DIM]`.
        """
        return [dense_weights(rows[:, slot], self.dense) for slot in range(self.dense_slots)]

    def keys_of_weights(self) -> dict[str, np.ndarray]:
        """Returns the keys of the rows that hold the dense weights, by table."""
        parts = {DENSE_TABLE: self.dense, STATISTICS_TABLE: self.statistics}
        return {name: dense_keys(part) for name, part in parts.items() if len(part)}

    def weights_of(self, rows: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Returns the dense weights in rows, in the order of `shapes`.

        Args:
            rows: Rows of each table of dense weights, float32 `[n, DENSE_DIM]`, sorted by key.
        """
        parts = {DENSE_TABLE: self.dense, STATISTICS_TABLE: self.statistics}
        return [
            weight
            for name, shapes in parts.items()
            if len(shapes)
            for weight in dense_weights(rows[name], shapes)
        ]

    @override
    def to_json(self) -> str:
        """Returns the specification as JSON. Equal specifications have equal texts."""
        fields = dataclasses.asdict(self)
        for table in fields["tables"].values():
            if table["unseen"] == "initial":  # as in texts of older versions
                del table["unseen"]
        return json.dumps(fields, sort_keys=True)

    @classmethod
    @override
    def from_json(cls, text: str) -> ModelSpec:
        """Returns the specification from the JSON of `to_json`.

        Raises:
            ConfigError: The text is not a specification.
        """
        try:
            fields: dict[str, Any] = json.loads(text)
            tables = {
                name: TableSpec(**{**table, "initializer": tuple(table["initializer"])})
                for name, table in fields.pop("tables").items()
            }
            dense, statistics = (
                [tuple(shape) for shape in fields.pop(name, ())] for name in ("dense", "statistics")
            )
            return cls(tables, dense, statistics=tuple(statistics), **fields)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ConfigError(
                "The text must be the JSON of a target model's specification. Received: "
                f"{text[:200]!r} ({error!r})"
            ) from error


def dense_rows(weights: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Returns keys int64 `[n]` and rows float32 `[n, DENSE_DIM]` of dense weights.

    The weights are concatenated in order; the last row is padded with zeros.

    Args:
        weights: Weights of any shapes, float32.

    Raises:
        ValueError: There are no weights.
    """
    flat = np.concatenate([np.ravel(np.asarray(each, np.float32)) for each in weights])
    count = -(-len(flat) // DENSE_DIM)
    padded = np.zeros(count * DENSE_DIM, np.float32)
    padded[: len(flat)] = flat
    return np.arange(count, dtype=np.int64), padded.reshape(count, DENSE_DIM)


def dense_weights(rows: np.ndarray, shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    """Returns the dense weights in the rows of `dense_rows`, with the given shapes.

    Args:
        rows: Rows of `dense_rows`, float32 `[n, DENSE_DIM]`.
        shapes: Shape of each weight, in the order of `dense_rows`.
    """
    sizes = [int(np.prod(shape)) for shape in shapes]
    pieces = np.split(rows.reshape(-1)[: sum(sizes)], np.cumsum(sizes)[:-1])
    return [piece.reshape(shape) for piece, shape in zip(pieces, shapes, strict=True)]


def dense_keys(shapes: Sequence[tuple[int, ...]]) -> np.ndarray:
    """Returns the keys of the rows that hold dense weights: 0 to n - 1, int64 `[n]`.

    Args:
        shapes: Shapes of the weights. Their floats fill the rows one after another.
    """
    size = sum(int(np.prod(shape)) for shape in shapes)
    return np.arange(-(-size // DENSE_DIM), dtype=np.int64)
