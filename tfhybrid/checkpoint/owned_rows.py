"""One host's part of a sharded table in a checkpoint: its rows and its part of the manifest."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tfhybrid.store import FrozenTable, TableFile


@dataclasses.dataclass(frozen=True)
class OwnedRows:
    """A host's share of a table in a checkpoint.

    Args:
        frozen: The share's frozen state.
        files: The files that the host wrote, by name.
        evicted: int64 `[n]`, the keys that were evicted since the base.
    """

    frozen: FrozenTable
    files: Mapping[str, TableFile]
    evicted: np.ndarray

    def as_json(self) -> dict[str, Any]:
        """Returns the share as JSON, for the note to rank 0."""
        evicted = base64.b64encode(np.ascontiguousarray(self.evicted, np.int64).tobytes())
        return {"frozen": self.frozen, "files": self.files, "evicted": evicted.decode()}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> OwnedRows:
        """Returns the share from the JSON of `as_json`."""
        return cls(
            FrozenTable(*fields["frozen"]),
            {name: TableFile(*file) for name, file in fields["files"].items()},
            np.frombuffer(base64.b64decode(fields["evicted"]), np.int64),
        )


def together(shares: Sequence[OwnedRows]) -> OwnedRows:
    """Combines the shares of all hosts, in their order."""
    frozen = [share.frozen for share in shares]
    return OwnedRows(
        frozen[0]._replace(
            rows=sum(each.rows for each in frozen),
            parts=sum(each.parts for each in frozen),
            whole=all(each.whole for each in frozen),
            removed=sum(each.removed for each in frozen),
            event_time=max(each.event_time for each in frozen),
        ),
        {name: file for share in shares for name, file in share.files.items()},
        np.concatenate([share.evicted for share in shares]),
    )
