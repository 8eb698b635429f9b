"""Columns of labels: clicks, numbers, classes by id or name; one column or several."""

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

    The argument `label` of a reader is a `Label`, or the name of a column of clicks; or a list of
    these. A list gives a dictionary of labels by column name, as Keras expects for a model with
    outputs of these names. Reading raises `DataError` if the column has a value that its kind does
    not allow.

    Args:
        column: Name of the column in the files.
        kind: Kind of the labels. `"click"` (default): 0 or 1, float32. `"number"`: any number,
            float32, for regression. `"class"`: whole numbers from 0, int64, for
            `SparseCategoricalCrossentropy`.
        positive: Threshold of clicks: a label is 1 if the column is at least this. By default the
            column must contain 0 and 1.
        names: Names of the classes, with `kind="class"`: the column contains these strings, and a
            label is the index of its string. By default the column contains the numbers of the
            classes.

    Raises:
        ConfigError: The kind is unknown, `positive` or `names` does not apply to it, or two classes
            have the same name.

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
        implied = "class" if self.names else "click" if self.positive is not None else self.kind
        if self.kind not in KINDS or implied != self.kind:
            raise ConfigError(
                f"A Label's kind must be one of {KINDS}; positive= is for clicks, names= for "
                f"classes. Received: {self}"
            )
        if len(set(self.names)) != len(self.names):
            raise ConfigError(
                f"Each class must have a different name. Received: {list(self.names)}"
            )

    @property
    def is_plain_click(self) -> bool:
        """Whether the column contains clicks as they are, without a threshold."""
        return self.kind == "click" and self.positive is None

    @property
    def wanted(self) -> str:
        """Description of valid label values, for errors, such as "a number"."""
        if self.names:
            return f"one of the names {list(self.names)}"
        kinds = {
            "click": "a label of [0, 1]" if self.positive is None else "a number",
            "number": "a number",
            "class": "a class, a whole number from 0 on",
        }
        return kinds[self.kind]


LabelSpec: TypeAlias = str | Label | Sequence[str | Label]
"""Type of a reader's argument `label`."""


def labels_of(spec: LabelSpec, positive: float | None) -> list[Label]:
    """Returns the labels that a reader's arguments describe.

    Args:
        spec: Argument `label` of the reader.
        positive: Argument `positive` of the reader, for columns that are given only by name.

    Raises:
        ConfigError: There is no label, or a column occurs twice.
    """
    specs = [spec] if isinstance(spec, str | Label) else list(spec)
    labels = [each if isinstance(each, Label) else Label(each, positive=positive) for each in specs]
    if not labels or len({label.column for label in labels}) != len(labels):
        raise ConfigError(
            f"A reader needs at least one label, each column once. Received: label={spec!r}"
        )
    return labels


def gathered(
    spec: LabelSpec, positive: float | None, read: Callable[[Label], np.ndarray]
) -> np.ndarray | dict[str, np.ndarray]:
    """Returns the labels of a reader: an array, or for a list a dictionary of arrays by column.

    Args:
        spec: Argument `label` of the reader.
        positive: Argument `positive` of the reader.
        read: Function that reads one column of labels.

    Raises:
        ConfigError: There is no label, or a column occurs twice.
    """
    labels = labels_of(spec, positive)
    if isinstance(spec, str | Label):
        return read(labels[0])
    return {label.column: read(label) for label in labels}
