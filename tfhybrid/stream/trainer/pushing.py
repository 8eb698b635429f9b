"""What of a lease a trainer sends to the sync unit: an interface with two implementations."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from tfhybrid.stream.weights.model_spec import ModelSpec


@dataclasses.dataclass(frozen=True)
class Pushed:
    """What is sent of a lease.

    Args:
        keys: int64 `[n]` of each table, each key once.
        values: Of each key, float32 `[n, dim]`.
        dense: Of the dense weights; `None` leaves them as they are.
        rates: Learning rate of each table that has an optimizer in the sync unit.
    """

    keys: Mapping[str, np.ndarray]
    values: Mapping[str, np.ndarray]
    dense: Sequence[np.ndarray] | None
    rates: Mapping[str, float] = dataclasses.field(default_factory=dict)


class Push(Protocol):
    """Turns a trained lease into what is sent of it."""

    def spec(self) -> ModelSpec:
        """Returns what the model consists of, as the sync unit must know it."""

    def states(self) -> np.ndarray | None:
        """Returns the optimizer's state of the dense weights, as of `ModelSpec.states_of`.

        `None`, if the sync unit runs no optimizer for them.
        """

    def begin(
        self,
        keys: Mapping[str, np.ndarray],
        rows: Mapping[str, np.ndarray],
        dense: Sequence[np.ndarray],
        version: int,
    ) -> None:
        """Notes with which weights a lease begins; the model has them already.

        Args:
            keys: Of the rows that the lease needs, by table.
            rows: Of each key.
            dense: The dense weights.
            version: Of all of them.
        """

    def collect(self) -> Pushed:
        """Returns what is sent of the lease that has been trained."""

    def close(self) -> None:
        """Lets the model train its own weights again."""
