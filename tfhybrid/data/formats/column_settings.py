"""Columns from the short forms of the formats' arguments: names, and one value for missing ones."""

from __future__ import annotations

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
    "number": {Reason.MISSING: "a number (missing_value= would replace a missing one)"},
}
"""Descriptions of good values that name the formats' arguments, by the role of the column."""


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


def check_names(columns: Sequence[str]) -> None:
    """Checks that no column is read twice, for example as a feature and as a dense column.

    Args:
        columns: Names of all columns that a format reads, whatever it reads them as.

    Raises:
        ConfigError: A name occurs twice; the message has all such names.
    """
    twice = sorted({name for name in columns if list(columns).count(name) > 1})
    if twice:
        raise ConfigError(
            "Each column can be read once: as a feature, a string, a list or a dense column. "
            f"Received: {twice} more than once"
        )
