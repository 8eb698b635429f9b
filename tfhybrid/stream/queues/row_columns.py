"""The declared columns of a stream's rows: from `stream.yaml` or an Arrow schema to `Column`s."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tfhybrid.errors import ConfigError
from tfhybrid.values import ArrowColumn, Column, QuickCheck

# Fields of a column's mapping in stream.yaml beside `type`: those of `Column`.
_FIELDS = ("role", "missing", "empty", "low", "high", "finite", "classes")


@dataclasses.dataclass(frozen=True)
class RowColumn:
    """A declared column of a stream. Immutable.

    Args:
        field: Name, Arrow type, and whether a row may lack a value, which is then null.
        column: Description of the good values.

    Attributes:
        quick: Quick check of an array of the declared type.
        present: Quick check of the values of such an array that are not null.
    """

    field: pa.Field
    column: Column
    quick: QuickCheck = dataclasses.field(init=False, repr=False, compare=False)
    present: QuickCheck = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "quick", QuickCheck([self.arrow]))
        present = QuickCheck([self.arrow._replace(nullable=True)])
        object.__setattr__(self, "present", present)

    @property
    def refuses_nulls(self) -> bool:
        """Whether a row is a single value, and bad if this is null."""
        return not self.nullable and self.column.missing is None and self.column.length == 1

    @property
    def arrow(self) -> ArrowColumn:
        """The column with its Arrow type."""
        return ArrowColumn(self.column, self.type, self.nullable)

    @property
    def type(self) -> pa.DataType:
        """Arrow type of the column."""
        return self.field.type

    @property
    def nullable(self) -> bool:
        """Whether a row may lack a value."""
        return bool(self.field.nullable)


@dataclasses.dataclass(frozen=True)
class RowColumns:
    """The declared columns of a stream's rows. Immutable.

    Args:
        declared: Columns in their order.

    Attributes:
        schema: Arrow schema of the rows.
        names: Names of the columns.
        quick: Quick check of arrays of the declared types.

    Example:

    >>> columns = RowColumns.read({"item": "int64", "price": {"type": "float32", "missing": 0}})
    >>> columns.names
    ('item', 'price')
    """

    declared: tuple[RowColumn, ...]
    schema: pa.Schema = dataclasses.field(init=False)
    names: tuple[str, ...] = dataclasses.field(init=False)
    quick: QuickCheck = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "schema", pa.schema([each.field for each in self.declared]))
        object.__setattr__(self, "names", tuple(self.schema.names))
        object.__setattr__(self, "quick", QuickCheck([each.arrow for each in self.declared]))

    @classmethod
    def of(cls, schema: pa.Schema) -> RowColumns:
        """Returns the columns of an Arrow schema.

        Args:
            schema: Names, types, and which columns may lack values.

        Raises:
            ConfigError: A type is not supported.
        """
        return cls(tuple(_declared(field, {}) for field in schema))

    @classmethod
    def read(cls, columns: Mapping[str, str | Mapping[str, Any]]) -> RowColumns:
        """Returns the columns that `stream.yaml` declares.

        Args:
            columns: Type of each column, by name, as Arrow names it; a `?` after it allows nulls.
                Instead of the type, a mapping with `type` and fields of `Column`.

        Raises:
            ConfigError: There is no column, a type is unknown or not supported, or the fields of a
                column contradict each other.
        """
        if not columns:
            raise ConfigError("columns must declare at least one column. Received: none")
        return cls(tuple(_read(name, each) for name, each in columns.items()))


def _read(name: str, settings: str | Mapping[str, Any]) -> RowColumn:
    fields = dict(settings) if isinstance(settings, Mapping) else {"type": settings}
    text = fields.pop("type", None)
    unknown = sorted(set(fields) - set(_FIELDS), key=str)
    if not isinstance(name, str) or not isinstance(text, str) or unknown:
        raise ConfigError(
            f"Column {name!r} must be a type, such as int64 or list<int64>, or a mapping with type "
            f"and any of {_FIELDS}. Received: {settings!r}"
        )
    try:
        dtype = _type(text.rstrip("?"))
    except ValueError as error:
        raise ConfigError(f"Column {name!r} has no type of Arrow: {error}") from error
    return _declared(pa.field(name, dtype, nullable=text.endswith("?")), fields)


def _type(text: str) -> pa.DataType:
    if text.startswith("list<") and text.endswith(">"):
        return pa.list_(_type(text[5:-1]))
    return pa.type_for_alias(text)


def _declared(field: pa.Field, fields: Mapping[str, Any]) -> RowColumn:
    dtype = field.type
    length: int | None = 1
    if pa.types.is_fixed_size_list(dtype):
        dtype, length = dtype.value_type, dtype.list_size
    elif pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        dtype, length = dtype.value_type, None
    rules = _rules(dtype)
    if rules is None:
        raise ConfigError(
            "A stream's columns are integers, floats, bool, string, or lists of these. "
            f"Received: {field.name!r} of type {field.type}"
        )
    column = Column(field.name, **{**rules, "length": length, **fields})
    if (column.role == "string") != (rules["role"] == "string"):
        raise ConfigError(
            f"Column {field.name!r} must have the role 'string' exactly if it has the type string. "
            f"Received: {field.type} and the role {column.role!r}"
        )
    if field.nullable and length == 1 and column.missing is not None:
        raise ConfigError(
            f"Column {field.name!r} must have either ? or `missing`: a missing value is null, or "
            f"replaced. Received: {field.type}? and missing={column.missing!r}"
        )
    return RowColumn(field, column)


def _rules(dtype: pa.DataType) -> dict[str, Any] | None:
    """Returns the fields of the `Column` of a type; `None` if it is not supported."""
    if pa.types.is_signed_integer(dtype):
        return {"role": "key", "dtype": str(dtype)}
    if pa.types.is_unsigned_integer(dtype):  # checked as int64
        high = None if dtype.bit_width == 64 else 2**dtype.bit_width - 1
        return {"role": "key", "low": 0, "high": high}
    if pa.types.is_floating(dtype):
        return {"role": "number", "dtype": f"float{dtype.bit_width}"}
    if pa.types.is_boolean(dtype):
        return {"role": "number", "dtype": "int8", "low": 0, "high": 1}
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary)
    return {"role": "string"} if any(is_of(dtype) for is_of in texts) else None
