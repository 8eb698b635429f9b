"""A slow judge of values in plain Python: what `tfhybrid.values.check` must say, value by value."""

from __future__ import annotations

import datetime
import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from tfhybrid.values import Column

BAD = object()
"""The verdict on a bad value or row."""


def judge(column: Column, row: Any, hash_string: Callable[[Any], int]) -> Any:
    """Returns the value of a row, the list of its values for longer rows, or `BAD`.

    Args:
        column: Description of the column.
        row: Value or list of values, as Python, NumPy or Arrow has them.
        hash_string: Function that hashes one text.
    """
    if column.length == 1:
        return BAD if isinstance(row, list | tuple) else one(column, row, hash_string)
    if row is None:
        return [] if column.length is None else BAD
    if not isinstance(row, list | tuple):
        return BAD
    values = [one(column, value, hash_string) for value in row]
    if BAD in values or column.length not in (None, len(values)):
        return BAD
    return values


def one(column: Column, value: Any, hash_string: Callable[[Any], int]) -> Any:
    """Returns a single value, or `BAD`."""
    if value is None or (isinstance(value, float | np.floating) and math.isnan(value)):
        numbers = column.role in ("key", "number", "label") and not column.named
        return _missing(column, hash_string) if value is None or numbers else BAD
    if column.role == "string" or column.named:
        return _text(column, value, hash_string)
    if column.role == "time":
        return _time(column, value)
    if not isinstance(value, int | float | np.integer | np.floating | np.bool_):
        return BAD
    if isinstance(value, bool | np.bool_) and column.role == "key":
        return BAD
    return _number(column, value)


def _missing(column: Column, hash_string: Callable[[Any], int]) -> Any:
    if column.missing is None:
        return BAD
    if isinstance(column.missing, str):
        return hash_string(column.missing)
    return float32(column.missing) if column.dtype == "float32" else column.missing


def _text(column: Column, value: Any, hash_string: Callable[[Any], int]) -> Any:
    if not isinstance(value, str | bytes):
        return BAD
    if column.named:
        text = value.decode("latin-1") if isinstance(value, bytes) else value
        return column.classes.index(text) if text in column.classes else BAD
    if not value and column.empty == "missing":
        return _missing(column, hash_string)
    return hash_string(value)


def _time(column: Column, value: Any) -> Any:
    if isinstance(value, str | bytes):
        value = value.decode("latin-1") if isinstance(value, bytes) else value
        if not value and column.empty == "missing":
            return BAD if column.missing is None else column.missing
        try:
            value = datetime.datetime.fromisoformat(value)
        except ValueError:
            return BAD
    if not isinstance(value, datetime.date):
        return BAD
    if not isinstance(value, datetime.datetime):
        value = datetime.datetime(value.year, value.month, value.day)
    utc = value if value.tzinfo else value.replace(tzinfo=datetime.UTC)
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (utc - epoch) // datetime.timedelta(microseconds=1)


def _number(column: Column, value: Any) -> Any:
    if column.dtype == "int64":
        if isinstance(value, float | np.floating):
            widths = {np.float16: 2**11, np.float32: 2**24}
            if not abs(value) < widths.get(type(value), 2**53) or value != int(value):
                return BAD
        result = int(value)
        if not -(2**63) <= result < 2**63:
            return BAD
    else:
        result = float32(value)
        if column.finite and math.isinf(result):
            return BAD
    if column.classes and result not in column.classes:
        return BAD
    above = column.low is None or result >= column.low
    return result if above and (column.high is None or result <= column.high) else BAD


def float32(value: Any) -> float:
    """Returns the nearest float32 of a number, infinite if there is none."""
    try:
        return struct.unpack("f", struct.pack("f", float(value)))[0]
    except OverflowError:
        return math.inf if value > 0 else -math.inf
