"""Announcements of keys by hand, so that their rows are fetched in advance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tfhybrid.core import passes
from tfhybrid.core.passes import Pass, PassStats
from tfhybrid.errors import ConfigError
from tfhybrid.job import current_job

MISSES = ("fetch", "raise")


def announce(
    keys: Mapping[str, Any] | Sequence[Mapping[str, Any]], *, on_miss: str = "fetch"
) -> Pass:
    """Announces the keys that this rank looks up next, and opens the pass.

    Args:
        keys: Keys by table name, for one batch or several. A batch is used up once this rank has
            taken part in an update of its tables.
        on_miss: `"fetch"` (default) or `"raise"`; see `tfhybrid.data.announce`.

    Returns:
        The pass: a context manager that releases the rows at the end of the block.

    Raises:
        ConfigError: `on_miss` is unknown, or there is no batch.
        StoreError: A table is not open, or shared memory is full.
        UnsupportedError: Embedding nodes own the tables.
        NotInitializedError: No job is running.

    Example:

    ```python
    with tfhybrid.announce({"item": np.arange(1000)}):
        scores = model.predict(candidates)
    ```
    """
    if on_miss not in MISSES:
        raise ConfigError(f"on_miss must be one of {MISSES}. Received: {on_miss!r}")
    batches = [keys] if isinstance(keys, Mapping) else list(keys)
    if not batches:
        raise ConfigError("A pass needs at least one batch of keys. Received: none")
    announced = passes.announce(current_job().engine, batches, refuses=on_miss == "raise")
    announced.begin(0)
    return announced


def pass_stats() -> PassStats:
    """Returns the counters of this job's passes, for this rank and its host.

    Raises:
        NotInitializedError: No job is running.
        StoreError: The job has no open store.

    Example:

    >>> import tfhybrid
    >>> tfhybrid.init()
    >>> tfhybrid.pass_stats().hits
    0
    """
    return passes.stats(current_job().engine)
