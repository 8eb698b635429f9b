"""The mapping from rows to queues, and from target models to queues."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from tfhybrid.errors import ConfigError, LeaseRefusedError
from tfhybrid.stream.queues.dead_letters import DeadLetter, letters_of
from tfhybrid.stream.queues.decoded_rows import DecodedRows
from tfhybrid.stream.queues.queue import QueuePosition
from tfhybrid.stream.queues.rows import encode


@dataclasses.dataclass(frozen=True)
class Routes:
    """The mapping declared in `stream.yaml`. Immutable.

    Args:
        columns: Names of the columns that decide a row's queue, such as the medium, or medium and
            slot; at least one.
        queues: Name of the queue for each value of `columns`. The values of several columns are
            joined by `/`. Keys that are no text, such as 7, are taken as text.
        models: Names of the queues that each target model is trained from, by model; at least one.
        others: Names of further queues, which other programs write: no row is put into them.
            `columns` and `queues` may be empty then. Default none.

    Raises:
        ConfigError: There is no column, a value of `queues` can be that of no row, or names a queue
            in `others`, or a model has no queue, or one that is in neither, or no folder can have
            the name of a model or queue.

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
    others: Collection[str] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.queues, Mapping) or not isinstance(self.models, Mapping):
            raise ConfigError(
                "queues and models of routes must be mappings. "
                f"Received: queues={self.queues!r}, models={self.models!r}"
            )
        object.__setattr__(self, "queues", {str(each): to for each, to in self.queues.items()})
        needs_columns = bool(self.queues) or not self.others
        if (needs_columns and not self.columns) or isinstance(self.columns, str):
            raise ConfigError(
                "routes need a list of at least one column, whose value decides a row's queue. "
                f"Received: columns={self.columns!r}"
            )
        never = [each for each in self.queues if each.count("/") < len(self.columns) - 1]
        if never:
            raise ConfigError(
                f"The queues of routes are named by one value for each of the columns "
                f"{list(self.columns)}, joined by `/`. Received: {never}"
            )
        foreign = sorted(
            {to for to in self.queues.values() if {to, to.rpartition("/")[0]} & {*self.others}}
        )
        if foreign:
            raise ConfigError(
                "Only other programs write a queue with `ours: no`, so that no route leads there. "
                f"Received: routes to {foreign}"
            )
        names_of_queues = {*self.queues.values(), *self.others}
        odd = [each for each in [*names_of_queues, *self.models] if not _names_folder(str(each))]
        if odd:
            raise ConfigError(
                "Models and queues have folders of their names, so these must be text in UTF-8 "
                f"without zeros and `..`. Received: {odd}"
            )
        for model, names in self.models.items():
            if not names or not names_of_queues.issuperset(names):
                raise ConfigError(
                    f"The queues of model '{model}' must be among "
                    f"{sorted(names_of_queues)}, at least one. Received: {list(names)}"
                )

    def queues_of(self, model: str) -> tuple[str, ...]:
        """Returns the names of the queues that a model is trained from.

        Raises:
            LeaseRefusedError: There is no such model.
        """
        if model not in self.models:
            raise LeaseRefusedError(
                f"The model must be one of {sorted(self.models)}. Received: '{model}'"
            )
        return tuple(self.models[model])

    def deal(self, batch: pa.RecordBatch) -> tuple[dict[str, pa.RecordBatch], np.ndarray]:
        """Splits rows by queue.

        Args:
            batch: Rows that have all of `columns`.

        Returns:
            The rows of each queue in their order, by queue, and the numbers of the rows that have
            no queue, int64.

        Raises:
            ConfigError: Only other programs write the queues.
            KeyError: The batch lacks one of `columns`.
        """
        if not self.columns:
            raise ConfigError(
                "Rows can be put only if `routes` names queues for them. Received: rows for a "
                f"stream of which other programs write all queues, {sorted(self.others)}"
            )
        columns = (batch[name].to_pylist() for name in self.columns)
        names = [self.queues.get(_joined(values)) for values in zip(*columns, strict=True)]
        queue_of_row = np.array(names, object)
        dealt = {
            name: batch.take(pa.array(np.flatnonzero(queue_of_row == name)))
            for name in dict.fromkeys(names)
            if name is not None
        }
        return dealt, np.array([i for i, name in enumerate(names) if name is None], np.int64)

    def letters(self, number: int, decoded: DecodedRows, lost: np.ndarray) -> list[DeadLetter]:
        """Returns the bad rows of a producer's record, and then those without a queue.

        Args:
            number: Number of the record.
            decoded: The rows of the record.
            lost: Numbers of the rows that have no queue, int64, as `deal` returns them.
        """
        letters = letters_of(number, decoded.bad)
        for row in lost.tolist():
            at = QueuePosition(number, int(decoded.numbers[row]))
            value = _joined(decoded.batch[name][row].as_py() for name in self.columns)
            payload = encode(decoded.batch.slice(row, 1)).payload
            letters.append(DeadLetter(at, f"No queue is declared for {value}", payload))
        return letters


def _joined(values: Iterable[object]) -> str:
    return "/".join(map(str, values))


def _names_folder(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return bool(name) and "\0" not in name and ".." not in name.split("/")
