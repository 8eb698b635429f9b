"""Conversion of Arrow columns to keys, numbers and labels, including missing values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfhybrid.data.formats.format import malformed
from tfhybrid.data.formats.label import Label
from tfhybrid.data.samples.ragged import Ragged

LocationOf = Callable[[int], str]
"""Function that describes the location of a row of a column, for errors."""


def labels(
    column: pa.ChunkedArray, location_of: LocationOf, label: Label, clicks: Sequence[float] = (0, 1)
) -> np.ndarray:
    """Returns the labels of a column: float32, or int64 for classes.

    Args:
        column: Numbers, booleans, or strings if the classes have names.
        location_of: Function that describes the location of a row, for errors.
        label: Description of the column.
        clicks: Values that clicks without a threshold may have. Default 0 and 1.

    Raises:
        DataError: A label is missing or invalid.
    """
    array = column.combine_chunks()
    if label.kind == "class":
        return (
            _named(array, location_of, label)
            if label.names
            else _classes(array, location_of, label)
        )
    values = _floats(array, location_of)
    if label.kind == "number" or label.positive is not None:
        _refuse(~np.isfinite(values), values, location_of, label.wanted)
    if label.kind == "number":
        return values
    if label.positive is not None:
        return (values >= label.positive).astype(np.float32)
    _refuse(~np.isin(values, clicks), values, location_of, f"a label of {list(clicks)}")
    return values


def type_of(label: Label) -> pa.DataType:
    """Returns the Arrow type as which text formats read a label: float32, int64 or string."""
    if label.kind != "class":
        return pa.float32()
    return pa.string() if label.names else pa.int64()


def _named(array: pa.Array, location_of: LocationOf, label: Label) -> np.ndarray:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        raise malformed(location_of(0), label.wanted, str(array.type))
    classes = pc.index_in(array, value_set=pa.array(label.names, array.type))
    if classes.null_count:
        row = pc.index(classes.is_null(), True).as_py()
        raise malformed(location_of(row), label.wanted, array[row].as_py())
    return classes.to_numpy().astype(np.int64)


def _classes(array: pa.Array, location_of: LocationOf, label: Label) -> np.ndarray:
    numeric = pa.types.is_integer(array.type) or pa.types.is_floating(array.type)
    if not numeric and not pa.types.is_boolean(array.type):
        raise malformed(
            location_of(0), f"{label.wanted} (names= would name classes)", str(array.type)
        )
    if array.null_count:
        raise malformed(location_of(pc.index(array.is_null(), True).as_py()), label.wanted, None)
    values = array.to_numpy(zero_copy_only=False)
    _refuse(
        ~((values >= 0) & (values < 2**62) & (values % 1 == 0)), values, location_of, label.wanted
    )
    return values.astype(np.int64)


def keys(
    column: pa.ChunkedArray, location_of: LocationOf, missing_key: int | None
) -> np.ndarray | Ragged:
    """Returns the int64 keys of a column. Strings are hashed by `string_keys`.

    Lists of a fixed size become `[n, size]`, other lists `Ragged`.

    Args:
        column: Integers, whole floats, strings, or lists of those. A missing list is an empty list,
            unless lists have a fixed size.
        location_of: Function that describes the location of a row, for errors.
        missing_key: Key for a missing value; `None` if a missing value is an error.

    Raises:
        DataError: A value is missing or is not a key.
    """
    array = column.combine_chunks()
    if pa.types.is_fixed_size_list(array.type):
        _refuse_missing_lists(array, location_of)
        size = array.type.list_size
        values = _flat_keys(array.flatten(), lambda i: location_of(i // size), missing_key)
        return values.reshape(-1, size)
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy().astype(np.int64)
        starts = np.cumsum(lengths)
        values = _flat_keys(
            array.flatten(),
            lambda i: location_of(int(np.searchsorted(starts, i, "right"))),
            missing_key,
        )
        return Ragged.from_lengths(values, lengths)
    return _flat_keys(array, location_of, missing_key)


def split_keys(
    column: pa.ChunkedArray, location_of: LocationOf, separator: str, *, strings: bool
) -> Ragged:
    """Returns the keys of lists, each of which is written in one field.

    Args:
        column: Strings; an empty or missing one is an empty list.
        location_of: Function that describes the location of a row, for errors.
        separator: Separator of the keys of a list.
        strings: Whether lists contain strings, which are hashed by `string_keys`, rather than
            integers.

    Raises:
        DataError: A value is not a key.
    """
    array = column.combine_chunks()
    lists = pc.split_pattern(pc.if_else(pc.equal(array, ""), None, array), separator)
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
    texts = lists.flatten()
    if strings:
        return Ragged.from_lengths(_flat_keys(texts, location_of, None), lengths)
    odd = np.flatnonzero(
        ~pc.match_substring_regex(texts, r"^-?\d{1,19}$").to_numpy(zero_copy_only=False)
    )
    if len(odd):
        row = int(np.searchsorted(np.cumsum(lengths), odd[0], "right"))
        expected = f"whole numbers separated by {separator!r} (strings= would accept others)"
        raise malformed(location_of(row), expected, texts[int(odd[0])].as_py())
    try:
        values = pc.cast(texts, pa.int64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid as error:
        raise malformed(location_of(0), "keys that are int64", str(error)) from None
    return Ragged.from_lengths(values, lengths)


def numbers(
    column: pa.ChunkedArray, location_of: LocationOf, missing_value: float | None
) -> np.ndarray:
    """Returns the float32 numbers of a column: `[n]`, or `[n, width]` for lists of size `width`.

    Args:
        column: Numbers, booleans, or fixed-size lists of those.
        location_of: Function that describes the location of a row, for errors.
        missing_value: Number for a missing value or NaN; `None` if these are errors.

    Raises:
        DataError: A value is missing or is not a number.
    """
    array, width = column.combine_chunks(), 1
    fixed = pa.types.is_fixed_size_list(array.type)
    if fixed:
        _refuse_missing_lists(array, location_of)
        array, width = array.flatten(), array.type.list_size
    values = _floats(array, location_of)
    missing = np.isnan(values)
    if missing_value is None:
        expected = "a number (missing_value= would replace a missing one)"
        _refuse(missing, values, lambda i: location_of(i // width), expected)
    else:
        values = np.where(missing, np.float32(missing_value), values)
    return values.reshape(-1, width) if fixed else values


def _floats(array: pa.Array, location_of: LocationOf) -> np.ndarray:
    """Returns float32 numbers, with NaN for missing ones."""
    try:
        return pc.cast(array, pa.float32(), safe=False).to_numpy(zero_copy_only=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise malformed(location_of(0), "numbers", str(array.type)) from None


def _flat_keys(array: pa.Array, location_of: LocationOf, missing_key: int | None) -> np.ndarray:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if array.null_count and missing_key is None:
        row = pc.index(array.is_null(), True).as_py()
        raise malformed(location_of(row), "a key (missing_key= would replace a missing one)", None)
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        return _hashed(array, missing_key)
    if not (pa.types.is_integer(array.type) or pa.types.is_floating(array.type)):
        raise malformed(location_of(0), "integers or strings as keys", str(array.type))
    try:
        whole = pc.cast(array, pa.int64())
    except pa.ArrowInvalid as error:
        raise malformed(location_of(0), "keys that are int64", str(error)) from None
    return whole.fill_null(missing_key or 0).to_numpy(zero_copy_only=False)


def _hashed(array: pa.Array, missing_key: int | None) -> np.ndarray:
    """Returns the keys of strings; each distinct string is hashed once."""
    from tfhybrid.data.samples.strings import string_keys  # imports TensorFlow

    encoded = array.dictionary_encode()
    texts = encoded.dictionary.to_numpy(zero_copy_only=False)
    hashed = string_keys(texts.astype(object)).numpy() if len(texts) else np.empty(0, np.int64)
    with_missing = np.append(hashed, np.int64(missing_key or 0))
    return with_missing[encoded.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)]


def _refuse_missing_lists(array: pa.FixedSizeListArray, location_of: LocationOf) -> None:
    if array.null_count:
        row = pc.index(array.is_null(), True).as_py()
        raise malformed(location_of(row), f"a list of {array.type.list_size}", None)


def _refuse(odd: np.ndarray, values: np.ndarray, location_of: LocationOf, expected: str) -> None:
    """Raises the error for the first value that is odd, if there is one."""
    if len(rows := np.flatnonzero(odd)):
        raise malformed(location_of(int(rows[0])), expected, float(values[rows[0]]))
