"""Where the time of a step goes."""

from __future__ import annotations

from tfhybrid.core import native


def phase_times() -> dict[str, float]:
    """Returns the seconds that this process has spent in each phase of its steps so far.

    `callbacks.TensorBoard` says which phases there are; those of different threads overlap.

    Example:

    >>> from tfhybrid.metrics import phase_times
    >>> list(phase_times())[:3]
    ['wait', 'fetch', 'lookup']
    """
    return native.phase_times()
