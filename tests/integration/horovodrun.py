"""Tests under horovodrun, on a number of ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(ranks: int, *command: str, env: dict[str, str] | None = None) -> str:
    """Runs Python under horovodrun; returns what all ranks wrote."""
    horovodrun = str(Path(sys.executable).with_name("horovodrun"))
    result = subprocess.run(
        [horovodrun, "--gloo", "-np", str(ranks), sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert result.returncode == 0, result.stdout
    return result.stdout
