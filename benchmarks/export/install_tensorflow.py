"""Makes an environment that has TensorFlow and nothing else, and prints its interpreter.

It lies in the user's cache directory and is made once per version. tfhybrid and Horovod are not in
it: what runs there runs in stock TensorFlow. PYTHON chooses the interpreter (python3.11).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tfhybrid"


def install() -> Path:
    """Returns the interpreter, after making its environment if there is none."""
    pins = (ROOT / "versions.txt").read_text().splitlines()
    (tensorflow,) = (pin for pin in pins if pin.startswith("tensorflow=="))
    environment = CACHE / "stock" / tensorflow.replace("==", "-")
    environment.parent.mkdir(parents=True, exist_ok=True)
    with environment.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (environment / ".complete").exists():
            _make(environment, tensorflow)
    return environment / "bin" / "python"


def _make(environment: Path, tensorflow: str) -> None:
    shutil.rmtree(environment, ignore_errors=True)
    python = os.environ.get("PYTHON", "python3.11")
    isolated = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for command in (
        [python, "-m", "venv", environment],
        [environment / "bin" / "pip", "install", "-q", "-c", ROOT / "versions.txt", tensorflow],
    ):
        subprocess.run(command, check=True, env=isolated, stdout=sys.stderr)
    (environment / ".complete").touch()


if __name__ == "__main__":
    print(install())
