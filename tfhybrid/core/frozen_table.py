"""Descriptions of a table that is being saved."""

from __future__ import annotations

from typing import NamedTuple


class FrozenTable(NamedTuple):
    """A table at one point in time.

    `rows` is the table's number of rows; `whole` says whether its parts hold all of them, or only
    those that changed. `removed` is the number of keys whose rows were removed since. `event_time`
    and `decay` are the table's.
    """

    rows: int
    version: int
    parts: int
    whole: bool
    removed: int
    event_time: int
    decay: float


class TableFile(NamedTuple):
    """A file of rows: number of rows, size in bytes, digest of the rows, CRC-32C of the content."""

    rows: int
    bytes: int
    digest: int
    crc32c: int
