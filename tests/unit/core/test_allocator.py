"""Memory that a step frees stays in the process; in processes of their own, which it changes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

MEBIBYTES = 64
SCRIPT = f"""
import numpy as np, resource
from tfhybrid.core.allocator import keep_freed_memory

def faults(times):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        np.ones({MEBIBYTES} << 20, np.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

kept = keep_freed_memory()
faults(2)
print(kept, faults(20))
"""


def run(**environment: str) -> tuple[str, int]:
    """Returns whether it was done, and how often pages were made in 20 steps."""
    unset = {"MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "LD_PRELOAD"}
    inherited = {name: value for name, value in os.environ.items() if name not in unset}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=inherited | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    kept, faults = done.stdout.split()
    return kept, int(faults)


def test_pages_are_made_once() -> None:
    kept, faults = run()
    assert kept == "True"
    assert faults < 20


@pytest.mark.parametrize(
    "setting",
    [
        {"MALLOC_TOP_PAD_": "0"},
        {"GLIBC_TUNABLES": "glibc.malloc.top_pad=0"},
        {"LD_PRELOAD": "libmalloc_of_the_user.so"},  # which the loader does not find
    ],
)
def test_what_the_user_has_set_is_heeded(setting) -> None:
    kept, faults = run(**setting)
    assert kept == "False"
    assert faults >= 20
