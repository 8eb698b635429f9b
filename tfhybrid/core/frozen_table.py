"""Descriptions of a table that is being saved."""

from __future__ import annotations

from typing import NamedTuple


class FrozenTable(NamedTuple):
    """A table at one point in time.

    Attributes:
        rows: Number of rows of the table.
        version: Number of updates that the rows contain.
        parts: Number of parts to write, each to a file of its own.
        whole: True if the parts hold all rows, false if only those that changed since the last
            `freeze` with the same cursor (record of changed rows).
        removed: Number of keys whose rows were removed since that `freeze`.
        event_time: Event time of the table.
        decay: Factor by which weight decay has shrunk the initial values of keys without a row.
    """

    rows: int
    version: int
    parts: int
    whole: bool
    removed: int
    event_time: int
    decay: float


class TableFile(NamedTuple):
    """Description of a file of rows.

    Attributes:
        rows: Number of rows.
        bytes: Size of the file.
        digest: Sum, modulo 2^64, of the hashes of the rows.
        crc32c: CRC-32C of the content.
    """

    rows: int
    bytes: int
    digest: int
    crc32c: int
