"""Which queue a row belongs to, and which target models are trained from a queue."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from tfhybrid.errors import ConfigError, LeaseRefusedError


@dataclasses.dataclass(frozen=True)
class Routes:
    """The declared mapping.

    Args:
        columns: By whose values rows are dealt out: of medium, or of medium and slot.
        queues: The queue of each value, or of several values joined by `/`.
        models: The queues of each target model.

    Raises:
        ConfigError: A model has a queue that nothing is put into.

    Example:

    >>> routes = Routes(
    ...     columns=("medium", "slot"),
    ...     queues={"video/top": "video", "video/side": "video", "news/top": "news"},
    ...     models={"video-model": ["video"], "all": ["video", "news"]},
    ... )
    >>> routes.queues_of("video-model")
    ('video',)
    """

    columns: Sequence[str]
    queues: Mapping[str, str]
    models: Mapping[str, Sequence[str]]

    def __post_init__(self) -> None:
        for model, names in self.models.items():
            unknown = sorted(set(names) - set(self.queues.values()))
            if unknown or not names:
                raise ConfigError(
                    f"Model '{model}' wants queues out of {sorted(set(self.queues.values()))}. "
                    f"Received: {list(names)}"
                )

    def queues_of(self, model: str) -> tuple[str, ...]:
        """Returns the queues that a model is trained from.

        Raises:
            LeaseRefusedError: There is no such model.
        """
        if model not in self.models:
            raise LeaseRefusedError(
                f"The models are {sorted(self.models)}. Received: a request for '{model}'"
            )
        return tuple(self.models[model])

    def deal(self, batch: pa.RecordBatch) -> tuple[dict[str, pa.RecordBatch], np.ndarray]:
        """Deals rows out to their queues.

        Args:
            batch: Rows with the columns.

        Returns:
            The rows of each queue, in order, and the numbers of the rows that have none.
        """
        columns = (batch[name].to_pylist() for name in self.columns)
        names = [self.queues.get(_joined(values)) for values in zip(*columns, strict=True)]
        found = np.array(names, object)
        dealt = {
            name: batch.take(pa.array(np.flatnonzero(found == name)))
            for name in dict.fromkeys(names)
            if name is not None
        }
        return dealt, np.array([i for i, name in enumerate(names) if name is None], np.int64)

    def value_of(self, batch: pa.RecordBatch, row: int) -> str:
        """Returns by which value a row is dealt out."""
        return _joined(batch[name][row].as_py() for name in self.columns)


def _joined(values: Iterable[object]) -> str:
    return "/".join(map(str, values))
