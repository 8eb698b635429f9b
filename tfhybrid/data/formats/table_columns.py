"""Tables in memory as samples: Arrow tables, data frames, and dictionaries of arrays."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from tfhybrid.data.formats.label import Label, LabelSpec, labels_of
from tfhybrid.data.formats.parquet import Parquet
from tfhybrid.data.samples.clicks import Clicks
from tfhybrid.errors import ConfigError, DataError


def clicks_of(
    table: Any,
    label: LabelSpec,
    *,
    features: Sequence[str] | None = None,
    dense: Sequence[str] | None = None,
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
    features, dense = _chosen(arrow, labels_of(label, positive), features, dense)
    columns = Parquet(features, dense, label, positive, *missing)
    # By way of a file, so that a table obeys the rules of files.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.parquet"
        pa.parquet.write_table(arrow, path)
        try:
            return columns.read(path)
        except DataError as error:
            raise DataError(str(error).replace(f"{path}", "The table")) from error


def _chosen(
    arrow: pa.Table,
    labels: Sequence[Label],
    features: Sequence[str] | None,
    dense: Sequence[str] | None,
) -> tuple[Sequence[str], Sequence[str]]:
    """Returns the columns of keys and of numbers: the named ones, or all that have such a type."""
    taken = {*(each.column for each in labels), *(features or ()), *(dense or ())}
    if absent := sorted(taken - {*arrow.column_names}):
        raise ConfigError(
            f"The table must have the columns {absent}. Received: {arrow.column_names}"
        )
    others = [each for each in arrow.schema if each.name not in taken]
    if features is None and dense is None and (odd := [f for f in others if not _is_known(f.type)]):
        raise DataError(
            f"Column {odd[0].name!r}: expected whole numbers, strings, floats, or lists of those. "
            f"Convert it, leave it out, or name features= and dense=. Received: {odd[0].type}"
        )
    if features is None:
        features = [each.name for each in others if _is_key(each.type)]
    if dense is None:
        dense = [each.name for each in others if _is_number(each.type)]
    return features, dense


def _arrow(table: Any) -> pa.Table:
    try:
        if isinstance(table, Mapping):
            table = pa.table({name: _column(values) for name, values in table.items()})
        elif type(table).__module__.partition(".")[0] == "pandas":
            table = pa.Table.from_pandas(table, preserve_index=False)
        return table if isinstance(table, pa.Table) else pa.table(table)
    except (TypeError, ValueError, pa.ArrowException) as error:
        raise ConfigError(
            "A table must be a pyarrow.Table, a data frame, or a dictionary of arrays of one "
            f"length. Received: {type(table).__name__} ({error})"
        ) from error


def _column(values: Any) -> pa.Array:
    if isinstance(values, np.ndarray) and values.ndim == 2:
        return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])
    return values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)


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
