"""What a job tells Prometheus, beside what it did."""

from __future__ import annotations

import socket
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tensorflow import keras

import tfhybrid
from tfhybrid import checkpoint
from tfhybrid.core.native import PHASES
from tfhybrid.data import Position
from tfhybrid.errors import CheckpointError, ConfigError
from tfhybrid.monitoring.metrics import (
    MISSING_UPDATES,
    OF_HOST,
    OF_JOB,
    PREFIX,
)
from tfhybrid.monitoring.prometheus import Endpoint

pytestmark = pytest.mark.usefixtures("job")

STEPS, BATCH = 6, 4


@pytest.fixture
def endpoint(job: None) -> Iterator[Endpoint]:
    endpoint = tfhybrid.metrics.serve(0, address="127.0.0.1")
    yield endpoint
    endpoint.close()


@pytest.fixture
def model(job: None) -> keras.Model:
    eviction = tfhybrid.Eviction(unseen_steps=2, every_steps=1)
    config = tfhybrid.TableConfig(2, admission=2, eviction=eviction)
    layer = tfhybrid.layers.Embedding(config, name="item")
    inputs = keras.Input((3,), dtype="int64")
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Flatten()(layer(inputs))))
    model.compile(tfhybrid.DistributedOptimizer("sgd"), "mse")
    return model


def train(model: keras.Model) -> None:
    """A key comes in two steps and is admitted in the second, but for one that always comes."""
    for step in range(STEPS):
        model.train_on_batch(np.tile([step, step + 1, 1000], (BATCH, 1)), np.ones(BATCH))


def told(endpoint: Endpoint) -> dict[tuple[str, str], float]:
    """Returns values by name and label."""
    url = f"http://127.0.0.1:{endpoint.port}/metrics"
    families = text_string_to_metric_families(urllib.request.urlopen(url).read().decode())
    return {
        (sample.name.removeprefix(PREFIX), next(iter(sample.labels.values()), "")): sample.value
        for family in families
        for sample in family.samples
    }


def test_tables_and_training_are_told(endpoint, model) -> None:
    before = told(endpoint)
    train(model)
    (table,) = checkpoint.dense.tables_of(model).values()
    assert table.version == STEPS
    stats, found = table.stats(), told(endpoint)
    assert found["steps_total", ""] - before["steps_total", ""] == STEPS
    assert found["samples_total", ""] - before["samples_total", ""] == STEPS * BATCH
    assert found["rows", "item"] == stats.rows
    assert found["bytes", "item"] == stats.bytes
    assert found["waiting_keys", "item"] == stats.waiting > 0
    assert found["updates_total", "item"] == STEPS
    assert found["evicted_rows_total", "item"] == stats.evicted_rows > 0
    assert found["new_rows_total", "item"] == stats.new_rows
    assert found["ranks", "living"] == 1
    assert {label for name, label in found if name == "phase_seconds_total"} == set(PHASES)
    assert found["phase_seconds_total", "apply"] > before["phase_seconds_total", "apply"]
    assert found["exchange_bytes_total", "sent"] == before["exchange_bytes_total", "sent"]


def test_checkpoints_and_restarts_are_told(endpoint, model, tmp_path: Path) -> None:
    before, began = told(endpoint), time.monotonic()
    train(model)
    folder = checkpoint.save(model, tmp_path / "saved", Position(0, STEPS))
    found = told(endpoint)
    assert found["checkpoints_total", ""] - before.get(("checkpoints_total", ""), 0) == 1
    lasted = time.monotonic() - began
    assert 0 < found["checkpoint_duration_seconds", ""] <= lasted
    assert 0 < found["checkpoint_age_seconds", ""] <= lasted
    files = [file for file in folder.iterdir() if file.name != "manifest.json"]
    assert found["checkpoint_bytes", ""] == sum(file.stat().st_size for file in files)
    assert before["uptime_seconds", ""] < found["uptime_seconds", ""]
    checkpoint.restore(model, tmp_path / "saved")
    assert told(endpoint)["resumed_step", "checkpoint"] == STEPS


def test_every_metric_is_told(endpoint, model, tmp_path: Path) -> None:
    train(model)
    checkpoint.save(model, tmp_path / "saved", Position(0, STEPS))
    checkpoint.restore(model, tmp_path / "saved")
    (tmp_path / "file").write_text("in the way")
    manager = checkpoint.CheckpointManager(model, tmp_path / "file" / "below")
    manager.save(Position(0, STEPS))
    with pytest.raises(CheckpointError, match="could not be written"):
        manager.wait()
    names = {name.removesuffix("_total") for name, _ in told(endpoint)}
    of_nodes = {MISSING_UPDATES.name}
    assert {metric.name for metric in (*OF_JOB, *OF_HOST)} - of_nodes <= names


def test_the_port_is_that_of_the_environment(monkeypatch) -> None:
    assert tfhybrid.metrics.serve() is None
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setenv("TFHYBRID_METRICS_PORT", str(port))
        with pytest.raises(ConfigError, match=rf"a free port\. Received: 127.0.0.1:{port}"):
            tfhybrid.metrics.serve(address="127.0.0.1")
    endpoint = tfhybrid.metrics.serve(address="127.0.0.1")
    assert endpoint.port == port
    endpoint.close()
    monkeypatch.setenv("TFHYBRID_METRICS_PORT", "http")
    with pytest.raises(ConfigError, match=r"a port from 0 to 65535\. Received: 'http'"):
        tfhybrid.metrics.serve()
