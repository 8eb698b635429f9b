"""JSON objects with a checksum of their values, for small files that decide something."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from tfhybrid.core import native
from tfhybrid.errors import CorruptFileError

_log = logging.getLogger("tfhybrid.core")

_CHECKSUM = "crc32c"
_warned: set[str] = set()


def checksum(fields: Mapping[str, Any]) -> int:
    """Returns the CRC-32C of a JSON object's values, which whitespace does not change."""
    return native.crc32c(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode())


def encoded(fields: Mapping[str, Any], indent: int | None = None) -> bytes:
    """Returns the content of a file: the fields and their checksum, as JSON.

    Args:
        fields: JSON-serializable fields.
        indent: Indentation, as of `json.dumps`. Default: one line.
    """
    return json.dumps({**fields, _CHECKSUM: checksum(fields)}, indent=indent).encode()


def without_checksum(content: object, path: object) -> dict[str, Any]:
    """Verifies the checksum of an object, and returns the fields without it.

    An object without a checksum is taken: earlier versions wrote none. A warning says so, once for
    each file in this process.

    Args:
        content: Parsed JSON of the file.
        path: Path of the file, for messages.

    Raises:
        CorruptFileError: The checksum is another one.
        ValueError: The content is no object.
    """
    if not isinstance(content, dict):
        raise ValueError(f"{path} must have a JSON object. Received: {content!r:.200}")
    fields = dict(content)
    written = fields.pop(_CHECKSUM, None)
    if written is None and str(path) not in _warned:
        _warned.add(str(path))
        _log.warning(
            "%s has no checksum, so a change of it would not be noticed: an earlier version of "
            "tfhybrid wrote it. The file gets a checksum when it is written again",
            path,
        )
    computed = checksum(fields)
    if written not in (None, computed):
        raise CorruptFileError(
            f"{path} is damaged: the checksum of its fields must be {computed}. "
            f"Received: {written!r:.200}"
        )
    return fields
