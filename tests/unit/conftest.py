"""Unit tests run in several processes at once: `scripts/test unit`."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

import pytest

from tfhybrid.monitoring import metrics

_OWN_SHM = pytest.StashKey[tempfile.TemporaryDirectory]()


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


@pytest.fixture(autouse=True)
def own_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps what a test notes of itself out of the reports of later tests in its process."""
    monkeypatch.setattr(metrics, "_noted", {})


Start = Callable[..., tuple[BaseProcess, Connection]]


@pytest.fixture(scope="session")
def start_forked() -> Start:
    """Starts `run(connection, *arguments)` in a process that has imported TensorFlow already.

    Importing takes longer than most tests. The process ends without running `atexit`: a job that is
    not shut down counts as one that died. Returns it, and the connection's other end.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        [
            "tests.unit.job.watched_rank",
            "tests.unit.job.starting_rank",
            "tests.unit.cli.stepping_job",
        ]
    )

    def start(run: Callable[..., None], *arguments: object) -> tuple[BaseProcess, Connection]:
        ours, its = context.Pipe()
        process = context.Process(target=run, args=(its, *arguments))
        process.start()
        its.close()
        return process, ours

    return start
