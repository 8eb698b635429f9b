"""Columns from the short forms of the formats' arguments: names, and one value for missing ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfhybrid.data.formats.label import Label
from tfhybrid.errors import ConfigError
from tfhybrid.values.column import Column
from tfhybrid.values.reasons import Reason

ColumnSpec = str | Column
"""A column as formats take it: its name, or a `Column` with settings of its own."""

WORDING: Mapping[str, Mapping[Reason, str]] = {
    "key": {
        Reason.MISSING: "a key (missing_key= would replace a missing one)",
        Reason.KIND: "a key that is a whole number",
        Reason.WHOLE: "keys that are int64, and so whole numbers",
        Reason.RANGE: "keys that are int64",
        Reason.SPELLING: "a key, a whole number of int64",
    },
    "string": {Reason.MISSING: "a key (missing_key= would replace a missing one)"},
    "time": {
        Reason.MISSING: "a time (missing= of its Column would replace a missing one)",
        Reason.KIND: "a time: a timestamp, a date or a string (the role 'key' reads numbers)",
    },
    "number": {Reason.MISSING: "a number (missing_value= would replace a missing one)"},
}
"""Descriptions of good values that name the formats' arguments, by the role of the column."""

KEY_ROLES = ("key", "string", "time")
"""Roles of the columns that become features; the first one is that of a name."""


def name_of(spec: ColumnSpec) -> str:
    """Returns the name of a column."""
    return spec.name if isinstance(spec, Column) else spec


def refuse_text(specs: Sequence[ColumnSpec]) -> None:
    """Refuses a text in place of a list of columns, whose letters would become columns.

    Args:
        specs: Names or columns.

    Raises:
        ConfigError: The argument is a text.
    """
    if isinstance(specs, str):
        raise ConfigError(
            f"Columns must be a list of names, such as [{specs!r}]. Received: {specs!r}"
        )


def columns_of(
    specs: Sequence[ColumnSpec], roles: Sequence[str], missing: Any, **settings: Any
) -> list[Column]:
    """Returns the columns that an argument of a format describes.

    Args:
        specs: Names or columns.
        roles: Roles that the columns may have; the first one is that of a name.
        missing: Value for a missing one in columns that are given by name; `None` for an error.
        **settings: Other settings of columns that are given by name.

    Raises:
        ConfigError: A column has another role, or there is a text in place of a list of names.
    """
    refuse_text(specs)
    columns = []
    for spec in specs:
        if not isinstance(spec, Column):
            role: Any = roles[0]
            spec = Column(spec, role, missing=missing, **settings)
        if spec.role not in roles:
            raise ConfigError(
                f"Column {spec.name!r} must have a role of {list(roles)} here. "
                f"Received: {spec.role!r}"
            )
        columns.append(spec)
    return columns


def lists_of(specs: Sequence[ColumnSpec], roles: Sequence[str] = KEY_ROLES) -> list[Column]:
    """Returns the columns of lists that an argument of a format describes.

    They have any length, unless a `Column` says from 2 on: its default, 1, is no list.

    Args:
        specs: Names or columns.
        roles: Roles that the columns may have; the first one is that of a name. Default: those of
            features.

    Raises:
        ConfigError: See `columns_of`.
    """
    columns = columns_of(specs, roles, None, length=None)
    return [
        dataclasses.replace(column, length=None) if column.length == 1 else column
        for column in columns
    ]


def dense_of(specs: Sequence[ColumnSpec], missing: float | None) -> list[Column]:
    """Returns the columns of numbers that the argument `dense` of a format describes.

    Args:
        specs: Names or columns.
        missing: Value for a missing one in columns that are given by name; `None` for an error.

    Raises:
        ConfigError: See `columns_of`; or a column has lists of any length, or is not float32.
    """
    columns = columns_of(specs, ("number",), missing)
    for column in columns:
        if column.length is None or column.dtype != "float32":
            raise ConfigError(
                "A dense column must be float32, with one number in a row or lists of one length. "
                f"Received: {column}"
            )
    return columns


def column_of_label(label: Label, clicks: Sequence[float] = (0, 1)) -> Column:
    """Returns the column of a label.

    Args:
        label: Description of the label.
        clicks: Values that clicks without a threshold may have. Default 0 and 1.
    """
    if label.names:
        return Column(label.column, "label", classes=tuple(label.names))
    if label.kind == "class":
        return Column(label.column, "label", dtype="int64", low=0, high=2**62 - 1)
    plain = label.kind == "number" or label.positive is not None
    return Column(label.column, "label", classes=() if plain else tuple(clicks))


def wording_of_label(label: Label, column: Column) -> dict[Reason, str]:
    """Returns the descriptions of good labels, for every reason.

    Args:
        label: Description of the label.
        column: Its column.
    """
    words = f"a label of {list(column.classes)}" if label.is_plain_click else label.wanted
    return dict.fromkeys(Reason, words)


def label_values(label: Label, values: np.ndarray) -> np.ndarray:
    """Returns labels of checked values: 0 and 1 if there is a threshold, else the same.

    Args:
        label: Description of the label.
        values: Checked values of its column.
    """
    if label.positive is None:
        return values
    return (values >= label.positive).astype(np.float32)


def check_names(columns: Sequence[str], labels: Sequence[Label] = ()) -> None:
    """Checks that no column is read twice, for example as a feature and as a dense column.

    Args:
        columns: Names of the features and dense columns, whatever a format reads them as.
        labels: Labels that have a column. Default: none.

    Raises:
        ConfigError: A name occurs twice, or is that of a label; the message has all such names.
    """
    twice = sorted({name for name in columns if list(columns).count(name) > 1})
    if twice:
        raise ConfigError(
            "Each column can be read once: as a feature, a string, a list or a dense column. "
            f"Received: {twice} more than once"
        )
    if answers := sorted({each.column for each in labels} & set(columns)):
        raise ConfigError(
            "A label must not be a feature or dense column, because it tells the model the "
            f"answer: leave it out of these. Received: label={answers}"
        )
