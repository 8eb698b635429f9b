"""Tests under horovodrun, on a number of ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def finished(
    ranks: int, *command: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs Python under horovodrun; returns its status and what all ranks wrote."""
    horovodrun = str(Path(sys.executable).with_name("horovodrun"))
    return subprocess.run(
        [horovodrun, "--gloo", "-np", str(ranks), sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def run(ranks: int, *command: str, env: dict[str, str] | None = None) -> str:
    """Runs Python under horovodrun, which must succeed; returns what all ranks wrote."""
    result = finished(ranks, *command, env=env)
    assert result.returncode == 0, result.stdout
    return result.stdout
