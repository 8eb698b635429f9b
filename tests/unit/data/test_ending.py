"""Processes end, wherever they stop reading generated data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.timeout(300)
STATUSES = {"alive": "0", "midst": "0", "exit": "3", "raise": "1", "interrupt": "-2"}


def ends_of(names: list[str], count: int = 1, seconds: float = 60) -> dict[str, dict[str, int]]:
    """How often the processes of each kind and way ended with which status."""
    script = str(Path(__file__).with_name("exiting.py"))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, script, str(seconds), str(count), *names]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


# In "counted", "slow" and "stream" a thread of TensorFlow is almost always within Python.
@pytest.mark.parametrize("kind", ["counted", "slow", "stream", "announced"])
def test_a_process_ends_in_every_way_while_a_generator_is_called(kind):
    names = [f"{kind}:{way}" for way in STATUSES]
    assert ends_of(names) == {f"{kind}:{way}": {status: 1} for way, status in STATUSES.items()}


def test_a_process_ends_behind_every_reader():
    readers = ["csv", "parquet", "tfrecord", "libfm"]
    names = [f"{reader}:alive" for reader in readers]
    assert ends_of(names) == {name: {"0": 1} for name in names}


def test_a_process_ends_after_the_error_of_a_reader():
    assert ends_of(["error:midst"], count=2) == {"error:midst": {"1": 2}}
