"""What a column of labels holds: clicks, numbers, classes by id or by name; and several columns."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from tfhybrid.errors import ConfigError

KINDS = ("click", "number", "class")


@dataclasses.dataclass(frozen=True)
class Label:
    r"""A column of labels.

    A reader takes the name of a column, whose labels are clicks, a `Label`, or several of both.
    Several become a dictionary by column, as Keras wants the labels of a model with such outputs.

    Args:
        column: Its name in the files.
        kind: `"click"`: 0 or 1, float32. `"number"`: any number, float32, for regression.
            `"class"`: whole numbers from 0 on, int64, for `SparseCategoricalCrossentropy`.
        positive: A click is 1 where the column is at least this. Defaults to none: the column must
            hold 0 and 1.
        names: Of classes: the column holds strings, and a class is the place of its name here.

    Raises:
        ConfigError: There is no such kind, or another argument is not of it.

    Example:

    >>> import pathlib, tempfile
    >>> from tfhybrid.data import Csv, Label
    >>> path = pathlib.Path(tempfile.mkdtemp(), "orders.csv")
    >>> _ = path.write_text("click,price,device,user\n1,9.5,phone,7\n0,0,tv,8\n")
    >>> device = Label("device", "class", names=["phone", "tv"])
    >>> orders = Csv(["user"], label=["click", Label("price", "number"), device]).read(path)
    >>> {name: column.tolist() for name, column in orders.label.items()}
    {'click': [1.0, 0.0], 'price': [9.5, 0.0], 'device': [0, 1]}
    """

    column: str
    kind: str = "click"
    positive: float | None = None
    names: Sequence[str] = ()

    def __post_init__(self) -> None:
        wanted = "class" if self.names else "click" if self.positive is not None else self.kind
        if self.kind not in KINDS or wanted != self.kind:
            raise ConfigError(
                f"A Label is of a kind {KINDS}; positive= is of clicks, names= are of classes. "
                f"Received: {self}"
            )
        if len(set(self.names)) != len(self.names):
            raise ConfigError(f"Each class has a name of its own. Received: {list(self.names)}")

    @property
    def wanted(self) -> str:
        """What a value must be, for an error."""
        if self.names:
            return f"one of the names {list(self.names)}"
        kinds = {
            "click": "a label of [0, 1]" if self.positive is None else "a number",
            "number": "a number",
            "class": "a class, a whole number from 0 on",
        }
        return kinds[self.kind]


LabelSpec: TypeAlias = str | Label | Sequence[str | Label]
"""What a reader's `label=` takes."""


def labels_of(spec: LabelSpec, positive: float | None) -> list[Label]:
    """Returns the labels that a reader was asked for.

    Args:
        spec: The reader's `label=`.
        positive: Its `positive=`, of the columns that are given by name alone.
    """
    given = [spec] if isinstance(spec, str | Label) else list(spec)
    found = [each if isinstance(each, Label) else Label(each, positive=positive) for each in given]
    if not found or len({label.column for label in found}) != len(found):
        raise ConfigError(f"A reader wants a label, each column once. Received: label={spec!r}")
    return found


def gathered(
    spec: LabelSpec, positive: float | None, read: Callable[[Label], np.ndarray]
) -> np.ndarray | dict[str, np.ndarray]:
    """Returns the labels that a reader was asked for: an array, or by column where several were."""
    labels = labels_of(spec, positive)
    if isinstance(spec, str | Label):
        return read(labels[0])
    return {label.column: read(label) for label in labels}
