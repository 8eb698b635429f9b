"""Keeps memory that a step or a request frees in the process.

By default glibc returns large buffers to the kernel as soon as they are freed, and the next step
requests them again: the kernel then allocates and clears each page again. On one machine that took
8 % of a step's processor time, on another it was not measurable.
"""

from __future__ import annotations

import ctypes

from tfhybrid.settings import user_has_chosen_allocator

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_LARGEST = 2**31 - 1  # bytes: the largest value for mallopt


def keep_freed_memory() -> bool:
    """Makes glibc keep freed memory, unless the user has set an allocator or glibc's own options.

    The process then keeps as much memory as its largest step needed.

    Returns:
        Whether the option was set.

    Example:

    >>> from tfhybrid.core.allocator import keep_freed_memory
    >>> kept = keep_freed_memory()
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or user_has_chosen_allocator():
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST) and mallopt(_M_TRIM_THRESHOLD, _LARGEST))
