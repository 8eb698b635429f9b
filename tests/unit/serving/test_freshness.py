"""From event to reader: observations of trainers, metrics, and what `tfhybrid stream top` shows."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import tfhybrid
from tests.support.stream.online_site import TABLES, Site, small_model
from tests.unit.callbacks.event_files import read
from tfhybrid.cli.stream.stream_command import app
from tfhybrid.cli.stream.stream_top import Processes, StreamLook
from tfhybrid.errors import ConfigError
from tfhybrid.monitoring import metrics
from tfhybrid.monitoring.prometheus import Endpoint
from tfhybrid.serving import Reader
from tfhybrid.stream.queues.queue import Record

AGES = (5.0, 50.0)


@pytest.fixture
def site(tmp_path: Path, shm_directory: Path, job: None) -> Iterator[Site]:
    columns = {"item": "int64", "history": "list<int64>", "medium": "string", "label": "float32"}
    site = Site(
        tmp_path,
        shm_directory,
        columns={**columns, "time": "float64"},
        event_time="time",
        publish={"ads": {"folder": str(tmp_path / "ads"), "seconds": 1e6, "auc_rows": 10}},
    )
    yield site
    site.close()


def _put(site: Site, number: int) -> float:
    """Puts rows of which a tenth is old; returns when the others happened."""
    now = time.time()
    rows = [
        {
            "item": i % 7,
            "history": [i % 5],
            "medium": "video",
            "label": float(i % 2),
            "time": now - AGES[i % 10 == 0],
        }
        for i in range(200)
    ]
    site.provider.put("test", number, Record(json.dumps(rows).encode()))
    return now - AGES[0]


def _train(site: Site, model) -> None:
    leases = tfhybrid.stream.Leases(site.config, model="ads", batch_size=16, wait=False)
    features = ["item", "history"]
    data = tfhybrid.stream.dataset(leases, features=features, label="label")
    online = tfhybrid.stream.Online(leases, tables=TABLES)
    validate = tfhybrid.stream.Validate(leases, features=features, label="label", rows=32)
    board = tfhybrid.callbacks.TensorBoard(Path(site.settings.folder) / "logs", run="run", every=1)
    model.fit(data, callbacks=[online, validate, board], verbose=0)


def test_freshness_is_from_event_to_reader(site: Site, tmp_path: Path):
    reader = Reader(tmp_path / "ads", memory=site.settings.memory)
    model = small_model()
    for number in range(2):
        happened = _put(site, number)
        _train(site, model)
        made = site.unit.publishers["ads"].publish()
        assert (made.samples, sum(made.times.values())) == (200, 200)
        assert made.auc is not None
        reader.refresh()
    youngest = time.time() - happened
    noted = dict(metrics.of_stream())
    assert AGES[0] - 1 < noted[metrics.FRESHNESS_P50]["ads"] < youngest + 2
    assert AGES[1] - 1 < noted[metrics.FRESHNESS_P99]["ads"] < youngest + AGES[1]
    assert noted[metrics.STREAM_LAG] == {"ads/video": 0.0}
    written = read(Path(site.settings.folder) / "logs")
    assert set(written["stream/ads/stream_updates"].values()) >= {0.0, 3.0, 7.0}
    assert written["stream/ads/video/stream_lag_records"]
    shown = CliRunner().invoke(app, ["top", str(site.config), "--count", "1", "--json"])
    told = json.loads(shown.stdout)
    assert told["publications"] == {"ads": 2.0}
    assert told["unpublished_rows"] == {"ads": 0.0}
    assert told["stream_lag_records"] == {"ads/video": 0.0}
    assert told["stream_refused_updates"] == {"ads": 0.0}
    assert told["stream_staleness_p99"] == {"ads": 0.0}
    shown = CliRunner().invoke(app, ["top", str(site.config), "--count", "1"])
    assert "freshness_p99_seconds" in shown.stdout
    processes = Processes(site.settings, [])
    endpoint = Endpoint("stream", lambda: StreamLook(processes).reading(), 0)
    with urllib.request.urlopen(f"http://127.0.0.1:{endpoint.port}/metrics") as answer:
        assert b'tfhybrid_publications_total{model="ads"} 2.0' in answer.read()
    endpoint.close()
    reader.close()


def test_what_cannot_be(site: Site):
    leases = tfhybrid.stream.Leases(site.config, model="ads", batch_size=16, wait=False)
    with pytest.raises(ConfigError, match=r"rows must be at least 1\. Received: rows=0"):
        tfhybrid.stream.Validate(leases, features=["item"], label="label", rows=0)
