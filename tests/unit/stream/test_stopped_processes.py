"""Processes of a stream that are stopped: who waits for them says so, and `top` answers."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.roles.clusters import until
from tests.support.stream.supervised_stream import COUNTING, Running, write_config
from tfhybrid.cli.stream.stream_top import Processes
from tfhybrid.monitoring.metrics import STREAM_ASIDE_ROWS, STREAM_BAD_ROWS, STREAM_LAG
from tfhybrid.rpc import messages


@pytest.fixture
def running(tmp_path: Path, shm_directory: Path) -> Iterator[Running]:
    config = tmp_path / "stream.yaml"
    counting = {"count": 2, "command": [*COUNTING, str(config)]}
    running = Running(write_config(tmp_path, shm_directory, counting=counting))
    yield running
    running.kill()


@contextlib.contextmanager
def stopped(running: Running, role: str) -> Iterator[None]:
    pid = running.processes()[role]["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def test_who_waits_for_a_stopped_process_says_so_and_top_answers(
    running: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    running.feed(range(50))
    until(lambda: bool(running.counts(50).sum() == 50))
    monkeypatch.setattr(messages, "WAIT_SECONDS", 0.5)
    unit = running.settings.remote_unit("a test")
    waiting = threading.Thread(target=unit.stats)
    with stopped(running, "sync"):
        waiting.start()
        answers = Processes(running.settings, []).answers()
        of_provider = [STREAM_LAG, STREAM_BAD_ROWS, STREAM_ASIDE_ROWS]
        assert [metric for metric, _ in answers.metrics] == of_provider
        (silent,) = answers.silent
        assert silent.startswith(f"The sync unit at {running.settings.sync} has not answered")
        assert "must answer the call SyncUnit.stats within 2 s" in silent
        with stopped(running, "provider"):
            answers = Processes(running.settings, []).answers()
            assert answers.metrics == []
            assert len(answers.silent) == 2
    waiting.join()  # who waits does not give up
    waits = f"for sync unit at {running.settings.sync} to answer the call SyncUnit.stats"
    assert f"Waited 0.5 s {waits}" in caplog.text
    assert f"Waited 1 s {waits}" in caplog.text
    assert f"Waited 1.5 s {waits}" not in caplog.text  # 2 s, 4 s, ...


def test_rows_of_a_stopped_trainer_go_to_another_and_count_once(running: Running) -> None:
    running.feed(range(50))
    until(lambda: bool(running.counts(50).sum() == 50))
    with stopped(running, "counting-0"):  # maybe with a lease
        running.feed(range(50, 150))
        until(lambda: bool(running.counts(150).sum() == 150), seconds=120)
    running.feed(range(150, 200))
    until(lambda: bool(running.counts(200).sum() == 200), seconds=120)
    assert set(running.counts(200)) == {1.0}
    (account,) = running.stop()[-1]["audit"]
    assert (account["trained"], account["missing"]) == (200, 0)
