"""`tfhybrid stream run`: all processes of a stream, stopped, started again, and killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

from tests.support.roles.clusters import until
from tests.support.stream.broker import ROOT
from tests.support.stream.supervised_stream import CLI, COUNTING, Running, write_config
from tfhybrid.errors import ConfigError
from tfhybrid.stream import running
from tfhybrid.stream.queues.queue import QueuePosition

ROUTES = {"columns": ["medium"], "queues": {"video": "video"}, "models": {"ads": ["video"]}}


@pytest.fixture
def started() -> Iterator[list[Running]]:
    started: list[Running] = []
    yield started
    for each in started:
        each.kill()


@pytest.fixture
def counted(started: list[Running], tmp_path: Path, shm_directory: Path) -> Running:
    """A stream whose only trainer has counted the items 0 to 19."""
    command = [*COUNTING, str(tmp_path / "stream.yaml")]
    config = write_config(tmp_path, shm_directory, counting={"count": 1, "command": command})
    started.append(Running(config))
    started[0].feed(range(20))
    until(lambda: bool(started[0].counts(20).sum() == 20))
    return started[0]


def _gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_it_stops_starts_again_and_bears_kills(
    started: list[Running], tmp_path: Path, shm_directory: Path
):
    config = write_config(
        tmp_path,
        shm_directory,
        counting={"count": 2, "command": [*COUNTING, str(tmp_path / "stream.yaml")]},
    )
    started.append(Running(config))
    started[0].feed(range(100))
    until(lambda: bool(started[0].counts(100).sum() == 100))
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
    again = subprocess.run(
        [*CLI, "run", str(config)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (again.returncode, "Another supervisor runs in" in again.stderr) == (1, True)
    *_, states, audit = started[0].stop()
    assert [*states] == ["sync", "provider", "counting-0", "counting-1"]
    assert all(_gone(process["pid"]) for process in states.values())
    (account,) = audit["audit"]
    assert (account["put"], account["trained"], account["missing"]) == (100, 100, 0)
    bases = list((tmp_path / "stream/models/ads").glob("base-*"))
    assert len(bases) == 1

    started.append(Running(config))
    started[1].feed(range(100, 200))
    until(lambda: bool(started[1].counts(200).sum() == 200))
    for name in ("sync", "counting-0"):
        os.kill(started[1].processes()[name]["pid"], signal.SIGKILL)
    started[1].feed(range(200, 300))
    until(lambda: bool(started[1].counts(300).sum() == 300), seconds=120)
    np.testing.assert_array_equal(started[1].counts(300), np.ones(300))
    starts = {name: its["starts"] for name, its in started[1].processes().items()}
    assert starts == {"sync": 2, "provider": 1, "counting-0": 2, "counting-1": 1}

    pids = [its["pid"] for its in started[1].processes().values()]
    started[1].kill()  # its processes end with it
    until(lambda: all(map(_gone, pids)))


def test_it_ends_with_its_trainers(started: list[Running], tmp_path: Path, shm_directory: Path):
    done = [sys.executable, "-c", "import os; print(os.environ['TFHYBRID_STREAM_TRAINER'])"]
    config = write_config(tmp_path, shm_directory, ending={"count": 2, "command": done})
    started.append(Running(config))
    *_, states, audit = started[0].wait()
    assert [states[name]["pid"] for name in ("ending-0", "ending-1")] == [None, None]
    assert all(account["missing"] == 0 for account in audit["audit"])
    logs = tmp_path / "stream/processes"
    assert (logs / "ending-1.log").read_text() == "ending-1\n"


def test_a_provider_whose_leases_are_over_ends_and_is_started_again(
    counted: Running, tmp_path: Path
):
    settings = counted.settings
    settings.remote_model("ads", "a second provider").begin("video", QueuePosition(0, 0))
    counted.feed(range(20, 40))
    until(lambda: bool(counted.counts(40).sum() == 40), seconds=120)
    assert counted.processes()["provider"]["starts"] == 2
    log = (tmp_path / "stream/processes/provider.log").read_text()
    assert "Queue video has a newer provider" in log
    np.testing.assert_array_equal(counted.counts(40), np.ones(40))
    counted.stop()


def test_rows_that_are_missing_at_the_end_are_told(counted: Running, tmp_path: Path):
    for segment in (tmp_path / "stream/queues/video").glob("*.log"):
        segment.unlink()  # its rows are in the weights, but were never put
    (account,) = counted.stop(status=1)[-1]["audit"]
    assert (account["put"], account["trained"], account["missing"]) == (0, 20, -20)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"fsnyc": "never"}, r"yaml:\d+: fsnyc: the fields must be from"),
        ({"lease": {"row": 2}}, r"yaml:\d+: lease\.row: the fields must be from"),
        ({"publish": {"ads": {"where": "p"}}}, r"yaml:\d+: publish\.ads\.where: the fields must"),
        ({"trainers": {"ads": {"cpu": 1}}}, r"yaml:\d+: trainers\.ads\.cpu: the fields must be"),
        ({"publish": None}, r"yaml:\d+: publish must be a mapping\. Received: None"),
        ({"trainers": [1]}, r"yaml:\d+: trainers must be a mapping\. Received: \[1\]"),
        ({"columns": {"user": "int46"}}, "is not a valid stream.yaml"),
        ({"columns": {}}, r"stream\.yaml: columns must declare at least one column"),
        ({"columns": {"user": None}}, r"stream\.yaml: Column 'user' must be a type"),
        (
            {"routes": {**ROUTES, "columns": []}},
            r"stream\.yaml: routes need a list of at least one",
        ),
        ({"routes": {**ROUTES, "columns": ["place"]}}, r"columns of routes must.*\['place'\]"),
        ({"columns": {"medium": "float32"}}, r"columns of routes must be.*Received: \['medium'\]"),
        ({"event_time": "medium"}, r"event_time must be a column of numbers.*Received: medium"),
    ],
)
def test_unknown_settings_are_refused(
    tmp_path: Path, shm_directory: Path, settings: dict[str, object], message: str
):
    config = write_config(tmp_path, shm_directory)
    written = yaml.safe_load(config.read_text()) | settings
    config.write_text(yaml.safe_dump(written))
    with pytest.raises(ConfigError, match=message):
        running.processes_of(config)


def test_what_cannot_be_run(tmp_path: Path, shm_directory: Path):
    with pytest.raises(ConfigError, match=r"must name the trainers to start.*Received: none"):
        running.processes_of(write_config(tmp_path, shm_directory))
    config = write_config(tmp_path, shm_directory, ads={"count": 0, "command": COUNTING})
    with pytest.raises(ConfigError, match="count must be at least 1"):
        running.processes_of(config)
    config = write_config(tmp_path, shm_directory, ads={"count": 2, "command": COUNTING, "cpus": 1})
    processes = running.processes_of(config)
    assert [(each.name, each.cpus, each.may_end) for each in processes] == [
        ("sync", 0, False),
        ("provider", 0, False),
        ("ads-0", 1, True),
        ("ads-1", 1, True),
    ]
    assert processes[2].environment["TFHYBRID_STREAM"] == str(config)
