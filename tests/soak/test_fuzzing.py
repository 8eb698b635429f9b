"""libFuzzer on every parser; needs clang. TFHYBRID_FUZZ_SECONDS is the time of each (120)."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(shutil.which("clang++") is None, reason="clang is not installed")
def test_no_input_breaks_a_parser() -> None:
    environment = {"TFHYBRID_FUZZ_SECONDS": "120", **os.environ}
    done = subprocess.run(
        [ROOT / "scripts/test", "fuzz"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
