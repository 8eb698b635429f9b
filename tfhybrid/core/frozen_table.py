"""What is told of a table that is being saved."""

from __future__ import annotations

from typing import NamedTuple


class FrozenTable(NamedTuple):
    """A table at one moment.

    `rows` are the table's; `whole` says whether its parts hold all of them, or those that changed.
    `removed` is the number of keys whose rows were removed since. `event_time` and `decay` are the
    table's.
    """

    rows: int
    version: int
    parts: int
    whole: bool
    removed: int
    event_time: int
    decay: float


class TableFile(NamedTuple):
    """A file of rows: their number, its bytes, their digest, and the CRC-32C of its content."""

    rows: int
    bytes: int
    digest: int
    crc32c: int
