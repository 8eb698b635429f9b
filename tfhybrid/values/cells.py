"""Values as they come, from Arrow, NumPy or Python, in one form: flat, by kind, with lengths."""

from __future__ import annotations

import datetime
import decimal
import enum
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


class Kind(enum.Enum):
    """Kind of a value, whichever type holds it."""

    INTEGER = "integer"
    FLOAT = "float"
    BOOLEAN = "boolean"
    DECIMAL = "decimal"
    LARGE = "integer beyond int64 and uint64"
    TEXT = "text"
    TIME = "time"
    NULL = "null"
    OTHER = "other"


class Cells(NamedTuple):
    """Values of one kind.

    Attributes:
        kind: Kind of all of them.
        values: Array of the values: NumPy; Arrow for texts; int64 microseconds for times; float64
            for large integers and decimals; `None` for nulls and others.
        size: Number of values.
        nulls: Mask of the missing values; `None` if there is none.
        where: Positions of the values among all values of the column; `None` if they are all.
    """

    kind: Kind
    values: Any
    size: int
    nulls: np.ndarray | None = None
    where: np.ndarray | None = None


class CellRows(NamedTuple):
    """The rows of a column, flattened.

    Attributes:
        size: Number of rows.
        parts: Values of all rows, by kind.
        lengths: Number of values of each row, int64; `None` if each row has one value.
        odd: Mask of rows that are a list where others are values, or the reverse; `None` if there
            is none. An odd row has no values if rows have lengths, else a null.
        absent: Mask of null lists; `None` if there is none.
    """

    size: int
    parts: tuple[Cells, ...]
    lengths: np.ndarray | None = None
    odd: np.ndarray | None = None
    absent: np.ndarray | None = None


def rows_of(
    values: Any, *, lists: bool, lengths: np.ndarray | None, fill: int | None = None
) -> CellRows:
    """Returns the rows of a column.

    Args:
        values: Arrow array, NumPy array, or sequence of Python values.
        lists: Whether the rows should be lists. An Arrow or NumPy array shows itself what it is.
        lengths: Number of values of each row, for a flat array with the values of all rows; `None`
            if the values are the rows.
        fill: Value that replaces each null in an Arrow array of int64 at once. Default: `None`,
            nulls stay.
    """
    if lengths is not None:
        rows = rows_of(values, lists=False, lengths=None)
        return rows._replace(size=len(lengths), lengths=np.asarray(lengths, np.int64))
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return _of_arrow(whole(values), fill)
    if isinstance(values, np.ndarray):
        return _of_numpy(values, lists)
    return _of_python(values, lists)


def whole(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Returns an Arrow array in one piece.

    Args:
        array: The array; one chunk is not copied.
    """
    if isinstance(array, pa.Array):
        return array
    if array.num_chunks == 1:
        return array.chunk(0)
    combined = array.combine_chunks()
    return combined.combine_chunks() if isinstance(combined, pa.ChunkedArray) else combined


def is_binary(kind: pa.DataType) -> bool:
    """Returns whether texts of a type are bytes, which need not be UTF-8.

    Args:
        kind: Arrow type, other than a view.
    """
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def value_at(values: Any, row: int, ends: np.ndarray | None = None) -> Any:
    """Returns the value of a row as a Python value, for messages.

    Args:
        values: Values as `rows_of` takes them.
        row: Number of the row.
        ends: Position in `values` behind each row's last value, if `values` are flat. Default: they
            are the rows.
    """
    if ends is None:
        return _plain(values[row])
    first = int(ends[row - 1]) if row else 0
    values_of_row = [_plain(each) for each in values[first : int(ends[row])]]
    return values_of_row[0] if len(values_of_row) == 1 else values_of_row or None


def texts_of(array: pa.Array) -> list[str | bytes | None]:
    """Returns texts as Python values. Those that are no UTF-8 are bytes, even if they are strings.

    Args:
        array: Array of strings or bytes.
    """
    try:
        texts: list[str | bytes | None] = array.to_pylist()
    except UnicodeDecodeError:
        texts = [_plain(text) for text in array.cast(pa.large_binary()).to_pylist()]
    return texts


def _plain(value: Any) -> Any:
    """Returns a value as a Python value; bytes as a text, unless they are no UTF-8."""
    if isinstance(value, pa.Scalar):
        try:
            value = value.as_py()
        except UnicodeDecodeError:
            is_list = isinstance(value, (pa.ListScalar, pa.LargeListScalar, pa.FixedSizeListScalar))
            value = texts_of(value.values) if is_list else value.as_buffer().to_pybytes()
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return value
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def _of_arrow(array: pa.Array, fill: int | None) -> CellRows:
    kind, count = array.type, len(array)
    nested = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not (nested or pa.types.is_fixed_size_list(kind)):
        if fill is not None and array.null_count and kind == pa.int64():
            array = pc.fill_null(array, fill)
        return CellRows(count, (_arrow_cells(array),))
    absent = _nulls(array)
    if nested:
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy().astype(np.int64)
    else:
        lengths = np.full(count, kind.list_size, np.int64)
        if absent is not None:
            lengths[absent] = 0
    return CellRows(count, (_arrow_cells(array.flatten()),), lengths, absent=absent)


def _arrow_cells(array: pa.Array) -> Cells:
    kind = array.type
    if pa.types.is_dictionary(kind):
        array = array.dictionary_decode()
        kind = array.type
    if pa.types.is_integer(kind):
        return _filled(Kind.INTEGER, array, 0)
    if pa.types.is_floating(kind):
        values = array.to_numpy(zero_copy_only=False)
        return Cells(Kind.FLOAT, values, len(array), _nulls(array))
    if pa.types.is_boolean(kind):
        return _filled(Kind.BOOLEAN, array, False)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        plain = pa.large_string() if pa.types.is_string_view(kind) else pa.large_binary()
        array = array.cast(plain)
        kind = plain
    if _is_text(kind):
        return Cells(Kind.TEXT, array, len(array), _nulls(array))
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        times = pc.cast(array, pa.timestamp("us", getattr(kind, "tz", None)), safe=False)
        return _filled(Kind.TIME, times.cast(pa.int64()), 0)
    if pa.types.is_decimal(kind):
        return _filled(Kind.DECIMAL, pc.cast(array, pa.float64(), safe=False), 0.0)
    if pa.types.is_null(kind):
        return Cells(Kind.NULL, None, len(array))
    return Cells(Kind.OTHER, None, len(array), _nulls(array))


def _is_text(kind: pa.DataType) -> bool:
    return is_binary(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _nulls(array: pa.Array) -> np.ndarray | None:
    return array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None


def _filled(kind: Kind, array: pa.Array, value: Any) -> Cells:
    nulls = _nulls(array)
    whole = array if nulls is None else pc.fill_null(array, value)
    return Cells(kind, whole.to_numpy(zero_copy_only=False), len(array), nulls)


def _of_numpy(array: np.ndarray, lists: bool) -> CellRows:
    if isinstance(array, np.ma.MaskedArray):
        return _of_masked(array, lists)
    if array.dtype.kind == "O" or array.ndim not in (1, 2):
        return _of_python(array.tolist() if array.ndim else [array.item()], lists)
    lengths = None if array.ndim == 1 else np.full(len(array), array.shape[1], np.int64)
    flat = array.reshape(-1)
    count = len(flat)
    match flat.dtype.kind:
        case "i" | "u":
            cells = Cells(Kind.INTEGER, flat, count)
        case "f":
            cells = Cells(Kind.FLOAT, flat, count)
        case "b":
            cells = Cells(Kind.BOOLEAN, flat, count)
        case "U" | "S":
            cells = _python_texts(flat.tolist())
        case "M":
            nulls = np.isnat(flat)
            times = flat.astype("datetime64[us]").astype(np.int64)
            cells = Cells(Kind.TIME, times, count, nulls if nulls.any() else None)
        case _:
            cells = Cells(Kind.OTHER, None, count)
    return CellRows(len(array), (cells,), lengths)


def _of_masked(array: Any, lists: bool) -> CellRows:
    """Returns rows in which masked values are missing ones."""
    if array.dtype.kind in "OSU" or array.ndim not in (1, 2):
        return _of_python(array.tolist(), lists)
    rows = _of_numpy(array.data, lists)
    masked = np.broadcast_to(array.mask, array.shape).reshape(-1)
    if not masked.any():
        return rows
    (cells,) = rows.parts
    nulls = masked if cells.nulls is None else masked | cells.nulls
    return rows._replace(parts=(cells._replace(nulls=nulls),))


def _of_python(values: Sequence[Any], lists: bool) -> CellRows:
    values = values if isinstance(values, list) else list(values)
    types = set(map(type, values))
    nested = [kind for kind in types if issubclass(kind, (list, tuple, np.ndarray))]
    if not lists:
        odd = _mask(values, nested)
        if odd is not None:
            values = [None if bad else value for value, bad in zip(values, odd, strict=True)]
        return CellRows(len(values), _python_cells(values), odd=odd)
    odd = _mask(values, types - {*nested, type(None)})
    absent = _mask(values, types & {type(None)})
    whole = values
    if odd is not None or absent is not None:
        whole = [value if isinstance(value, tuple(nested)) else () for value in values]
    lengths = np.fromiter(map(len, whole), np.int64, len(whole))
    flat = list(itertools.chain.from_iterable(whole))
    return CellRows(len(values), _python_cells(flat), lengths, odd, absent)


def _mask(values: Sequence[Any], types: Any) -> np.ndarray | None:
    """Returns the mask of the values of some types; `None` if there are no such types."""
    types = tuple(types)
    if not types:
        return None
    return np.fromiter((isinstance(value, types) for value in values), bool, len(values))


def _python_cells(values: list[Any]) -> tuple[Cells, ...]:
    """Returns values by kind. Values of one type, and nulls, need one pass over their types."""
    kinds = {kind: _kind_of(kind) for kind in set(map(type, values))}
    distinct = set(kinds.values()) - {_NULL}
    if len(distinct) <= 1:
        kind = distinct.pop() if distinct else _NULL
        return _of_one_kind(kind[0], values, None, type(None) in kinds)
    parts: list[Cells] = []
    every = [kinds[type(value)] for value in values]
    for kind in dict.fromkeys(every):
        where = np.flatnonzero([each == kind for each in every])
        parts += _of_one_kind(kind[0], [values[i] for i in where], where, False)
    return tuple(parts)


_KINDS: dict[type, Kind] = {
    bool: Kind.BOOLEAN,
    int: Kind.INTEGER,
    float: Kind.FLOAT,
    str: Kind.TEXT,
    bytes: Kind.TEXT,
    type(None): Kind.NULL,
    decimal.Decimal: Kind.DECIMAL,
    datetime.datetime: Kind.TIME,
    datetime.date: Kind.TIME,
}


_NULL = (Kind.NULL, None)


def _kind_of(kind: type) -> tuple[Kind, type | None]:
    """Returns the kind of a Python type, and the type itself if it is a narrow float."""
    if kind in _KINDS:
        return _KINDS[kind], None
    if issubclass(kind, np.floating) and kind is not np.float64:
        return Kind.FLOAT, kind
    bases = (
        ((np.bool_,), Kind.BOOLEAN),
        ((int, np.integer), Kind.INTEGER),
        ((float,), Kind.FLOAT),
        ((np.datetime64, datetime.date), Kind.TIME),
        ((str, bytes), Kind.TEXT),
    )
    return next((name for base, name in bases if issubclass(kind, base)), Kind.OTHER), None


def _of_one_kind(
    kind: Kind, values: list[Any], where: np.ndarray | None, with_nulls: bool
) -> tuple[Cells, ...]:
    nulls = None
    if with_nulls and kind is not Kind.NULL:
        nulls = np.fromiter((value is None for value in values), bool, len(values))
    convert = _CONVERT.get(kind)
    if convert is None:
        return (Cells(kind, None, len(values), nulls, where),)
    if kind in _FILL and nulls is not None:
        values = [_FILL[kind] if value is None else value for value in values]
    return tuple(_placed(cells, nulls, where) for cells in convert(values))


def _placed(cells: Cells, nulls: np.ndarray | None, where: np.ndarray | None) -> Cells:
    if cells.where is not None:  # a part of the values of this kind
        inner = cells.where
        nulls = None if nulls is None else nulls[inner]
        where = inner if where is None else where[inner]
    own = cells.nulls if nulls is None else nulls if cells.nulls is None else nulls | cells.nulls
    return cells._replace(nulls=own, where=where)


def _python_integers(values: list[Any]) -> list[Cells]:
    if set(map(type, values)) != {int}:
        values = [int(value) for value in values]  # np.uint64 would wrap around
    try:
        return [Cells(Kind.INTEGER, np.array(values, np.int64), len(values))]
    except OverflowError:
        small = np.fromiter((-(2**63) <= value < 2**63 for value in values), bool, len(values))
        large = [_as_float(value) for value, fits in zip(values, small, strict=True) if not fits]
        whole = np.array([v for v, fits in zip(values, small, strict=True) if fits], np.int64)
        return [
            Cells(Kind.INTEGER, whole, len(whole), where=np.flatnonzero(small)),
            Cells(Kind.LARGE, np.array(large), len(large), where=np.flatnonzero(~small)),
        ]


def _as_float(value: int | decimal.Decimal) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _python_floats(values: list[Any]) -> list[Cells]:
    narrow = {type(value) for value in values if isinstance(value, np.floating)}
    dtype = narrow.pop() if len(narrow) == 1 else np.float64
    return [Cells(Kind.FLOAT, np.array(values, dtype), len(values))]


def _python_texts(values: list[Any]) -> Cells:
    """Returns texts as an Arrow array, binary if there are bytes, or text that UTF-8 lacks."""
    try:
        array = pa.array(values, pa.large_string() if _all_text(values) else pa.large_binary())
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError, TypeError):
        raw = [v.encode("utf-8", "surrogatepass") if isinstance(v, str) else v for v in values]
        array = pa.array(raw, pa.large_binary())
    return Cells(Kind.TEXT, array, len(values), _nulls(array))


def _all_text(values: list[Any]) -> bool:
    return not any(isinstance(value, bytes) for value in values)


def _python_times(values: list[Any]) -> list[Cells]:
    utc = [
        value.astimezone(datetime.UTC).replace(tzinfo=None)
        if isinstance(value, datetime.datetime) and value.tzinfo
        else value
        for value in values
    ]
    times = np.array(utc, "datetime64[us]")
    nulls = np.isnat(times)
    return [Cells(Kind.TIME, times.astype(np.int64), len(values), nulls if nulls.any() else None)]


_FILL: dict[Kind, Any] = {
    Kind.INTEGER: 0,
    Kind.FLOAT: float("nan"),
    Kind.BOOLEAN: False,
    Kind.DECIMAL: 0.0,
    Kind.TIME: None,
}
_CONVERT: dict[Kind, Callable[[list[Any]], list[Cells]]] = {
    Kind.INTEGER: _python_integers,
    Kind.FLOAT: _python_floats,
    Kind.BOOLEAN: lambda values: [Cells(Kind.BOOLEAN, np.array(values, bool), len(values))],
    Kind.DECIMAL: lambda values: [
        Cells(Kind.DECIMAL, np.array([_as_float(v) for v in values], np.float64), len(values))
    ],
    Kind.TEXT: lambda values: [_python_texts(values)],
    Kind.TIME: _python_times,
}
