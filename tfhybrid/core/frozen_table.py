"""Descriptions of a table that is being saved."""

from __future__ import annotations

from collections.abc import Sequence
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

    @classmethod
    def of_owners(cls, owners: Sequence[FrozenTable]) -> FrozenTable:
        """Returns the description of a whole table, whose rows several owners have.

        Args:
            owners: Description of each owner's rows; all have the same version.
        """
        return owners[0]._replace(
            rows=sum(each.rows for each in owners),
            parts=sum(each.parts for each in owners),
            whole=all(each.whole for each in owners),
            removed=sum(each.removed for each in owners),
            event_time=max(each.event_time for each in owners),
        )


class TableFile(NamedTuple):
    """Description of a file of rows.

    Attributes:
        rows: Number of rows.
        bytes: Size of the file in bytes.
        digest: Sum, modulo 2^64, of the hashes of the rows.
        crc32c: CRC-32C of the content.
    """

    rows: int
    bytes: int
    digest: int
    crc32c: int
