"""Storage for tables larger than memory: rows are kept in files on a disk."""

from __future__ import annotations

import dataclasses
import numbers
import os

from tfhybrid.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class FileTier:
    """Storage of a table's rows in files on a local disk, with a cache of rows in shared memory.

    Memory holds the cache and, for each row, its key, its location and 9 to 12 bytes of index: at
    most 28 bytes. Training gives the same bits as with a table in memory. The files are not a
    checkpoint: they belong to the job, like its tables in memory, and are removed with it.

    Eviction by `min_norm` and `lazy=False` are not supported, because they would read all rows.

    Args:
        path: Existing directory on every host. It should have a disk of its own.
        cache_bytes: Shared memory for the cache of each table with this storage, in bytes. Default
            256 MiB. The cache must hold all rows of one step, with embeddings and optimizer state,
            and should hold the frequent rows.

    Raises:
        ConfigError: `cache_bytes` is not a whole number, is below 1, or is 2^50 or more.

    Example:

    >>> import tfhybrid
    >>> storage = tfhybrid.FileTier("/nvme/tables", cache_bytes=4 * 2**30)
    >>> config = tfhybrid.TableConfig(dim=64, optimizer="adagrad", storage=storage)
    """

    path: str | os.PathLike[str]
    cache_bytes: int = 256 * 2**20

    def __post_init__(self) -> None:
        whole = isinstance(self.cache_bytes, numbers.Integral)
        if not whole or not 1 <= self.cache_bytes < 2**50:
            raise ConfigError(
                "cache_bytes must be a whole number of bytes, at least 1. "
                f"Received: cache_bytes={self.cache_bytes!r}"
            )
        object.__setattr__(self, "path", os.path.abspath(os.fspath(self.path)))

    @property
    def native(self) -> tuple[str, int]:
        """The argument `files` of `Engine.open_table`: absolute path, and cache size in bytes."""
        return os.fspath(self.path), int(self.cache_bytes)
