"""What a target model consists of, as the sync unit must know it: tables, and dense weights."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfhybrid.core.native import OptimizerKind
from tfhybrid.errors import ConfigError

ADD = "add"
DENSE_TABLE = "tfhybrid/dense"
DENSE_DIM = 64  # floats of a row of dense weights


@dataclasses.dataclass(frozen=True)
class TableSpec:
    """A table.

    Args:
        dim: Floats of an embedding.
        initializer: `native` of one of `tfhybrid.initializers`.
        optimizer: Fields of `native.OptimizerConfigStruct`; or none, if trainers send deltas.
        slots: Vectors of `dim` floats in a row's optimizer state.
    """

    dim: int
    initializer: tuple[int, float, float] = (0, 0.0, 0.0)
    optimizer: Mapping[str, float] | None = None
    slots: int = 0

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

    def __post_init__(self) -> None:
        if DENSE_TABLE in self.tables or not (self.tables or self.dense):
            raise ConfigError(
                f"A target model has tables or dense weights, and no table '{DENSE_TABLE}'. "
                f"Received: tables {sorted(self.tables)}, {len(self.dense)} dense weights"
            )

    @property
    def all_tables(self) -> dict[str, TableSpec]:
        """The tables, and last the one whose rows are the dense weights, if there are any."""
        tables = dict(self.tables)
        if self.dense:
            tables[DENSE_TABLE] = TableSpec(
                DENSE_DIM, optimizer=self.dense_optimizer, slots=self.dense_slots
            )
        return tables

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
            dense = [tuple(shape) for shape in found.pop("dense")]
            return cls(tables, dense, **found)
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
