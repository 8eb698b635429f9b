"""What a step frees stays in the process.

By default glibc gives large buffers back to the kernel as soon as they are free, and the next step
asks for them again: each page is then made and cleared anew. On one machine that was 8 % of a
step's processor time, on another too little to be seen.
"""

from __future__ import annotations

import ctypes
import os

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_LARGEST = 2**31 - 1  # bytes: what mallopt can be told

_SETTINGS = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_")


def keep_freed_memory() -> bool:
    """Lets glibc keep what is freed; not where the user has set an allocator or glibc's own.

    The process then holds as much as its largest step needed.

    Returns:
        Whether it was done.

    Example:

    >>> from tfhybrid.job.allocator import keep_freed_memory
    >>> kept = keep_freed_memory()
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or _user_has_chosen():
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST) and mallopt(_M_TRIM_THRESHOLD, _LARGEST))


def _user_has_chosen() -> bool:
    environment = os.environ
    return (
        any(name in environment for name in _SETTINGS)
        or "glibc.malloc" in environment.get("GLIBC_TUNABLES", "")
        or "malloc" in environment.get("LD_PRELOAD", "")
    )
