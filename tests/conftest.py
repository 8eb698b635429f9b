"""What tests of every kind share."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


def pytest_collection_finish() -> None:
    """Hides what was imported, a million objects of TensorFlow's, from every later collection."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Collects the cycles that tests leave, such as traced graphs, before they are many.

    The time that TensorFlow takes to drop a function grows with the number of functions: 37 s
    passed in one collection after 60 tests.
    """
    yield
    collections_of_younger_objects = gc.get_count()[2]  # since the last one of all
    if collections_of_younger_objects >= 2:
        gc.collect()


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Draws of Keras, NumPy and `random` that are the same in each run, so that a failure is, too.

    Ranks draw otherwise than each other. Imports nothing: tests without Keras stay quick.
    """
    if keras := sys.modules.get("keras"):
        keras.utils.set_random_seed(1 + int(os.environ.get("HOROVOD_RANK", "0")))


@pytest.fixture
def job() -> Iterator[None]:
    """A job of the test's own; its store is gone when the test ends."""
    import tfhybrid

    tfhybrid.init()
    yield
    tfhybrid.shutdown()


@pytest.fixture
def shm_directory() -> Iterator[Path]:
    """A directory for stores in shared memory, of the test's own."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="tfhybrid-test-") as directory:
        yield Path(directory)
