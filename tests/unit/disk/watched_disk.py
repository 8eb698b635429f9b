"""A folder whose calls are counted, and fail; with disk_calls.c preloaded, as `preloaded` does."""

from __future__ import annotations

import ctypes
import enum
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


class Fault(enum.IntEnum):
    """How calls fail: one by a bad disk, or all from one on that need space, or a descriptor."""

    BAD_DISK = 0
    FULL_DISK = 1
    NO_DESCRIPTORS = 2


def preloaded(folder: Path) -> dict[str, str]:
    """Compiles disk_calls.c into a folder; returns the environment of a process with it."""
    library = folder / "disk_calls.so"
    source = HERE / "disk_calls.c"
    options = ["-shared", "-fPIC", "-O1", "-Wall", "-Werror"]
    subprocess.run(["gcc", *options, source, "-o", library, "-ldl"], check=True)
    return os.environ | {"LD_PRELOAD": str(library), "PYTHONPATH": str(ROOT)}


def watched(
    directory: Path,
    work: Callable[[], object],
    failing: int = 0,
    journal: str = "",
    fault: Fault = Fault.BAD_DISK,
) -> int:
    """Runs some work on a watched disk; returns how many calls it made."""
    calls = ctypes.CDLL(None)
    calls.disk_calls_fault(int(fault))
    calls.disk_calls_watch(str(directory).encode(), ctypes.c_long(failing), journal.encode())
    try:
        work()
    finally:
        made = calls.disk_calls_stop()
    return int(made)
