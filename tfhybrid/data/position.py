"""Positions of training in its data, which are saved in checkpoints and states in memory.

A position is saved as a cursor: a JSON object that only the data source interprets. Sources that
read from a queue, or from shards, define cursors of their own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from tfhybrid.errors import ConfigError

Cursor: TypeAlias = dict[str, Any]
"""A JSON object."""


class _EpochStep(NamedTuple):
    epoch: int = 0
    step: int = 0


class Position(_EpochStep):
    """A position in epochs of data: `step` batches of epoch `epoch` have been used.

    It is a tuple `(epoch, step)`. In addition, it may say what data its steps count.

    Args:
        epoch: Number of the epoch. Default 0.
        step: Number of used batches of the epoch. Default 0.
        data: JSON object with what the steps belong to: batch size, ranks, seed, files. Batches of
            tfhybrid write and read it (`ResumableBatches.at`). Default `None`, unknown.
    """

    data: Cursor | None = None

    def __new__(cls, epoch: int = 0, step: int = 0, data: Cursor | None = None) -> Position:
        """Creates a position; see the class."""
        position = super().__new__(cls, epoch, step)
        position.data = data
        return position

    @property
    def starts_epoch(self) -> bool:
        """Whether no sample of the epoch has been used."""
        # Few samples of an earlier run with other steps may be no step less.
        return self.step == 0 and not (self.data or {}).get("before")

    def advanced(self, steps: int) -> Position:
        """Returns a position with `steps` added to `step`, and the same `epoch` and `data`.

        It does not know the length of an epoch, and never continues in the next one.

        Args:
            steps: Number of batches used since this position.
        """
        return Position(self.epoch, self.step + steps, self.data)


class StreamPosition(NamedTuple):
    """A position in a stream: `row` samples, counted from the start of `file`, have been used."""

    file: str
    row: int = 0


AnyPosition: TypeAlias = Position | StreamPosition | Mapping[str, Any]
"""A position of tfhybrid, or a cursor of another data source."""


def cursor_of(position: AnyPosition) -> Cursor:
    """Returns the cursor of a position.

    Raises:
        ConfigError: `position` is not a position, or cannot be represented in JSON.

    Example:

    >>> cursor_of(Position(1, 20))
    {'epoch': 1, 'step': 20}
    """
    try:
        named = dict(position) if isinstance(position, Mapping) else position._asdict()
        if isinstance(position, Position) and position.data is not None:
            named["data"] = position.data
        return json.loads(json.dumps(named, allow_nan=False, default=int))
    except (AttributeError, TypeError, ValueError) as error:
        raise ConfigError(
            "A position must be a Position, a StreamPosition, or a JSON object. "
            f"Received: {position!r}"
        ) from error


def position_of(cursor: Cursor) -> Position | StreamPosition | Cursor:
    """Returns the position of a cursor; a cursor of another source is returned unchanged.

    Example:

    >>> position_of({"epoch": 1, "step": 20})
    Position(epoch=1, step=20)
    >>> position_of({"clicks": [17, 21]})
    {'clicks': [17, 21]}
    """
    match cursor:
        case {"epoch": int(epoch), "step": int(step), "data": dict(data), **others} if not others:
            return Position(epoch, step, data)
        case {"epoch": int(epoch), "step": int(step), **others} if not others:
            return Position(epoch, step)
        case {"file": str(file), "row": int(row), **others} if not others:
            return StreamPosition(file, row)
    return cursor


def told(position: AnyPosition) -> str:
    """Returns a position in words, for logs.

    Raises:
        ConfigError: `position` is not a position, or cannot be represented in JSON.

    Example:

    >>> told(Position(1, 20))
    'epoch 1, step 20'
    """
    cursor = cursor_of(position)
    if isinstance(position_of(cursor), Position):
        cursor.pop("data", None)
    return ", ".join(f"{name} {value}" for name, value in cursor.items())
