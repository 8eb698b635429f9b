"""Reasons for which a row is bad, and what is expected instead."""

from __future__ import annotations

import enum

from tfhybrid.values.column import Column


class Reason(enum.IntEnum):
    """Fault of a row; 0 is a good row. The numbers may change between versions."""

    NONE = 0
    MISSING = 1
    KIND = 2
    SPELLING = 3
    WHOLE = 4
    EXACT = 5
    RANGE = 6
    FINITE = 7
    CLASS = 8
    LENGTH = 9


_NOUNS = {
    "key": "a key, a whole number of int64",
    "number": "a number",
    "string": "a string",
    "time": "a time",
    "label": "a label",
}


def expected(column: Column, reason: Reason) -> str:
    """Returns a description of good values for an error about a row's fault, without a period.

    Args:
        column: Column of the value.
        reason: Fault of the row.

    Example:

    >>> expected(Column("user"), Reason.EXACT)
    'a key below 2^53 if it is a float64 (2^24 if float32), because larger ones are rounded'
    """
    noun = _noun(column)
    match reason:
        case Reason.LENGTH:
            count = "one value" if column.length == 1 else f"a list of {column.length}"
            return f"{count}, each {noun}"
        case Reason.EXACT:
            return (
                f"{noun.partition(',')[0]} below 2^53 if it is a float64 (2^24 if float32), "
                "because larger ones are rounded"
            )
        case Reason.FINITE:
            return f"a finite number of {column.dtype}"
        case Reason.SPELLING if column.role == "time":
            return "a time in ISO 8601, such as 2026-11-27 09:30:38"
        case Reason.RANGE if column.low is not None or column.high is not None:
            return f"{noun} {_range(column)}"
    return noun


def _noun(column: Column) -> str:
    if column.named:
        return f"one of the names {list(column.classes)}"
    if column.classes:
        return f"a label of {list(column.classes)}"
    if column.role == "label":
        return "a class, a whole number" if column.whole else "a number"
    return _NOUNS[column.role]


def _range(column: Column) -> str:
    low = "" if column.low is None else f"from {column.low:g} on"
    return low if column.high is None else f"{low} to {column.high:g}".replace(" on to", " to")
