"""The ways in which values enter, and the values that each of them has no means to carry.

docs/data.md has this table. The tests of tests/unit/values send the other values through each way.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from tfhybrid.values import Column

# Words for each kind of value, in the order of the page.
KINDS = {
    "huge": "whole numbers beyond uint64",
    "large": "whole numbers beyond int64",
    "float key": "ids as float64",
    "narrow key": "ids as float32",
    "boolean key": "`true` as an id",
    "text for a number": "a text in place of a number",
    "number for a text": "a number in place of a text",
    "missing key": "a missing id",
    "missing number": "a missing number",
    "missing string": "a missing string beside an empty one",
    "number": "numbers that are not ids",
    "float64": "more digits than float32 has",
    "nan": "NaN",
    "infinite": "infinite numbers",
    "boolean": "`true` as a number",
    "string": "strings",
    "bytes": "strings that are not UTF-8",
    "list": "lists",
    "missing list": "a missing list",
    "missing item": "a missing value within a list",
    "list for one": "a list in place of one value",
    "one for list": "one value in place of a list",
    "other length": "a list of another length",
}

# Words for kinds that are absent together.
GROUPS = {
    ("huge", "large"): "whole numbers beyond int64",
    ("float key", "narrow key"): "ids as floats",
    ("boolean key", "boolean"): "`true`",
    ("missing key", "missing number", "missing string", "missing list", "missing item"): (
        "missing values"
    ),
    ("string", "bytes"): "strings",
    ("list", "list for one", "one for list", "other length"): "lists",
    ("text for a number", "number for a text", "list for one", "one for list"): (
        "values of several types in a column"
    ),
    ("text for a number",): "values of several types in a column",
    ("missing list", "missing item", "other length"): (
        "lists of another length or with missing values"
    ),
}


@dataclasses.dataclass(frozen=True)
class Way:
    """A way in.

    Args:
        name: Name of the way, as the page has it.
        lacks: Kinds of values that it cannot carry.
        typed: Whether the values of a column have one type.
        bad_rows: Words for what happens to a bad row.
    """

    name: str
    lacks: frozenset[str]
    typed: bool
    bad_rows: str

    def carries(self, column: Column, value: Any) -> bool:
        """Returns whether a value of a column can be sent this way."""
        return not kinds_of(column, value) & self.lacks


def _way(name: str, bad_rows: str, lacks: str, typed: bool = False) -> Way:
    kinds = frozenset(each.strip() for each in lacks.split(",") if each.strip())
    assert kinds <= KINDS.keys(), kinds - KINDS.keys()
    return Way(name, kinds, typed, bad_rows)


_RAISED = "`DataError` with file, row and column, or skipped"
_OF_TABLE = "`DataError` with source, row and column; the table stays empty"
_TOLD = "left out; told with record, row and column"
_TYPES = "text for a number, number for a text, list for one, one for list, huge"
_NO_TEXT = "string, bytes, missing string, number for a text"
_NOT_IN_ARRAYS = f"{_NO_TEXT}, {_TYPES}, missing key, missing list, missing item, other length"
_NOT_IN_RECORDS = f"{_NOT_IN_ARRAYS}, large, float key, narrow key, boolean key, boolean, float64"

_NOT_IN_TENSORS = f"{_TYPES}, float key, narrow key, boolean key, boolean, missing key"
_NOT_IN_TENSORS += ", missing number, missing string, missing list, missing item, other length"

WAYS = {
    each.name: each
    for each in (
        _way("`Parquet`", _RAISED, f"{_TYPES}, boolean key, bytes, other length", typed=True),
        _way(
            "`TFRecord`",
            _RAISED,
            "huge, large, float key, boolean key, boolean, float64, missing item, one for list, "
            "other length",
        ),
        _way(
            "`Csv`",
            _RAISED,
            "float key, narrow key, boolean key, boolean, text for a number, number for a text, "
            "missing string, missing item, bytes, list for one, one for list, other length",
        ),
        _way(
            "`Libfm`",
            _RAISED,
            "float key, narrow key, boolean key, text for a number, missing key, number, "
            "missing number, boolean, string, bytes, missing string, "
            "number for a text, list, missing list, missing item, list for one, one for list, "
            "other length",
        ),
        _way(
            "`Criteo`",
            _RAISED,
            "float key, narrow key, boolean key, text for a number, number for a text, float64, "
            "nan, infinite, boolean, string, bytes, missing string, list, missing list, "
            "missing item, list for one, one for list, other length, huge, large",
        ),
        _way(
            "`Batches.of`",
            "`DataError` with row and column",
            f"{_TYPES}, bytes, other length",
            typed=True,
        ),
        _way("`ArrayRows`, lists", _OF_TABLE, _NO_TEXT),
        _way("`ArrayRows`, Arrow", _OF_TABLE, f"{_TYPES}, {_NO_TEXT}", typed=True),
        _way("`ArrayRows`, NumPy", _OF_TABLE, _NOT_IN_ARRAYS, typed=True),
        _way("`NumpyRows`", _OF_TABLE, _NOT_IN_ARRAYS, typed=True),
        _way("`ParquetRows`", _OF_TABLE, f"{_TYPES}, {_NO_TEXT}", typed=True),
        _way("`VariableRows`", _OF_TABLE, _NOT_IN_ARRAYS, typed=True),
        _way("`TfraRows`", _OF_TABLE, _NOT_IN_RECORDS, typed=True),
        _way(
            "`RecordFile`",
            "`CorruptFileError` with file and record; the table stays empty",
            _NOT_IN_RECORDS,
            typed=True,
        ),
        _way("JSON in a stream", _TOLD, "narrow key, bytes, other length"),
        _way("Arrow in a stream", _TOLD, f"{_TYPES}, bytes, other length", typed=True),
        _way("label joins", _TOLD, "narrow key, bytes, other length"),
        _way(
            "data nodes",
            "`ConfigError` for a type, `DataError` for an id beyond int64",
            f"{_NOT_IN_TENSORS}, string, bytes",
            typed=True,
        ),
        _way(
            "layers",
            "`ConfigError` for a type or rank, when they are traced",
            f"{_NOT_IN_TENSORS}, large",
            typed=True,
        ),
        _way(
            "exported models",
            "INVALID_ARGUMENT for a shape, row splits or indices; NaN and infinite numbers pass",
            f"{_NOT_IN_TENSORS}, large",
            typed=True,
        ),
        _way(
            "`ServedModel`",
            "`DataError` with input and index",
            "list, missing list, missing item, one for list, other length",
        ),
    )
}


# Kinds that go without saying where there are no lists.
_OF_LISTS = ("missing list", "missing item", "list for one", "one for list", "other length")


def lacking(way: Way) -> list[str]:
    """Returns words for what a way cannot carry."""
    unsaid = {"missing string", "number for a text"} if "string" in way.lacks else set()
    unsaid |= {*_OF_LISTS} if "list" in way.lacks else set()
    rest = {kind: words for kind, words in KINDS.items() if kind in way.lacks - unsaid}
    result: list[str] = []
    for kinds, words in GROUPS.items():
        if (shown := set(kinds) - unsaid) and shown <= rest.keys():
            result.append(words)
            rest = {kind: words for kind, words in rest.items() if kind not in kinds}
    rest.pop("other length", None)  # only lists of embeddings have one length
    return result + list(rest.values())


def kinds_of(column: Column, value: Any) -> set[str]:
    """Returns the kinds of a value of a column."""
    if isinstance(value, list):
        kinds = {"missing item"} if None in value else set()
        items = [item for item in value if item is not None]
        kinds |= {"list"} if column.length != 1 else {"list for one"}
        kinds |= {"other length"} if column.length not in (None, 1, len(value)) else set()
        return kinds.union(*(_kinds_of_one(column, item) for item in items))
    if column.length != 1:
        return {"missing list"} if value is None else {"one for list"}
    return _kinds_of_one(column, value)


def _kinds_of_one(column: Column, value: Any) -> set[str]:
    if column.role == "string":
        return _kinds_of_string(value)
    is_key = column.role == "key"
    if value is None:
        return {"missing key" if is_key else "missing number"}
    if isinstance(value, str | bytes):
        return {"text for a number"}
    if isinstance(value, bool):
        return {"boolean key" if is_key else "boolean"}
    number = {"number"} if column.role == "number" else set()
    if isinstance(value, int):
        size = {"huge"} if not -(2**63) <= value < 2**64 else set()
        size |= {"large"} if not -(2**63) <= value < 2**63 else set()
        return size | number
    kinds = {"narrow key" if isinstance(value, np.floating) else "float key"} if is_key else set()
    kinds |= number
    if not is_key and not isinstance(value, np.floating):
        kinds |= {"float64"}
    if math.isnan(value):
        return kinds | {"nan"}
    return kinds | {"infinite"} if math.isinf(value) else kinds


def _kinds_of_string(value: Any) -> set[str]:
    if value is None:
        return {"string", "missing string"}
    if isinstance(value, bytes):
        return {"string", "bytes"}
    return {"string"} if isinstance(value, str) else {"string", "number for a text"}
