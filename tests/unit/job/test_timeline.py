"""The timeline of a job's phases."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest

import tfhybrid
from tfhybrid.core import native
from tfhybrid.errors import ConfigError
from tfhybrid.job import timeline


def test_a_job_writes_when_it_was_in_which_phase(
    shm_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFHYBRID_TIMELINE", str(tmp_path))
    before = time.time()
    tfhybrid.init()
    tfhybrid.layers.Embedding(tfhybrid.TableConfig(dim=4), table="item")(np.arange(10))
    tfhybrid.shutdown()
    events = json.loads((tmp_path / "timeline-0.json").read_text())["traceEvents"]
    named = [event for event in events if event["ph"] == "M"]
    assert [event["args"]["name"].split(" on ")[0] for event in named] == ["rank 0"]
    spans = [event for event in events if event["ph"] == "X"]
    assert "lookup" in {span["name"] for span in spans} <= set(native.PHASES)
    for span in spans:
        assert span["pid"] == 0
        assert span["dur"] >= 0
        assert before - 1 <= span["ts"] / 1e6 <= time.time() + 1
    native.start_timeline(0)


def test_nothing_is_written_unless_asked_for(shm_directory: Path, tmp_path: Path) -> None:
    tfhybrid.init()
    tfhybrid.layers.Embedding(tfhybrid.TableConfig(dim=4), table="item")(np.arange(10))
    tfhybrid.shutdown()
    assert not len(native.timeline(most=1))
    assert not list(tmp_path.iterdir())


def test_the_directory_must_exist(
    shm_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFHYBRID_TIMELINE", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match=r"must name an existing directory.*Received: .*none"):
        tfhybrid.init()


def test_a_full_disk_loses_the_timeline_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TFHYBRID_TIMELINE", str(tmp_path))
    (tmp_path / "timeline-3.json").symlink_to("/dev/full")
    timeline.write(3, "rank 3 on h1")
    assert "timeline of rank 3 on h1 cannot be written" in caplog.text
