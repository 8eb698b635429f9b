"""Settings of a table, as an engine opens it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tfhybrid.core import native


@dataclasses.dataclass(frozen=True)
class OpenedTable:
    """Settings of a table to open, equal on all ranks.

    Args:
        name: Name of the table.
        dim: Length of an embedding.
        initializer: `native` of one of `tfhybrid.initializers`.
        seed: Seed of the job. Default 0.
        policy: Fields of `native.RowPolicyStruct`. Default: no admission and no eviction.
        placement: Distribution of the rows over the hosts of the job, and the host that has all of
            them for `WHOLE`. Default: replicated.
        files: `native` of a `tfhybrid.FileTier`. Default: rows are kept in memory.
    """

    name: str
    dim: int
    initializer: tuple[int, float, float]
    seed: int = 0
    policy: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    placement: tuple[native.PlacementKind, int] = (native.PlacementKind.REPLICATED, 0)
    files: tuple[str, int] = ("", 0)
