"""What is planned, beside tables that are trained and saved."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras
from typer.testing import CliRunner, Result

import tfhybrid
from tfhybrid import checkpoint
from tfhybrid.cli.main import app
from tfhybrid.core import native
from tfhybrid.data import Position
from tfhybrid.planner.step_seconds import draw
from tfhybrid.planner.step_traffic import TableStep, distinct_keys, traffic_of
from tfhybrid.store.table_memory import TableShape, bytes_of

# An index is made ahead for four steps like the last, so a step is small beside the table.
STEP_ROWS, LAST_ROWS = 2_000, 100


def run(*arguments: str, status: int = 0) -> Result:
    result = CliRunner().invoke(app, ["plan", *arguments])
    assert result.exit_code == status, result.output
    return result


@pytest.mark.usefixtures("job")
@pytest.mark.parametrize(
    ("rows", "dim", "optimizer", "floats", "history"),
    [
        (300_000, 16, "adagrad", 16, False),
        (100_000, 1, "sgd", 0, False),
        (200_000, 8, "adam", 16, True),
        (45_000, 64, "adagrad", 64, True),
    ],
)
def test_memory_and_checkpoint_are_those_of_a_trained_table(
    tmp_path, rows, dim, optimizer, floats, history
) -> None:
    eviction = tfhybrid.Eviction(unseen_steps=10**9) if history else None
    layer = tfhybrid.layers.Embedding(tfhybrid.TableConfig(dim, eviction=eviction), name="item")
    inputs = keras.Input((1,), dtype="int64")
    model = keras.Model(inputs, keras.layers.Flatten()(layer(inputs)))
    model.compile(tfhybrid.DistributedOptimizer(optimizer), "mse")
    model.optimizer.build(model.trainable_variables)
    planned = bytes_of(TableShape(rows, dim, floats, history))

    def train(keys: np.ndarray) -> None:
        gradient = tf.IndexedSlices(tf.ones([len(keys), dim]), tf.constant(keys))
        model.optimizer.apply_gradients(zip([gradient], layer.trainable_variables, strict=True))

    for keys in np.array_split(np.arange(rows - LAST_ROWS), rows // STEP_ROWS):
        train(keys)
    for key in range(rows - LAST_ROWS, rows):
        train(np.array([key]))
        # Another thread makes the index ahead; the first step that finds it ready adopts it.
        if layer.table.stats().index_bytes < planned.index:
            time.sleep(0.1)
    stats = layer.table.stats()
    assert (planned.embeddings, planned.state, planned.history) == (
        stats.embedding_bytes,
        stats.state_bytes,
        stats.history_bytes,
    )
    assert planned.total == pytest.approx(stats.bytes, rel=0.1)
    folder = checkpoint.save(model, tmp_path, Position(0, 0))
    saved = sum(file.stat().st_size for file in folder.glob("item*"))
    assert planned.checkpoint == pytest.approx(saved, rel=0.01)


@pytest.mark.parametrize("exponent", [0.0, 0.8, 1.2])
def test_different_keys_are_as_many_as_in_a_sample(exponent) -> None:
    rows = 200_000
    weights = np.arange(1, rows + 1) ** -exponent
    drawn = np.random.default_rng(1).choice(rows, 50_000, p=weights / weights.sum())
    expected = distinct_keys(rows, len(drawn), exponent)
    assert expected == pytest.approx(len(np.unique(drawn)), rel=0.02)


def test_traffic_grows_with_hosts_and_halves_with_bfloat16() -> None:
    one, two, six = (traffic_of(TableStep(10**6, 16, 4096, hosts, 2)) for hosts in (1, 2, 6))
    assert one.host_bytes == 0
    assert two.host_bytes < six.host_bytes
    assert one.host_keys == two.host_keys < two.all_keys < six.all_keys
    narrow = traffic_of(TableStep(10**6, 16, 4096, 2, 2), gradient_bytes=2)
    assert narrow.host_bytes / two.host_bytes == pytest.approx((10 + 32) / (10 + 64))


def test_a_sharded_table_costs_a_host_its_shard() -> None:
    options = ("--rows", "4M", "--hosts", "4", "--json")
    whole, shard = (json.loads(run(*options, *flags).stdout) for flags in ((), ("--sharded",)))
    assert shard["shared_memory"] == pytest.approx(whole["shared_memory"] / 4, rel=0.05)
    assert shard["checkpoint"] == pytest.approx(whole["checkpoint"], rel=0.01)
    two = traffic_of(TableStep(10**6, 16, 4096, 2, 1), sharded=True)
    # A key comes once as a row and once as a gradient; half of each from the other host.
    assert two.host_bytes / two.host_keys == pytest.approx((8 + 64 + 10 + 64) / 2)
    assert traffic_of(TableStep(10**6, 16, 4096, 1, 1), sharded=True).host_bytes == 0


def test_what_does_not_fit_ends_with_status_1() -> None:
    found = json.loads(run("--rows", "20B", "--json", status=1).stdout)
    assert found["fits_here"] is False
    assert "DOES NOT FIT HERE" in run("--rows", "20B", status=1).output
    found = json.loads(run("--rows", "1e5", "--tables", "3", "--ranks", "4", "--json").stdout)
    assert found["fits_here"] is True
    assert found["shared_memory"] == 3 * found["of_a_table"]["total"]
    assert found["plain_horovod"] > found["shared_memory"]
    assert "fits here" in run("--rows", "10k").stdout


@pytest.mark.parametrize("rows", ["", "many", "-5", "nan", "5T", "1e13"])
def test_rows_that_are_no_number_are_refused(rows) -> None:
    output = " ".join(run("--rows", rows, status=1).output.split())
    assert f"--rows must be a number such as 50M, below 2^40. Received: {rows!r}" in output


def test_an_optimizer_that_there_is_not_is_refused() -> None:
    assert "Received: 'adamax'" in run("--rows", "1M", "--optimizer", "adamax", status=1).output


@pytest.mark.parametrize("optimizer", ["row_adagrad", "momentum"])
def test_a_step_is_measured_by_a_job_of_its_own(optimizer, monkeypatch, shm_directory) -> None:
    monkeypatch.setenv("TFHYBRID_SHM_DIR", str(shm_directory))
    small = ["--rows", "20k", "--dim", "4", "--tables", "2", "--batch", "64", "--ranks", "2"]
    found = json.loads(run(*small, "--optimizer", optimizer, "--measure", "--json").stdout)
    assert found["of_a_step"]["measured_rows"] == 20_000
    assert found["of_a_step"]["measured_seconds"] > 0
    assert [file.name for file in shm_directory.iterdir() if file.is_dir()] == []


@pytest.mark.parametrize("exponent", [0.0, 1.0, 1.2])
def test_drawn_keys_are_those_of_the_planned_traffic(exponent) -> None:
    drawn = draw(np.random.default_rng(1), 200_000, 50_000, exponent)
    assert (drawn.min() >= 0, drawn.max() < 200_000) == (True, True)
    expected = distinct_keys(200_000, len(drawn), exponent)
    assert expected == pytest.approx(len(np.unique(drawn)), rel=0.05)


def test_it_says_how_many_tables_auto_would_shard(monkeypatch) -> None:
    """Each table that is put on every host leaves less room for the next one."""
    # Whatever this machine has.
    monkeypatch.setattr(native, "available_bytes", lambda _: 20 * 10**9)
    shape = ("--rows", "1M", "--dim", "64", "--optimizer", "adam", "--json")

    def sharded(tables: int, hosts: int) -> int:
        arguments = (*shape, "--tables", str(tables), "--hosts", str(hosts))
        result = CliRunner().invoke(app, ["plan", *arguments])
        return json.loads(result.stdout)["sharded_by_auto"]

    assert sharded(1, 4) == 0
    assert sharded(1000, 1) == 0
    assert 900 < sharded(1000, 4) < 1000


def test_passes_and_caches_are_planned() -> None:
    """The fast tier is what pass files take, but for their headers; the slow one lies in files."""
    table = ["--rows", "1M", "--dim", "16", "--sharded", "--hosts", "2", "--zipf", "0", "--json"]
    plain = json.loads(run(*table).output)
    found = json.loads(run(*table, "--pass-batches", "8", "--batch", "1000").output)
    rows = found["fast_tier"]["rows"]
    assert rows == pytest.approx(2 * distinct_keys(10**6, 8000, 0.0) / 2, rel=1e-3)
    assert found["fast_tier"]["bytes"] == rows * (4 * 16 + 13)
    assert found["peak"] == plain["peak"] + found["fast_tier"]["bytes"]
    assert plain["fast_tier"]["bytes"] == plain["files"] == 0
    cached = json.loads(run(*table, "--pass-batches", "8", "--cache", "10M").output)
    shard = bytes_of(TableShape(500_000, 16, 32, cache_bytes=10_000_000))
    assert (cached["files"], cached["shared_memory"]) == (shard.file, shard.total)
    shown = run(*table[:-1], "--pass-batches", "8", "--cache", "10M").output
    assert "two passes of 8 batches of each rank" in shown
    assert "files of each host" in shown
    refused = run("--rows", "1M", "--pass-batches", "8", status=1)
    assert "--pass-batches needs --sharded" in " ".join(refused.output.split())
