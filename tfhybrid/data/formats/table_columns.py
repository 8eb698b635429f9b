"""Tables in memory as samples: Arrow tables, data frames, and dictionaries of arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tfhybrid.data.formats.arrow_columns import NUMBER, ArrowColumns
from tfhybrid.data.formats.column_settings import ColumnSpec, name_of, refuse_text
from tfhybrid.data.formats.label import Label, LabelSpec, labels_of
from tfhybrid.data.samples.clicks import Clicks
from tfhybrid.errors import ConfigError, DataError

_PART_ROWS = 1 << 20  # rows that are checked at a time, so that Arrow can join their texts
_UNREADABLE = (TypeError, ValueError, AttributeError, OverflowError, pa.ArrowException)


def clicks_of(
    table: Any,
    label: LabelSpec,
    *,
    features: Sequence[ColumnSpec] | None = None,
    dense: Sequence[ColumnSpec] | None = None,
    positive: float | None = None,
    missing: tuple[int | None, float | None] = (None, None),
) -> Clicks:
    """Returns the samples of a table.

    Args:
        table: `pyarrow.Table`; `pandas.DataFrame`, or another data frame that Arrow can read;
            or a dictionary of arrays by name.
        label: Label column, a `Label`, or several of them.
        features: Columns of keys. Default: all other columns of whole numbers, strings, or lists of
            those.
        dense: Columns of numbers. Default: all other columns of floats and booleans, and lists of a
            fixed size of those.
        positive: Threshold of clicks: a label is 1 if the column is at least this. Default: the
            column has 0 and 1.
        missing: Key and number for a missing value; `None`, the default, makes it an error.

    Raises:
        ConfigError: The table is of no such kind, or columns are named that it lacks.
        DataError: A value is missing, or is no key, number or label; or a column has another type.
    """
    arrow = _arrow(table)
    if features is None and dense is None and (names := _index_names(table)):
        raise ConfigError(
            "The index of a data frame is not read. Call reset_index() to make a column of it, or "
            f"name features= and dense=. Received: an index with the names {names}"
        )
    features, dense = _chosen(arrow, labels_of(label, positive), features, dense)
    columns = ArrowColumns(features, dense, label, positive, *missing)
    types = columns.types_in("The table", arrow.schema)
    whole = {name: types.get(name, NUMBER) for name in columns.names}
    parts = [
        columns.rows(arrow.slice(first, _PART_ROWS), whole, Path("The table"), first).all_good()
        for first in range(0, max(arrow.num_rows, 1), _PART_ROWS)
    ]
    return Clicks.concatenate(parts)


def _chosen(
    arrow: pa.Table,
    labels: Sequence[Label],
    features: Sequence[ColumnSpec] | None,
    dense: Sequence[ColumnSpec] | None,
) -> tuple[Sequence[ColumnSpec], Sequence[ColumnSpec]]:
    """Returns the columns of keys and of numbers: the named ones, or all that have such a type."""
    for specs in (features or (), dense or ()):
        refuse_text(specs)
    named = [name_of(spec) for spec in (*(features or ()), *(dense or ()))]
    taken = {*(each.column for each in labels), *named}
    if absent := sorted(taken - {*arrow.column_names}):
        raise ConfigError(
            f"The table must have the columns {absent}. Received: {arrow.column_names}"
        )
    others = [each for each in arrow.schema if each.name not in taken]
    if features is None and dense is None and (odd := [f for f in others if not _is_known(f.type)]):
        raise DataError(
            f"Column {odd[0].name!r}: expected whole numbers, strings, floats, or lists of those. "
            "Convert it, leave it out, or name features= and dense=, where a Column with the role "
            f"'time' reads times. Received: {odd[0].type}"
        )
    if features is None:
        features = [each.name for each in others if _is_key(each.type)]
    if dense is None:
        dense = [each.name for each in others if _is_number(each.type)]
    return features, dense


def _arrow(table: Any) -> pa.Table:
    if isinstance(table, Mapping):
        table = {name: _column(name, values) for name, values in table.items()}
    try:
        if any(kind.__module__.partition(".")[0] == "pandas" for kind in type(table).__mro__):
            return pa.Table.from_pandas(table, preserve_index=False)
        return table if isinstance(table, pa.Table) else pa.table(table)
    except _UNREADABLE as error:
        raise ConfigError(
            "A table must be a pyarrow.Table, a data frame, or a dictionary of arrays of one "
            f"length. Received: {type(table).__name__} ({error})"
        ) from error


def _index_names(table: Any) -> list[str]:
    """Returns the names in the index of a pandas data frame, whose values would be left out."""
    names = getattr(getattr(table, "index", None), "names", None) or ()
    return [name for name in names if name is not None]


def _column(name: str, values: Any) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    try:
        if isinstance(values, np.ndarray):
            values = values.astype(values.dtype.newbyteorder("="), copy=False)
            if values.ndim == 2:
                flat = pa.array(values.ravel())
                return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
        return pa.array(values)
    except _UNREADABLE as error:
        raise ConfigError(
            f"Column {name!r} of a table must be an array or a list of whole numbers, floats, "
            f"strings, or lists of those, all of one kind. Received: {type(values).__name__} "
            f"({error})"
        ) from error


def _is_known(kind: pa.DataType) -> bool:
    return _is_key(kind) or _is_number(kind)


def _is_key(kind: pa.DataType) -> bool:
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    while any(is_list(kind) for is_list in lists) or pa.types.is_dictionary(kind):
        kind = kind.value_type
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(is_string(kind) for is_string in tests) or pa.types.is_integer(kind)


def _is_number(kind: pa.DataType) -> bool:
    if pa.types.is_fixed_size_list(kind):
        kind = kind.value_type
    return pa.types.is_floating(kind) or pa.types.is_boolean(kind)
