"""How a table's rows are distributed over the hosts of a job."""

from __future__ import annotations

import dataclasses

from tfhybrid.errors import ConfigError

_BY = ("key", "table")


@dataclasses.dataclass(frozen=True)
class Replicated:
    """Every host holds all rows of the table. Lookups need no network; each host pays the memory.

    This is the default.
    """


@dataclasses.dataclass(frozen=True)
class Sharded:
    """Each row is on one host, its owner, so that a table may be larger than a host's memory.

    Training gives the same bits as with `Replicated`. A lookup fetches the rows of other hosts over
    the network, each key once; an update is sent only to the owners of its keys. On one host it is
    the same as `Replicated`.

    Args:
        by: `"key"` spreads a table's rows over all hosts. `"table"` puts the whole table on one
            host, and each such table on the next host: for many small tables.

    Raises:
        ConfigError: `by` is neither.

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
