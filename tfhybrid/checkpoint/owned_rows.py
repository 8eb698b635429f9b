"""Rows that one host owns of a table in a checkpoint, and its part of the manifest."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfhybrid.store import FrozenTable, TableFile


@dataclasses.dataclass(frozen=True)
class OwnedRows:
    """Description of a table's rows in a checkpoint: those of one host, or of all `together`.

    Args:
        frozen: Description of the frozen rows.
        files: Files of the rows, by name.
        evicted: Keys that were evicted since the base, int64 `[n]`.
    """

    frozen: FrozenTable
    files: Mapping[str, TableFile]
    evicted: np.ndarray

    def as_json(self) -> dict[str, Any]:
        """Returns the description of the rows as JSON, for the message from a leader to rank 0."""
        evicted = base64.b64encode(np.ascontiguousarray(self.evicted, np.int64).tobytes())
        return {"frozen": self.frozen, "files": self.files, "evicted": evicted.decode()}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> OwnedRows:
        """Returns the description of rows that `as_json` wrote.

        Args:
            fields: Result of `as_json`.
        """
        return cls(
            FrozenTable(*fields["frozen"]),
            {name: TableFile(*file) for name, file in fields["files"].items()},
            np.frombuffer(base64.b64decode(fields["evicted"]), np.int64),
        )


def together(hosts: Sequence[OwnedRows]) -> OwnedRows:
    """Combines the rows of all hosts into those of the whole table, in the order of the hosts.

    Args:
        hosts: Rows of each host, in the order of hosts.

    Returns:
        The rows of the whole table, in the order of the hosts.
    """
    return OwnedRows(
        FrozenTable.of_owners([rows.frozen for rows in hosts]),
        {name: file for rows in hosts for name, file in rows.files.items()},
        np.concatenate([rows.evicted for rows in hosts]),
    )
