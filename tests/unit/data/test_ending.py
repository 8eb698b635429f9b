"""Processes end, wherever they stop reading generated data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
EXITS = int(os.environ.get("TFHYBRID_EXITS", "1"))  # of each kind
SECONDS = 60  # a process that takes longer hangs
pytestmark = pytest.mark.timeout(300 + 80 * EXITS)
# A generator that never ends, and Ctrl-C while the process waits for it at its end.
INTERRUPTED = """
import os, signal, threading, time
import tfhybrid
from tfhybrid._ending import EndingIterator, python_ends

def elements():
    called.set()
    threading.Event().wait()
    yield

def interrupt():
    while not python_ends():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)

called = threading.Event()
tfhybrid.init()
for each in (lambda: next(EndingIterator(elements())), interrupt):
    threading.Thread(target=each, daemon=True).start()
called.wait()
print("called", flush=True)
"""
STATUSES = {"alive": "0", "midst": "0", "exit": "3", "raise": "1", "interrupt": "-2"}


# In "counted", "slow" and "stream" a thread of TensorFlow is almost always within Python.
GENERATED = {
    f"{kind}:{way}": status
    for kind in ("counted", "slow", "stream", "announced")
    for way, status in STATUSES.items()
}
# No thread of TensorFlow calls Python after the end, also if it computes meanwhile.
GENERATED["computed:late"] = "0"
# With an iterator that is alive, in the midst of an epoch, and after an error.
READ = {
    name: status
    for reader in ("csv", "parquet", "tfrecord", "libfm", "criteo")
    for name, status in (
        (f"{reader}:alive", "0"),
        (f"{reader}:midst", "0"),
        (f"bad-{reader}:midst", "1"),
    )
}


@pytest.fixture(scope="module")
def ends() -> dict[str, dict[str, int]]:
    """How often the processes of each kind and way ended with which status."""
    script = str(Path(__file__).with_name("exiting.py"))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, script, str(SECONDS), str(EXITS), *GENERATED, *READ]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", GENERATED)
def test_a_process_ends_in_every_way_while_a_generator_is_called(ends, name):
    assert ends[name] == {GENERATED[name]: EXITS}


@pytest.mark.parametrize("name", READ)
def test_a_process_ends_behind_every_reader(ends, name):
    assert ends[name] == {READ[name]: EXITS}


def stores_in(directory: Path) -> list[Path]:
    return [each for each in directory.iterdir() if each.is_dir()]


def test_the_store_goes_when_the_wait_for_a_generator_is_interrupted(shm_directory: Path):
    environment = {**os.environ, "TFHYBRID_SHM_DIR": str(shm_directory), "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "called\n"
        while process.poll() is None and stores_in(shm_directory):
            time.sleep(0.05)
        process.kill()
    assert stores_in(shm_directory) == []
