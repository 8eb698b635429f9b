"""The table of rules: which kinds of values a role accepts, and how each is checked and converted.

A rule gets values of one kind and returns the converted values, with a reason for each bad one. It
looks at each value alone.
"""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tfhybrid.values.cells import Cells, Kind, is_binary, texts_of
from tfhybrid.values.column import Column
from tfhybrid.values.reasons import Reason

HashStrings = Callable[[np.ndarray], np.ndarray]
"""Function that hashes distinct texts, an array of str or bytes objects, to int64 keys."""

Codes = np.ndarray | None
"""Reason of each value, uint8; `None` if all are good."""


class Ruled(NamedTuple):
    """Result of a rule.

    Attributes:
        values: Converted values. The value of a bad one has no meaning.
        codes: Reason of each value; `None` if all are good.
    """

    values: np.ndarray
    codes: Codes = None


Rule = Callable[[Column, Cells, HashStrings | None], Ruled]

# The first float of a width whose neighbors are not whole numbers one apart.
_FIRST_ROUNDED = {2: 2.0**11, 4: 2.0**24, 8: 2.0**53}
_LARGEST = 2**63 - 1


def apply(column: Column, cells: Cells, hash_strings: HashStrings | None) -> Ruled:
    """Checks and converts values of one kind by the rule of their column, and fills missing ones.

    Args:
        column: Column of the values.
        cells: Values of one kind.
        hash_strings: Function that hashes texts; `None` keeps them as objects.
    """
    if cells.kind is Kind.NULL:
        return _missing(column, _empty_of(column, cells, hash_strings), np.ones(cells.size, bool))
    rule = RULES.get((column.role, cells.kind), _refused)
    ruled = rule(column, cells, hash_strings)
    return ruled if cells.nulls is None else _filled(column, ruled, cells.nulls)


def _filled(column: Column, ruled: Ruled, missing: np.ndarray) -> Ruled:
    """Fills the missing values, which have no other reason than that they are missing."""
    if not missing.any():
        return ruled
    filled = _missing(column, ruled.values, missing)
    if ruled.codes is None:
        return filled
    others = np.where(missing, 0, ruled.codes).astype(np.uint8)
    return Ruled(filled.values, _joined(others, filled.codes))


def _missing(column: Column, values: np.ndarray, nulls: np.ndarray) -> Ruled:
    """Fills the missing values. If the column has no value for this, missing values are bad."""
    if column.missing is None:
        return Ruled(values, np.where(nulls, Reason.MISSING, 0).astype(np.uint8))
    if not isinstance(column.missing, str):
        values = _writable(values)
        values[nulls] = column.missing
    return Ruled(values)


def _writable(values: np.ndarray) -> np.ndarray:
    return values if values.flags.writeable and values.flags.owndata else values.copy()


def _empty_of(column: Column, cells: Cells, hash_strings: HashStrings | None) -> np.ndarray:
    """Returns the values of a column that has only nulls, before they are filled."""
    if isinstance(column.missing, str) and hash_strings:
        return np.full(cells.size, hash_strings(_objects([column.missing]))[0], np.int64)
    texts = column.role == "string" and not hash_strings
    return np.full(cells.size, column.missing if texts else 0, object if texts else column.dtype)


def _joined(first: Codes, second: Codes) -> Codes:
    """Returns the reasons of the first check, and those of the second where it has none."""
    if first is None or second is None:
        return second if first is None else first
    return np.where(first, first, second).astype(np.uint8)


def _coded(bad: np.ndarray, reason: Reason) -> Codes:
    return bad * np.uint8(reason) if bad.any() else None


def _refused(column: Column, cells: Cells, hash_strings: HashStrings | None) -> Ruled:
    values = _empty_of(column, cells, hash_strings)
    return Ruled(values, np.full(cells.size, Reason.KIND, np.uint8))


def _whole_integers(column: Column, cells: Cells, _: HashStrings | None) -> Ruled:
    return _bounded(column, _narrowed(column, cells.values))


def _narrowed(column: Column, values: np.ndarray) -> Ruled:
    """Converts integers to the dtype of the column. Integers that do not fit it are bad."""
    codes = None
    target = np.dtype(column.dtype)
    if not np.can_cast(values.dtype, target):
        limits = np.iinfo(target)
        bad = values > np.array(min(limits.max, np.iinfo(values.dtype).max), values.dtype)
        if values.dtype.kind == "i" and limits.min > np.iinfo(values.dtype).min:
            bad |= values < limits.min
        codes = _coded(bad, Reason.RANGE)
    return Ruled(values.astype(target, copy=False), codes)


def _whole_floats(column: Column, cells: Cells, _: HashStrings | None) -> Ruled:
    values = cells.values
    limit = _FIRST_ROUNDED.get(values.dtype.itemsize, 2.0**53)
    exact = np.abs(values) < limit
    if exact.all():
        with np.errstate(invalid="ignore"):
            whole = values.astype(np.int64)
        narrowed = _narrowed(column, whole)
        codes = _joined(_coded(whole != values, Reason.WHOLE), narrowed.codes)
        return _bounded(column, Ruled(narrowed.values, codes))
    fine = np.where(exact, values, 0)
    whole = fine.astype(np.int64)
    codes = np.where(exact, np.where(whole != fine, Reason.WHOLE, 0), Reason.EXACT)
    codes = np.where(np.isinf(values), Reason.WHOLE, codes).astype(np.uint8)
    narrowed = _narrowed(column, whole)
    ruled = _bounded(column, Ruled(narrowed.values, _joined(codes, narrowed.codes)))
    return _filled(column, ruled, np.isnan(values))


def _out_of_range(column: Column, cells: Cells, _: HashStrings | None) -> Ruled:
    values = np.zeros(cells.size, column.dtype)
    return Ruled(values, np.full(cells.size, Reason.RANGE, np.uint8))


def _numbers(column: Column, cells: Cells, _: HashStrings | None) -> Ruled:
    if column.whole:
        return _WHOLE[cells.kind](column, cells, None)
    with np.errstate(over="ignore"):
        values = cells.values.astype(column.dtype, copy=False)
    if cells.kind is Kind.INTEGER or cells.kind is Kind.BOOLEAN:
        return _bounded(column, Ruled(values))
    finite = np.isfinite(values)
    if finite.all():
        return _bounded(column, Ruled(values))
    codes = _coded(~finite, Reason.FINITE) if column.finite else None
    return _filled(column, _bounded(column, Ruled(values, codes)), np.isnan(values))


def _labels(column: Column, cells: Cells, _: HashStrings | None) -> Ruled:
    if column.named:
        return _refused(column, cells, None)
    ruled = _numbers(column, cells, None)
    if not column.classes:
        return ruled
    fine = ruled.values == column.classes[0]
    for each in column.classes[1:]:
        fine |= ruled.values == each
    return Ruled(ruled.values, _joined(ruled.codes, _coded(~fine, Reason.CLASS)))


def _named_labels(column: Column, cells: Cells, _: HashStrings | None) -> Ruled:
    if not column.named:
        return _refused(column, cells, None)
    texts = cells.values
    names: list[Any] = list(column.classes)
    if is_binary(texts.type):
        names = [each.encode() if isinstance(each, str) else each for each in names]
    classes = pc.index_in(texts, value_set=pa.array(names, texts.type))
    unknown = classes.is_null().to_numpy(zero_copy_only=False)
    values = classes.fill_null(0).to_numpy().astype(column.dtype)
    return Ruled(values, _coded(unknown, Reason.CLASS))


def _strings(column: Column, cells: Cells, hash_strings: HashStrings | None) -> Ruled:
    """Hashes each distinct text once, or keeps the texts if there is no function for it."""
    texts = cells.values
    encoded = texts.dictionary_encode()
    malformed = None
    try:
        distinct = encoded.dictionary.to_numpy(zero_copy_only=False).astype(object)
    except (UnicodeDecodeError, pa.ArrowException):  # strings that are no UTF-8
        distinct = _objects(texts_of(encoded.dictionary))
        malformed = [isinstance(text, bytes) for text in distinct] + [False]
    if column.missing is not None and isinstance(column.missing, str):
        distinct = np.append(distinct, _objects([column.missing]))
    hashed = distinct
    if hash_strings is not None:
        hashed = hash_strings(distinct) if len(distinct) else np.empty(0, np.int64)
    if not isinstance(column.missing, str):
        hashed = np.append(hashed, _objects([""]) if hash_strings is None else np.int64(0))
    indices = encoded.indices
    if encoded.indices.null_count:
        indices = indices.fill_null(len(hashed) - 1)
    positions = indices.to_numpy(zero_copy_only=False)
    if malformed is None and column.empty != "missing":
        return Ruled(hashed[positions])
    in_dictionary = np.minimum(positions, len(encoded.dictionary))
    codes = None
    if malformed is not None:
        codes = _coded(np.array(malformed)[in_dictionary], Reason.SPELLING)
    if column.empty == "missing":
        empty_text = b"" if is_binary(texts.type) else ""
        blank = np.append(distinct[: len(encoded.dictionary)] == empty_text, False)
        if (empty := blank[in_dictionary]).any():
            positions = np.where(empty, len(hashed) - 1, positions)
            return _filled(column, Ruled(hashed[positions], codes), empty)
    return Ruled(hashed[positions], codes)


def _objects(values: list[Any]) -> np.ndarray:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _times(column: Column, cells: Cells, _: HashStrings | None) -> Ruled:
    return _bounded(column, Ruled(cells.values.astype(column.dtype, copy=False)))


def _spelled_times(column: Column, cells: Cells, _: HashStrings | None) -> Ruled:
    """Reads times in ISO 8601; a time without an offset is UTC."""
    texts = cells.values
    empty = np.zeros(cells.size, bool)
    if column.empty == "missing":
        blank = pc.fill_null(pc.equal(texts, pa.scalar("", texts.type)), False)
        empty = blank.to_numpy(zero_copy_only=False)
        texts = pc.if_else(blank, None, texts) if empty.any() else texts
    if (quick := _quick_times(texts)) is not None:
        return _filled(column, _bounded(column, Ruled(quick)), empty)
    values = np.zeros(cells.size, np.int64)
    codes = np.zeros(cells.size, np.uint8)
    for row, text in enumerate(texts_of(texts)):
        if text is None:
            continue
        time = None
        with contextlib.suppress(ValueError, UnicodeDecodeError):
            spelled = text.decode() if isinstance(text, bytes) else text
            time = datetime.datetime.fromisoformat(spelled)
        if time is None:
            codes[row] = Reason.SPELLING
            continue
        utc = datetime.UTC
        since = (time if time.tzinfo else time.replace(tzinfo=utc)) - _EPOCH
        values[row] = since // datetime.timedelta(microseconds=1)
    ruled = _bounded(column, Ruled(values, codes if codes.any() else None))
    return _filled(column, ruled, empty)


def _quick_times(texts: pa.Array) -> np.ndarray | None:
    """Returns times as Arrow reads them, which is much faster; `None` if it cannot read them all.

    Arrow knows fewer notations than Python, and has a year 0. It reads times without an offset, or
    times that all have one.
    """
    for zone, first in ((None, _YEAR_1), ("UTC", _YEAR_1 + _DAY)):
        try:
            texts = texts.cast(pa.large_string()) if is_binary(texts.type) else texts
            times = texts.cast(pa.timestamp("us", zone)).cast(pa.int64())
        except pa.ArrowInvalid:
            continue
        values = pc.fill_null(times, 0).to_numpy()
        if (values >= first).all():
            return values
    return None


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_YEAR_1 = -62_135_596_800_000_000
_DAY = 86_400_000_000  # longer than any offset


def _bounded(column: Column, ruled: Ruled) -> Ruled:
    """Adds the reason of values outside the bounds."""
    if column.low is None and column.high is None:
        return ruled
    outside = np.zeros(len(ruled.values), bool)
    if column.low is not None:
        outside |= ruled.values < column.low
    if column.high is not None:
        outside |= ruled.values > column.high
    return Ruled(ruled.values, _joined(ruled.codes, _coded(outside, Reason.RANGE)))


_WHOLE: dict[Kind, Rule] = {
    Kind.INTEGER: _whole_integers,
    Kind.BOOLEAN: lambda column, cells, _: _bounded(
        column, Ruled(cells.values.astype(column.dtype))
    ),
    Kind.FLOAT: _whole_floats,
    Kind.DECIMAL: _whole_floats,
    Kind.LARGE: _out_of_range,
}

RULES: dict[tuple[str, Kind], Rule] = {
    ("key", Kind.INTEGER): _whole_integers,
    ("key", Kind.FLOAT): _whole_floats,
    ("key", Kind.LARGE): _out_of_range,
    **{("number", kind): _numbers for kind in _WHOLE},
    **{("label", kind): _labels for kind in _WHOLE},
    ("label", Kind.TEXT): _named_labels,
    ("string", Kind.TEXT): _strings,
    ("time", Kind.TIME): _times,
    ("time", Kind.TEXT): _spelled_times,
}
"""The rule of each role for each kind of value; other kinds are refused."""
