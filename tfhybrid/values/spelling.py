"""Texts of text files: parses numbers that are written in fields, and checks them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfhybrid.values.cells import Cells, Kind, whole
from tfhybrid.values.checking import Checked, check
from tfhybrid.values.column import Column
from tfhybrid.values.rules import HashStrings, apply

_SIMPLE = {
    "int64": r"^-?[0-9]{1,18}$",
    "float": r"^-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?$",
}
_BLANKS = " \t"


class Notation(NamedTuple):
    """A notation of keys.

    Attributes:
        expected: Description of valid texts, for errors.
        pattern: Regular expression that valid texts match.
        digits: Function that maps valid texts to what `pyarrow` casts to int64.
    """

    expected: str
    pattern: str
    digits: Callable[[pa.Array], pa.Array]


ITEM = Notation("a whole number", r"^-?\d{1,19}$", lambda texts: texts)
ENTRY = Notation(
    "an entry `key:1`", r"^-?\d{1,19}:1$", lambda texts: pc.utf8_slice_codeunits(texts, 0, -2)
)
HEXADECIMAL = Notation(
    "up to 8 hexadecimal digits",
    r"^[0-9A-Fa-f]{1,8}$",
    lambda texts: pc.binary_join_element_wise("0x", texts, ""),
)


def check_texts(
    column: Column,
    texts: pa.Array | pa.ChunkedArray,
    *,
    hash_strings: HashStrings | None = None,
) -> Checked:
    """Checks fields of a text file, and converts them as Arrow's CSV reader does.

    An empty field is a missing value, unless the column has strings or names.

    Args:
        column: Description of the column, of length 1.
        texts: Fields as strings or bytes.
        hash_strings: Function that hashes texts, as for `check`.
    """
    array = _decoded(texts)
    if column.named or column.role in ("string", "time"):
        return check(column, array.texts, hash_strings=hash_strings).also_bad(array.malformed)
    trimmed = pc.utf8_trim(array.texts, _BLANKS)
    filled = pc.if_else(pc.equal(trimmed, ""), None, trimmed)
    numbers = _parsed(filled, _arrow_type(column))
    checked = check(column, numbers.values)
    return checked.also_bad(numbers.malformed).also_bad(array.malformed)


def check_notation(
    column: Column, texts: pa.Array | pa.ChunkedArray, notation: Notation
) -> Checked:
    """Checks keys that are written in a notation. Each distinct text is parsed once.

    Args:
        column: Description of the column of keys, of length 1.
        texts: Texts, or nulls for missing values.
        notation: Notation of the keys.
    """
    encoded = whole(texts).dictionary_encode()
    distinct = encoded.dictionary
    valid = pc.match_substring_regex(distinct, notation.pattern)
    odd = np.empty(0, np.int64)
    if not pc.all(valid, min_count=0).as_py():
        odd = np.flatnonzero(~valid.to_numpy(zero_copy_only=False))
        distinct = pc.if_else(valid, distinct, None)
    digits = notation.digits(distinct)
    try:
        keys, malformed = digits.cast(pa.int64()), None
    except pa.ArrowInvalid:
        keys, malformed = _parsed(digits, pa.int64())
    if malformed is not None:
        odd = np.union1d(odd, np.flatnonzero(malformed))
    values = pc.fill_null(keys, 0).to_numpy() if keys.null_count else keys.to_numpy()
    indices, nulls = encoded.indices, None
    if indices.null_count:
        if column.missing is None:
            nulls = indices.is_null().to_numpy(zero_copy_only=False)
        indices = indices.fill_null(len(values))
    positions = indices.to_numpy(zero_copy_only=False)
    values = np.append(values, np.int64(column.missing or 0))[positions]
    ruled = apply(column, Cells(Kind.INTEGER, values, len(values), nulls), None)
    codes = np.zeros(len(values), np.uint8) if ruled.codes is None else ruled.codes
    checked = Checked(ruled.values, None, codes != 0, codes)
    return checked.also_bad(np.isin(positions, odd)) if len(odd) else checked


def check_text_lists(
    column: Column,
    texts: pa.Array | pa.ChunkedArray,
    separator: str,
    *,
    hash_strings: HashStrings | None = None,
) -> Checked:
    """Checks lists, each of which is written in one field. An empty field is an empty list.

    Blanks around numbers are no part of them, as in fields of one number.

    Args:
        column: Description of the column, of any length but 1.
        texts: Fields as strings or bytes.
        separator: Separator of the values of a list.
        hash_strings: Function that hashes texts, as for `check`.
    """
    array = _decoded(texts)
    if column.role in ("string", "time"):
        lists = _split(array.texts, separator)
        checked = check(column, lists.items, lengths=lists.lengths, hash_strings=hash_strings)
        return checked.also_bad(array.malformed)
    checked = _number_lists(column, _split(array.texts, separator))
    if checked.bad.any():  # perhaps because of blanks, which few files have
        lists = _split(pc.utf8_trim(array.texts, _BLANKS), separator)
        trimmed = lists._replace(items=pc.utf8_trim(lists.items, _BLANKS))
        checked = _number_lists(column, trimmed)
    return checked.also_bad(array.malformed)


class _Lists(NamedTuple):
    """Lists of texts: the items of all, and the number of items of each."""

    items: pa.Array
    lengths: np.ndarray


def _split(texts: pa.Array, separator: str) -> _Lists:
    lists = pc.split_pattern(pc.if_else(pc.equal(texts, ""), None, texts), separator)
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)
    return _Lists(lists.flatten(), lengths)


def _number_lists(column: Column, lists: _Lists) -> Checked:
    items, lengths = lists
    numbers = _whole_numbers(items) if column.whole else _parsed(items, _arrow_type(column))
    values = pc.fill_null(numbers.values, 0).to_numpy(zero_copy_only=False)
    checked = check(column, values, lengths=lengths)
    if numbers.malformed is not None and numbers.malformed.any():
        rows = np.searchsorted(np.cumsum(lengths), np.flatnonzero(numbers.malformed), "right")
        odd = np.zeros(len(lengths), bool)
        odd[rows] = True
        return checked.also_bad(odd)
    return checked


def _whole_numbers(texts: pa.Array) -> _Parsed:
    """Parses whole numbers of int64 without blanks."""
    valid = pc.match_substring_regex(texts, ITEM.pattern)
    malformed = ~valid.to_numpy(zero_copy_only=False)
    numbers = _parsed(pc.if_else(valid, texts, "0") if malformed.any() else texts, pa.int64())
    if numbers.malformed is not None:
        malformed |= numbers.malformed
    return _Parsed(numbers.values, malformed)


def _arrow_type(column: Column) -> pa.DataType:
    """Returns the type as which texts of numbers are parsed; whole ones are narrowed later."""
    return pa.int64() if column.whole else pa.from_numpy_dtype(np.dtype(column.dtype))


class _Texts(NamedTuple):
    """Texts as strings, with nulls where bytes are no UTF-8, and the mask of these."""

    texts: pa.Array
    malformed: np.ndarray | None


class _Parsed(NamedTuple):
    """Numbers, with nulls where texts are malformed, and the mask of these."""

    values: pa.Array
    malformed: np.ndarray | None


def _decoded(texts: pa.Array | pa.ChunkedArray) -> _Texts:
    array = whole(texts)
    if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
        return _Texts(array, None)
    try:
        return _Texts(array.cast(pa.large_string()), None)
    except pa.ArrowInvalid:
        decoded = [_text_of(each) for each in array.to_pylist()]
        nulls = array.is_null().to_numpy(zero_copy_only=False)
        malformed = np.array([each is None for each in decoded]) & ~nulls
        return _Texts(pa.array(decoded, pa.large_string()), malformed)


def _text_of(raw: bytes | None) -> str | None:
    try:
        return None if raw is None else raw.decode()
    except UnicodeDecodeError:
        return None


def _parsed(texts: pa.Array, kind: pa.DataType) -> _Parsed:
    """Parses texts one by one where they cannot be parsed together."""
    try:
        return _Parsed(texts.cast(kind), None)
    except pa.ArrowInvalid:
        pass
    pattern = _SIMPLE.get(str(kind), _SIMPLE["float"])
    simple = pc.fill_null(pc.match_substring_regex(texts, pattern), True)
    encoded = pc.if_else(simple, None, texts).dictionary_encode()
    one_by_one = [_number(text, kind) for text in encoded.dictionary.to_pylist()]
    numbers = pa.array(one_by_one, kind)
    positions = encoded.indices
    others = numbers.take(positions)
    values = pc.if_else(simple, pc.if_else(simple, texts, None).cast(kind), others)
    odd = np.flatnonzero([number is None for number in one_by_one])
    places = positions.fill_null(-1).to_numpy(zero_copy_only=False)
    return _Parsed(values, np.isin(places, odd))


def _number(text: str, kind: pa.DataType) -> Any:
    try:
        return pa.scalar(text).cast(kind).as_py()
    except pa.ArrowInvalid:
        return None
