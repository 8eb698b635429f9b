"""Strict parsing of JSON from untrusted files; each field is checked before it is used.

`parse_object` and `want` raise `ValueError`; the caller adds the file's name.
"""

from __future__ import annotations

import json
import sys
from typing import Any, TypeGuard


def parse_object(text: bytes) -> dict[str, Any]:
    """Parses a JSON object in UTF-8 and rejects duplicate names.

    With a duplicate name some readers would take the first value and others the last.

    Args:
        text: JSON, not trusted.

    Returns:
        The object's values by name.

    Raises:
        ValueError: The text is not a JSON object, has a duplicate name, or is nested too deeply.

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


def want(condition: bool, expected: str, received: object) -> None:
    """Raises an error if a condition is false.

    Args:
        condition: Condition to check.
        expected: Description of the expected value, for the error.
        received: Value to show in the error, at most 300 characters of it.

    Raises:
        ValueError: The condition is false.

    Example:

    >>> want(3 < 2, "less than 2 rows", 3)
    Traceback (most recent call last):
    ValueError: wanted less than 2 rows. Received: 3
    """
    if not condition:
        text = repr(received)
        raise ValueError(
            f"wanted {expected}. Received: {text if len(text) < 300 else f'{text[:300]}...'}"
        )


def is_count(value: object, limit: int) -> bool:
    """Returns whether a value is a whole number from 0 to `limit - 1`; JSON's `true` is not.

    Args:
        value: Value from JSON.
        limit: First number that is too large.
    """
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < limit


def is_integer(value: object, limit: int) -> bool:
    """Returns whether a value is a whole number from `-limit` to `limit - 1`; `true` is not.

    Args:
        value: Value from JSON.
        limit: First number that is too large.
    """
    return isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit


def are_counts(values: object, limit: int) -> TypeGuard[list[int]]:
    """Returns whether a value is a list of whole numbers from 0 to `limit - 1`.

    Args:
        values: Value from JSON.
        limit: First number that is too large.
    """
    return isinstance(values, list) and all(is_count(value, limit) for value in values)


def are_numbers(values: object) -> TypeGuard[list[float]]:
    """Returns whether a value is a list of finite numbers; Python's JSON also parses NaN."""
    return isinstance(values, list) and all(map(_is_finite, values))


def is_text(value: object) -> TypeGuard[str]:
    """Returns whether a value is a string that can be encoded: JSON may have half a surrogate."""
    return isinstance(value, str) and value == value.encode("utf-8", "ignore").decode("utf-8")


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Returns whether a value is a JSON object that can be written again, at any depth."""
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
