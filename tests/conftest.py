"""What tests of every kind share."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Removes what `pytest_configure` made."""
    yield
    if directory := session.config.stash.get(_OWN_SHM, None):
        directory.cleanup()


def pytest_configure(config: pytest.Config) -> None:
    """Gives each process of `pytest -n` its own directory of stores.

    A job reclaims what dead jobs of its user left, so one process would take away what a test in
    another leaves behind on purpose.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        directory = tempfile.TemporaryDirectory(dir="/dev/shm", prefix="tfhybrid-test-")
        config.stash[_OWN_SHM] = directory
        os.environ["TFHYBRID_SHM_DIR"] = directory.name


_OWN_SHM = pytest.StashKey[tempfile.TemporaryDirectory]()


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
