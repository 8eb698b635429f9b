"""Placement: the distribution of a table's rows over the hosts of a job."""

from __future__ import annotations

import dataclasses

from tfhybrid.errors import ConfigError

_BY = ("key", "table")


@dataclasses.dataclass(frozen=True)
class Replicated:
    """Placement of all rows on every host, the default.

    Lookups need no network, but each host needs memory for the whole table.
    """


@dataclasses.dataclass(frozen=True)
class Sharded:
    """Placement of each row on one host, its owner. A table may be larger than a host's memory.

    Training gives the same bits as with `Replicated`. A lookup fetches the rows of other hosts over
    the network, each key once. An update is sent only to the owners of its keys. On one host there
    is no difference to `Replicated`.

    Args:
        by: Unit that is distributed. `"key"` (default) spreads the rows of a table over all hosts.
            `"table"` puts each table on one host, the next table on the next host; use it for many
            small tables.

    Raises:
        ConfigError: `by` is neither `"key"` nor `"table"`.

    Example:

    >>> import tfhybrid
    >>> config = tfhybrid.TableConfig(dim=16, placement=tfhybrid.Sharded())
    """

    by: str = "key"

    def __post_init__(self) -> None:
        if self.by not in _BY:
            raise ConfigError(f"by must be one of {_BY}. Received: by={self.by!r}")


Placement = Replicated | Sharded
REPLICATED = Replicated()
