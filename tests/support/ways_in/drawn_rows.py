"""Rows of good and bad values, drawn for a way in, and the verdicts on what arrives."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tests.support.slow_judge import BAD, judge
from tests.support.ways_in.ways import Way
from tfhybrid.data import string_keys
from tfhybrid.values import Column

Row = dict[str, Any]
EVERY = 1000
SIZES = [0, 1, 9, 10, 11, 30, EVERY]
"""Numbers of rows, for units of 10; `EVERY` stands for a row with each value of each column."""

USER = Column("user", missing=-1)
PRICE = Column("price", "number", missing=0.5)
CITY = Column("city", "string", missing=-7)
TAGS = Column("tags", length=None)
LABEL = Column("label", "label", classes=(0, 1))
SAMPLE = [USER, PRICE, CITY, TAGS, LABEL]

_LIMITS = [0, -1, 7, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2**64 - 1, 10**30]
_LIMITS += [-(2**63) - 1, -(10**30)]
_KEY_FLOATS = [7.0, 7.5, -0.0, 2.0**53 - 1, 2.0**53, -(2.0**53), 1e18, 1e300, math.nan, math.inf]
_NARROW = [*map(np.float32, [7, 7.5, 2**24 - 1, 2**24, -(2**24), 1e18, math.nan, math.inf])]
_FLOATS = [0.0, -2.5, 0.1, 3.4028234e38, 3.4028236e38, 1e39, -1e39, math.nan, math.inf, -math.inf]
_SINGLES = [*map(np.float32, [0.5, -3.5, 3.4028235e38, 1e-45, math.nan, math.inf, -math.inf])]
VALUES: dict[str, list[Any]] = {
    "user": [*_LIMITS, *_KEY_FLOATS, *_NARROW, True, False, "7", "x", "", None, [1, 2]],
    "price": [*_FLOATS, *_SINGLES, 3, -7, 2**24 + 1, True, "1.5", "x", None, [1.0, 2.0]],
    "city": ["", "a", " a", "7", "ü", "NA", b"\xff", b"\xc3(", None, 5, 2.5, ["a", "b"]],
    "tags": [
        *([], None, [5], [2**63 - 1, -(2**63)], [2**63], [10**30], [7.0, 7.5], [2.0**53]),
        *([np.float32(7)], [np.float32(2**24)], [1, None], [None], [True], ["x"], ["7"], 5, "x"),
    ],
    "label": [0, 1, 2, -1, 0.0, 1.0, 0.5, math.nan, math.inf, True, "yes", None, [0, 1]],
}
GOOD: dict[str, list[Any]] = {
    "user": [7, 7.0, np.float32(7)],
    "price": [1.5, 3, np.float32(1.5), True],
    "city": ["Ulm"],
    "tags": [[1, 2], [1.0, 2.0], [np.float32(1)]],
    "label": [1, 1.0, True],
}


def type_of(value: Any) -> str:
    """Returns the name of the Arrow type that holds a value and those like it."""
    if isinstance(value, list):
        kinds = {type_of(item) for item in value if item is not None} or {""}
        return "list " + "/".join(sorted(kinds))
    if isinstance(value, int) and not isinstance(value, bool):
        if -(2**63) <= value < 2**63:
            return "int64"
        return "uint64" if 0 <= value < 2**64 else "none"
    return {bool: "bool", float: "float64", np.float32: "float32", bytes: "binary"}.get(
        type(value), "string"
    )


def drawn(
    way: Way,
    columns: Sequence[Column],
    seed: int,
    rows: int,
    values: dict[str, list[Any]] = VALUES,
    good: dict[str, list[Any]] = GOOD,
) -> tuple[list[Row], dict[str, str]]:
    """Returns rows that a way can carry, most of them good, and the type of each column.

    Args:
        way: Way of the rows.
        columns: Columns of a row.
        seed: Seed of the values, which also chooses the types of a typed way.
        rows: Number of rows, or `EVERY`.
        values: Good and bad values by column. Default: those of samples.
        good: Good values by column, of each type. Default: those of samples.
    """
    draw = random.Random(f"{seed} {rows}")
    carried = {c.name: [v for v in values[c.name] if way.carries(c, v)] for c in columns}
    fine = {c.name: [v for v in good[c.name] if way.carries(c, v)] for c in columns}
    types: dict[str, str] = {}
    for name in carried:
        if not way.typed:
            continue
        choices = sorted({type_of(v) for v in fine[name]})
        types[name] = choices[seed % len(choices)]
        fine[name] = [v for v in fine[name] if type_of(v) == types[name]]
        held = {types[name], "list "} if types[name].startswith("list") else {types[name]}
        held |= {"uint64"} if types[name] == "int64" and seed % 2 else set()
        carried[name] = [v for v in carried[name] if v is None or type_of(v) in held]
        if "uint64" in held and any(type_of(v) == "uint64" for v in carried[name]):
            types[name] = "uint64"
            carried[name] = [v for v in carried[name] if v is None or v >= 0]
    names = [column.name for column in columns]
    if rows == EVERY:
        others = [{n: draw.choice(fine[n]) for n in names} for n in names for _ in carried[n]]
        every = [{n: value} for n in names for value in carried[n]]
        return [row | value for row, value in zip(others, every, strict=True)], types
    table = [
        {n: draw.choice(carried[n] if draw.random() < 0.15 else fine[n]) for n in names}
        for _ in range(rows)
    ]
    return table, types


_ARROW: dict[str, pa.DataType] = {
    name: pa.type_for_alias(name)
    for name in ("int64", "uint64", "float64", "float32", "bool", "string", "binary")
}


def arrow_of(table: Sequence[Row], types: dict[str, str]) -> pa.Table:
    """Returns drawn rows as an Arrow table."""

    def array(name: str) -> pa.Array:
        lists, _, leaf = types[name].rpartition(" ")
        kind = _ARROW[leaf or "int64"]
        return pa.array([row[name] for row in table], pa.list_(kind) if lists else kind)

    return pa.table({name: array(name) for name in types})


def hash_one(text: str | bytes) -> int:
    """Returns the key of a text."""
    return int(string_keys([text])[0])


def verdicts_of(
    columns: Sequence[Column],
    table: Sequence[Row],
    hash_string: Callable[[Any], Any] = hash_one,
) -> list[Row]:
    """Returns what the slow judge says of each value."""
    return [{c.name: judge(c, row[c.name], hash_string) for c in columns} for row in table]


def is_bad(verdict: Row) -> bool:
    """Returns whether a row has a bad value."""
    return any(value is BAD for value in verdict.values())
