"""A launcher whose disk is full, or that has no file descriptors, keeps its processes running."""

from __future__ import annotations

import resource
import sys
import threading
from pathlib import Path

import pytest

from tests.support.roles.clusters import until
from tfhybrid.cluster.local_launcher import Supervisor
from tfhybrid.cluster.placed_processes import PlacedProcess
from tfhybrid.cluster.watched_process import WatchedProcess
from tfhybrid.core.whole_file import unfinished_of

SLEEPS = (sys.executable, "-c", "import time; time.sleep(600)")


def test_a_list_that_cannot_be_written_ends_no_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, states = tmp_path / "processes.json", []
    unfinished_of(file).mkdir()  # in the way of the file
    supervisor = Supervisor(tmp_path, [PlacedProcess("one", SLEEPS)], states.append)
    thread = threading.Thread(target=supervisor.run)
    thread.start()
    until(lambda: bool(states))
    assert f"{file} could not be written, the processes go on" in caplog.text
    assert states[0]["one"]["pid"] is not None
    assert thread.is_alive()
    supervisor.stop()
    thread.join()


def test_a_process_that_cannot_be_started_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    process = WatchedProcess(PlacedProcess("one", SLEEPS), tmp_path / "one.log", ())
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
    try:
        assert not process.look()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert "one cannot be started, trying again: [Errno 24] Too many open files" in caplog.text
    assert process.starts == 0
    until(process.look)
    assert process.starts == 1
    process.end()
    process.wait(10)
