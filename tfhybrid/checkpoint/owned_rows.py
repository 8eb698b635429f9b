"""What one host saves of a sharded table: its own rows, and what the manifest says of them."""

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
        frozen: The share as it was frozen.
        files: Those that the host has written, by name.
        evicted: int64 `[n]`, the keys that it lost since the base.
    """

    frozen: FrozenTable
    files: Mapping[str, TableFile]
    evicted: np.ndarray

    def as_json(self) -> dict[str, Any]:
        """Returns it as a note to rank 0 has it."""
        evicted = base64.b64encode(np.ascontiguousarray(self.evicted, np.int64).tobytes())
        return {"frozen": self.frozen, "files": self.files, "evicted": evicted.decode()}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> OwnedRows:
        """Returns what `as_json` was made from."""
        return cls(
            FrozenTable(*fields["frozen"]),
            {name: TableFile(*file) for name, file in fields["files"].items()},
            np.frombuffer(base64.b64decode(fields["evicted"]), np.int64),
        )


def together(shares: Sequence[OwnedRows]) -> OwnedRows:
    """Returns the shares of all hosts as one, in their order."""
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
