"""What functions of scripts/environment print."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def answer(command: str) -> str:
    """Returns what a command prints, such as a function of scripts/environment."""
    script = f"source scripts/environment; {command}"
    return subprocess.check_output(["bash", "-c", script], cwd=ROOT, text=True)
