"""The keys of a table among the rows of a lease."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfhybrid.data.formats.format import hashed_strings
from tfhybrid.errors import ConfigError
from tfhybrid.values import Column, check


def key_column(table: str, field: pa.Field) -> Column:
    """Returns the description of a column with the keys of a table.

    Args:
        table: Name of the table.
        field: Column of the stream.

    Raises:
        ConfigError: The column has neither integers nor strings nor lists of them.
    """
    dtype = field.type.value_type if pa.types.is_list(field.type) else field.type
    text = pa.types.is_string(dtype) or pa.types.is_large_string(dtype)
    if not (text or pa.types.is_integer(dtype)):
        raise ConfigError(
            f"The column with the keys of table {table!r} must have integers, strings, or lists of "
            f"them. Received: {field.name!r} of type {field.type}"
        )
    return Column(field.name, "string" if text else "key")


def keys_of(column: Column, values: pa.Array) -> np.ndarray:
    """Returns the distinct keys in a column, int64, ascending.

    Strings are hashed as `tfhybrid.layers.StringKeys` does.

    Args:
        column: Description of the column, from `key_column`.
        values: Values of the rows, or lists of them.
    """
    flat = values.flatten() if pa.types.is_list(values.type) else values
    distinct = pc.unique(flat.drop_null())  # hashing before sorting: far fewer keys than rows
    keys = check(column, distinct, hash_strings=hashed_strings).values
    return np.unique(keys) if column.role == "string" else np.sort(keys)
