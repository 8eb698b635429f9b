"""The time of a step's phases."""

from __future__ import annotations

from tfhybrid.core import native


def phase_times() -> dict[str, float]:
    """Returns the seconds that this process has spent in each phase of its steps.

    `callbacks.TensorBoard` describes the phases; phases of different threads overlap.

    Example:

    >>> from tfhybrid.metrics import phase_times
    >>> list(phase_times())[:3]
    ['wait', 'fetch', 'lookup']
    """
    return native.phase_times()
