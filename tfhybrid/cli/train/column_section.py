"""Columns in the YAML file of `tfhybrid train`: a name, or a section with settings of its own."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from tfhybrid.cli.train.settings_section import Count, Section, kind_of
from tfhybrid.values import Column


class ColumnSettings(Section):
    """Settings of a column, in place of its name: `{name: at, role: time}`.

    They are those of `tfhybrid.data.Column`. `missing_key`, `missing_value` and `empty` of `data`
    are for names alone.
    """

    name: str = Field(description="Name of the column.")
    role: Literal["key", "string", "time", "number"] | None = Field(
        None,
        description="Use of the values; by default that of names in the same list. A time becomes "
        "microseconds since 1970.",
    )
    length: Count | Literal["any"] = Field(
        1, description='Number of values in a row, or `"any"`; Parquet files show it themselves.'
    )
    missing: int | float | str | None = Field(
        None, description="Value for a missing one; by default that is an error."
    )
    empty: Literal["string", "missing"] = Field(
        "string", description="Meaning of an empty text in a column of strings."
    )
    low: float | None = Field(None, description="Smallest good value.")
    high: float | None = Field(None, description="Largest good value.")

    def column(self, role: str) -> Column:
        """Returns the column that this section describes.

        Args:
            role: Role of the column if the section has none.

        Raises:
            ConfigError: The settings contradict each other.
        """
        length = None if self.length == "any" else self.length
        fields = self.model_dump(exclude={"role", "length"})
        return Column(role=self.role or role, length=length, **fields)  # type: ignore[arg-type]


ColumnSpecs = list[
    Annotated[
        Annotated[str, Tag("name")] | Annotated[ColumnSettings, Tag("section")],
        Discriminator(kind_of),
    ]
]
COLUMN_LISTS = {"features": "key", "strings": "string", "lists": "key", "dense": "number"}
"""Lists of columns in `data`, and the roles of their columns that have none of their own."""


def names_of(specs: list[str | ColumnSettings] | None) -> list[str]:
    """Returns the names of columns.

    Args:
        specs: Names, and sections of columns; `None` is an empty list.
    """
    return [each if isinstance(each, str) else each.name for each in specs or []]


def specs_of(specs: list[str | ColumnSettings] | None, role: str) -> list[str | Column] | None:
    """Returns columns as formats take them.

    Args:
        specs: Names, and sections of columns; `None` stays `None`.
        role: Role of columns that have none of their own.

    Raises:
        ConfigError: The settings of a column contradict each other.
    """
    if specs is None:
        return None
    return [each if isinstance(each, str) else each.column(role) for each in specs]
