"""The time of day, for the age of events only.

Event times are times of day, so their age needs this clock. It can jump, so no decision depends on
it: everything else uses monotonic clocks.
"""

from __future__ import annotations

import time


def now() -> float:
    """Returns the time of day in seconds since 1970."""
    return time.time()
