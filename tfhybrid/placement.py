"""How a table's rows lie on the hosts of a job."""

from __future__ import annotations

import dataclasses

from tfhybrid.errors import ConfigError

_BY = ("key", "table")


@dataclasses.dataclass(frozen=True)
class Replicated:
    """Every host has all rows of the table: lookups need no network, and memory is paid per host.

    The default.
    """


@dataclasses.dataclass(frozen=True)
class Sharded:
    """Each row lies on one host, its owner, so that a table may be larger than a host's memory.

    Training gives the same bits as with `Replicated`. A lookup brings the rows of other hosts over
    the network, each key once; an update goes to the owners of its keys alone. On one host it is
    the same as `Replicated`.

    Args:
        by: `"key"` spreads the rows of a table over all hosts. `"table"` puts all of them on one
            host, each such table on the next: for many tables that are small.

    Raises:
        ConfigError: `by` is neither.

    Example:

    >>> import tfhybrid
    >>> config = tfhybrid.TableConfig(dim=16, placement=tfhybrid.Sharded())
    """

    by: str = "key"

    def __post_init__(self) -> None:
        if self.by not in _BY:
            raise ConfigError(f"by is one of {_BY}. Received: by={self.by!r}")


Placement = Replicated | Sharded
REPLICATED = Replicated()
