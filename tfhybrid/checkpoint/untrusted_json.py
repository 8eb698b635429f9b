"""Strict parsing of JSON from untrusted files; each field is checked before it is used.

All functions raise ValueError; the caller adds the file's name.
"""

from __future__ import annotations

import json
import sys
from typing import Any, TypeGuard


def parse_object(text: bytes) -> dict[str, Any]:
    """Parses a JSON object in UTF-8 and rejects duplicate names.

    For a duplicate name some readers take the first value and others the last.

    Example:

    >>> parse_object(b'{"rows": 3}')
    {'rows': 3}
    """
    try:
        value = json.loads(text.decode("utf-8"), object_pairs_hook=_object)
    except RecursionError:
        raise ValueError("its JSON is nested too deeply") from None
    want(isinstance(value, dict), "an object of JSON", value)
    return value


def want(condition: bool, wanted: str, received: object) -> None:
    """Checks a condition.

    Example:

    >>> want(3 < 2, "less than 2 rows", 3)
    Traceback (most recent call last):
    ValueError: wanted less than 2 rows. Received: 3
    """
    if not condition:
        shown = repr(received)
        raise ValueError(
            f"wanted {wanted}. Received: {shown if len(shown) < 300 else f'{shown[:300]}...'}"
        )


def is_count(value: object, limit: int) -> bool:
    """Whether it is a whole number from 0 to `limit - 1`; JSON's `true` is not one."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < limit


def is_integer(value: object, limit: int) -> bool:
    """Whether it is a whole number from `-limit` to `limit - 1`; JSON's `true` is not one."""
    return isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit


def are_counts(values: object, limit: int) -> TypeGuard[list[int]]:
    """Whether it is a list of whole numbers from 0 to `limit - 1`."""
    return isinstance(values, list) and all(is_count(value, limit) for value in values)


def are_numbers(values: object) -> TypeGuard[list[float]]:
    """Whether it is a list of finite numbers; Python's JSON also accepts NaN and Infinity."""
    return isinstance(values, list) and all(map(_is_finite, values))


def is_text(value: object) -> TypeGuard[str]:
    """Whether it is a string that can be encoded: JSON may contain half a surrogate pair."""
    return isinstance(value, str) and value == value.encode("utf-8", "ignore").decode("utf-8")


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether it is a JSON object that can be written again, at any depth."""
    return isinstance(value, dict) and _is_json(value)


def _is_json(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(is_text, value)) and all(map(_is_json, value.values()))
    if isinstance(value, list):
        return all(map(_is_json, value))
    if value is None or isinstance(value, bool):
        return True
    return is_text(value) or is_integer(value, 2**63) or _is_finite(value)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    want(len(dict(pairs)) == len(pairs), "names that occur once", [name for name, _ in pairs])
    return dict(pairs)


def _is_finite(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max
