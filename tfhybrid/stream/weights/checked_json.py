"""JSON files with a checksum: a first line with the CRC-32C of the rest, in hexadecimal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tfhybrid.checkpoint import storage
from tfhybrid.checkpoint.storage import Location
from tfhybrid.core import native
from tfhybrid.errors import CorruptFileError


def encoded(value: Any) -> tuple[bytes, int]:
    """Returns the content of a file, and the checksum of its JSON.

    Args:
        value: Value to write, of types that JSON has.
    """
    content = json.dumps(value).encode()
    crc = native.crc32c(content)
    return b"%08x\n" % crc + content, crc


def read(path: Location) -> tuple[Any, int]:
    """Returns the value in a file, and the checksum of its JSON.

    Args:
        path: Path of the file.

    Raises:
        CorruptFileError: The file is damaged, or is not JSON.
        OSError: The file cannot be read.
    """
    head, _, content = storage.read(path).tobytes().partition(b"\n")
    crc = native.crc32c(content)
    if head != b"%08x" % crc:
        raise CorruptFileError(f"{path} is damaged: its checksum is not {head[:8]!r}")
    try:
        return json.loads(content), crc
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(f"{path} is not JSON: {error}") from error


def moved_aside(path: Path) -> Path:
    """Renames a damaged file to `damaged-NAME`, so that nobody reads it, and returns its new path.

    Args:
        path: Path of the file.

    Raises:
        OSError: The file cannot be renamed.
    """
    moved = path.with_name(f"damaged-{path.name}")
    path.replace(moved)
    return moved


def check(path: Location, crc: int) -> None:
    """Verifies the checksum of a file of any kind.

    Args:
        path: Path of the file.
        crc: CRC-32C that its content must have.

    Raises:
        CorruptFileError: The content is another one.
        OSError: The file cannot be read.
    """
    received = native.crc32c(storage.read(path))
    if received != crc:
        raise CorruptFileError(
            f"{path} is damaged: its checksum must be {crc:08x}. Received: {received:08x}"
        )
