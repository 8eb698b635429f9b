"""Checkpoints of tables that admit and evict, and of those that did not when they were saved."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tensorflow import keras
from typer.testing import CliRunner

import tfhybrid
from tfhybrid import checkpoint
from tfhybrid.checkpoint.stored import StoredCheckpoint, locate
from tfhybrid.cli.main import app
from tfhybrid.core.native import HISTORY
from tfhybrid.data import Position
from tfhybrid.errors import CheckpointError

ADMITTING = {"admission": 2}
EVICTING = {"eviction": tfhybrid.Eviction(unseen_steps=3, every_steps=1)}


@pytest.fixture(autouse=True)
def ended():
    yield
    tfhybrid.shutdown()
    keras.backend.clear_session()


def start(**options) -> tuple[keras.Model, tfhybrid.store.Table]:
    tfhybrid.shutdown()
    tfhybrid.init()
    layer = tfhybrid.layers.Embedding(tfhybrid.TableConfig(4, **options), name="item")
    inputs = keras.Input((2,), dtype="int64")
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Flatten()(layer(inputs))))
    model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.Adagrad(0.1)), "mse")
    return model, layer.table


def train(model: keras.Model, *pairs: tuple[int, int]) -> None:
    for pair in pairs:
        model.train_on_batch(np.array([pair]), np.ones(1))


def save(model: keras.Model, directory: Path) -> Path:
    return checkpoint.save(model, directory, Position(0, 0))


def keys_of(table: tfhybrid.store.Table) -> list[int]:
    return sorted(int(key) for block in table.blocks() for key in block.keys)


def test_rows_saved_without_a_history_count_as_just_updated(tmp_path):
    model, _ = start()
    train(model, *[(1, 2)] * 10)
    save(model, tmp_path)
    model, table = start(**EVICTING)
    checkpoint.restore(model, tmp_path)
    assert keys_of(table) == [1, 2]
    train(model, (1, 5), (1, 5))
    assert keys_of(table) == [1, 2, 5]
    train(model, (1, 5))
    assert keys_of(table) == [1, 5]


def test_histories_are_dropped_where_none_are_kept(tmp_path):
    model, _ = start(**EVICTING)
    train(model, (1, 2), (1, 3))
    save(model, tmp_path)
    model, table = start()
    checkpoint.restore(model, tmp_path)
    train(model, *[(7, 8)] * 9)
    assert keys_of(table) == [1, 2, 3, 7, 8]


def test_keys_begin_to_wait_and_wait_no_more(tmp_path):
    model, _ = start()
    train(model, (1, 2))
    save(model, tmp_path / "a")
    model, table = start(**ADMITTING)
    checkpoint.restore(model, tmp_path / "a")
    train(model, (1, 3))
    assert (keys_of(table), keys_of(table.waiting)) == ([1, 2], [3])
    save(model, tmp_path / "b")
    model, table = start()
    checkpoint.restore(model, tmp_path / "b")
    assert (keys_of(table), table.waiting, table.version) == ([1, 2], None, 2)


def test_a_chosen_table_brings_its_waiting_keys(tmp_path):
    model, _ = start(**ADMITTING)
    train(model, (1, 2), (1, 3))
    save(model, tmp_path)
    model, table = start(**ADMITTING)
    checkpoint.restore(model, tmp_path, tables=["item"], weights=False)
    assert (keys_of(table), keys_of(table.waiting)) == ([1], [2, 3])
    with pytest.raises(tfhybrid.errors.ConfigError, match=r"tables are \['item'\]"):
        checkpoint.restore(model, tmp_path, tables=["item~waiting"])


def test_a_table_that_was_cleared_forgets_who_waited(tmp_path):
    model, table = start(**ADMITTING)
    train(model, (1, 2), (1, 3))
    table.writer.clear()
    assert (keys_of(table), keys_of(table.waiting)) == ([], [])


def test_the_command_line_knows_histories(tmp_path):
    model, table = start(**ADMITTING, **EVICTING)
    train(model, (1, 2), (1, 3), (1, 2))
    folder = save(model, tmp_path / "a")
    run = CliRunner().invoke
    assert run(app, ["checkpoint", "verify", str(folder)]).exit_code == 0
    found = run(app, ["checkpoint", "inspect", str(folder), "--json"])
    assert {name: t["rows"] for name, t in json.loads(found.stdout)["tables"].items()} == {
        "item": 2,
        "item~waiting": 1,
    }
    rows = {"keys": np.array([2, 9]), "embeddings": np.ones((2, 4), np.float32)}
    np.savez(tmp_path / "rows.npz", **rows)
    command = ["checkpoint", "import", str(folder), str(tmp_path / "rows.npz")]
    result = run(app, [*command, "--table", "item", "--output", str(tmp_path / "b")])
    assert result.exit_code == 0, result.output
    assert run(app, ["checkpoint", "verify", str(tmp_path / "b")]).exit_code == 0
    blocks = StoredCheckpoint.open(locate(tmp_path / "b")).rows("item")
    history = np.concatenate([block.history for block in blocks]).view(HISTORY)
    assert history["last_step"].ravel().tolist() == [3, 3, 3]
    model, table = start(**ADMITTING, **EVICTING)
    checkpoint.restore(model, tmp_path / "b")
    assert keys_of(table) == [1, 2, 9]


def test_a_file_of_evicted_keys_that_is_damaged_is_refused(tmp_path):
    model, _ = start(**EVICTING)
    manager = checkpoint.CheckpointManager(model, tmp_path, full_every_saves=5)
    for pairs in ([(1, 2)], [(3, 4)] * 5):
        train(model, *pairs)
        manager.save(Position(0, 0))
        manager.wait()
    (evicted,) = tmp_path.glob("*/item-evicted.safetensors")
    content = bytearray(evicted.read_bytes())
    content[-8] ^= 1
    evicted.write_bytes(content)
    model, table = start(**EVICTING)
    with pytest.raises(CheckpointError, match=r"item-evicted\.safetensors is damaged"):
        checkpoint.restore(model, tmp_path)
    assert table.rows == 0
