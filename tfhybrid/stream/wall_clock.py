"""The time of day. Events have it, so what is told of their age needs it; nothing is decided by it.

Everything else measures with clocks that never jump.
"""

from __future__ import annotations

import time


def now() -> float:
    """Returns seconds since 1970."""
    return time.time()
