"""Stop and resume: bit for bit as if nothing had happened, at the same number of ranks."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tensorflow import keras

import tfhybrid
from tests.parallel.checkpointed import (
    FEATURES,
    START,
    STEPS_PER_EPOCH,
    assert_equal,
    fit,
    start,
    state,
)
from tests.parallel.conftest import common_directory
from tfhybrid import checkpoint, distributed
from tfhybrid.checkpoint.manager import CheckpointManager
from tfhybrid.checkpoint.manifest import Manifest
from tfhybrid.checkpoint.saving import ModelSnapshot
from tfhybrid.checkpoint.stored import StoredCheckpoint, folder_of
from tfhybrid.data import Position
from tfhybrid.errors import CheckpointError, ConfigError
from tfhybrid.layers.table_proxy import TableProxy
from tfhybrid.store import RowBlock


@pytest.fixture(autouse=True)
def job():
    tfhybrid.init()
    yield
    tfhybrid.shutdown()
    keras.backend.clear_session()


@pytest.mark.world_size
@pytest.mark.parametrize("save_freq", ["epoch", 3])
def test_resumed_equals_uninterrupted(directory, save_freq):
    model = start()
    save = tfhybrid.callbacks.Checkpoint(directory, save_freq=save_freq, max_to_keep=None)
    fit(model, 3, callbacks=[save])
    expected = state(model)
    saved = checkpoint.steps(directory)
    assert saved == ([4, 8, 12] if save_freq == "epoch" else [3, 6, 9, 12])

    resumed = start()
    position = checkpoint.restore(resumed, directory, step=saved[1])
    assert position == ((2, 0) if save_freq == "epoch" else (1, 2))
    assert int(resumed.optimizer.iterations) == saved[1]
    fit(resumed, 3, position)
    assert_equal(state(resumed), expected)


def test_goes_back_in_a_running_job(directory):
    model = start()
    fit(model, 1)
    checkpoint.save(model, directory, Position(1, 0))
    expected = state(model)
    fit(model, 3, Position(1, 0))
    assert state(model)[0] != expected[0]
    assert checkpoint.restore(model, directory) == (1, 0)
    assert_equal(state(model), expected)
    fit(model, 2, Position(1, 0))


def test_what_is_saved_is_of_one_step_though_training_goes_on(directory):
    model = start()
    fit(model, 1)
    expected = state(model)
    snapshot = ModelSnapshot(model, directory, Position(1, 0))
    with pytest.raises(CheckpointError, match="is being saved"):
        ModelSnapshot(model, directory, Position(1, 0))
    fit(model, 3, Position(1, 0))
    assert state(model)[0] != expected[0]
    distributed.together(snapshot.write)
    fit(model, 4, Position(3, 0))

    restored = start()
    assert checkpoint.restore(restored, directory) == (1, 0)
    assert_equal(state(restored), expected)


@pytest.mark.world_size
def test_job_that_ends_first_leaves_no_checkpoint(directory):
    model = start()
    fit(model, 1)
    snapshot = ModelSnapshot(model, directory, Position(1, 0))
    leads = distributed.rank() == 0
    tfhybrid.shutdown()
    with pytest.raises(CheckpointError) if leads else contextlib.nullcontext():
        snapshot.write()
    if leads:
        assert list(directory.iterdir()) == []


@pytest.mark.world_size
def test_manager_saves_in_a_loop_of_ones_own(directory):
    model = start()
    manager = CheckpointManager(model, directory, max_to_keep=2)
    assert manager.restore() == (0, 0)
    for epoch in range(3):
        fit(model, epoch + 1, Position(epoch, 0))
        manager.save(Position(epoch + 1, 0))
    expected = state(model)
    manager.wait()
    distributed.barrier()
    assert manager.steps() == [8, 12]

    restored = start()
    assert CheckpointManager(restored, directory).restore() == (3, 0)
    assert_equal(state(restored), expected)


def change_some(model: keras.Model, epoch: int) -> None:
    """A step on few keys, some of them new in every epoch; on all of them in the first."""
    few = [3 * epoch, 3 * epoch + 50] * 40
    keys = np.array(few if epoch else range(-40, 40))[:, np.newaxis]
    inputs, labels = dict.fromkeys(FEATURES, keys), np.ones(80, np.float32)
    broadcast = tfhybrid.callbacks.BroadcastVariables()
    model.fit(inputs, labels, batch_size=80, verbose=0, callbacks=[broadcast])


def train_and_save(manager: CheckpointManager, *epochs: int) -> dict[int, tuple]:
    """Changes some rows and saves, epoch by epoch; returns the states by step."""
    states = {}
    for epoch in epochs:
        change_some(manager.model, epoch)
        manager.save(Position(epoch, 0))
        states[int(manager.model.optimizer.iterations)] = state(manager.model)
    manager.wait()
    distributed.barrier()
    return states


def read_manifest(directory: Path, step: int) -> Manifest:
    return StoredCheckpoint.open(directory / f"step-{step:010d}").manifest


def assert_restored(directory: Path, expected: dict[int, tuple]) -> None:
    for step, wanted in expected.items():
        restored = start()
        checkpoint.restore(restored, directory, step=step)
        assert_equal(state(restored), wanted)


def test_deltas_bring_back_the_exact_state(directory):
    manager = CheckpointManager(start(), directory, max_to_keep=None, full_every_saves=3)
    expected = train_and_save(manager, *range(6))
    manifests = [read_manifest(directory, step) for step in manager.steps()]
    assert [manifest.sequence for manifest in manifests] == [0, 1, 2, 0, 1, 2]
    sizes = [manifest.files["user-00000.safetensors"].size for manifest in manifests]
    assert max(sizes[1:3]) < sizes[0] / 5
    assert_restored(directory, expected)


def test_a_chain_is_extended_after_a_restore(directory):
    train_and_save(CheckpointManager(start(), directory, full_every_saves=10), 0, 1)
    manager = CheckpointManager(start(), directory, full_every_saves=10)
    manager.restore()
    expected = train_and_save(manager, 2)
    assert read_manifest(directory, 3).sequence == 2
    assert_restored(directory, expected)


def test_an_optimizer_that_began_later_goes_on(directory):
    """Its steps count from where it began, and its first delta has the state of all rows."""
    before = CheckpointManager(start(), directory / "first", full_every_saves=10)
    train_and_save(before, 0, 1)
    model = before.model
    model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.Adam(0.02)), model.loss)
    manager = CheckpointManager(model, directory / "second", max_to_keep=None, full_every_saves=10)
    wanted = train_and_save(manager, 2, 3)
    assert read_manifest(directory / "second", 2).tables["user"].optimizer_start == 2
    change_some(model, 4)
    after = state(model)
    assert_restored(directory / "second", wanted)
    resumed = start()
    checkpoint.restore(resumed, directory / "second")
    change_some(resumed, 4)
    assert_equal(state(resumed), after)


def test_a_restore_that_dropped_state_begins_a_new_chain(directory):
    train_and_save(CheckpointManager(start(), directory, full_every_saves=10), 0)
    manager = CheckpointManager(start("adagrad"), directory, full_every_saves=10)
    manager.restore()
    train_and_save(manager, 1)
    assert read_manifest(directory, 2).sequence == 0


def test_a_table_that_was_loaded_is_whole_in_a_delta(directory):
    manager = CheckpointManager(start(), directory, full_every_saves=10)
    train_and_save(manager, 0)
    if distributed.local_rank() == 0:
        table = checkpoint.dense.tables_of(manager.model)["user"]
        table.writer.clear()
        table.writer.write_rows(RowBlock(np.arange(5), np.ones((5, 6), np.float32), None))
    distributed.barrier()
    expected = train_and_save(manager, 1, 2)
    found = [read_manifest(directory, step).tables for step in manager.steps()]
    assert [[tables[name].whole for name in FEATURES] for tables in found] == [
        [True, True],
        [True, False],
        [False, False],
    ]
    assert_restored(directory, expected)


@pytest.mark.parametrize("step", [1, 2], ids=["whole", "delta"])
def test_rows_that_are_not_what_was_saved_change_nothing(directory, step):
    """Those of the last table, found before the first one is touched."""
    train_and_save(CheckpointManager(start(), directory, full_every_saves=10), 0, 1)
    if distributed.rank() == 0:
        folder = folder_of(directory, step)
        manifest = Manifest.read(folder)
        last = list(manifest.tables)[-1]
        entry = dataclasses.replace(manifest.tables[last], digest=1)
        dataclasses.replace(manifest, tables=manifest.tables | {last: entry}).write(folder)
    distributed.barrier()
    model = start()
    change_some(model, 5)
    before = state(model)
    with pytest.raises(CheckpointError, match="wanted rows with digest 0000000000000001"):
        checkpoint.restore(model, directory, step=step)
    assert_equal(state(model), before)


def test_without_its_base_the_next_one_has_all_rows(directory):
    manager = CheckpointManager(start(), directory, full_every_saves=10)
    train_and_save(manager, 0)
    if distributed.rank() == 0:
        shutil.rmtree(directory / "step-0000000001")
    train_and_save(manager, 1)
    assert read_manifest(directory, 2).sequence == 0


def decaying() -> keras.Model:
    return start(optimizer=tfhybrid.optimizers.AdamW(weight_decay=5.0))


def embeddings(model: keras.Model) -> dict[str, np.ndarray]:
    """Returns those of keys with and without a row."""
    tables = checkpoint.dense.tables_of(model)
    return {name: table.lookup(np.arange(-60, 60)) for name, table in tables.items()}


def test_decayed_tables_come_back_and_go_on(directory):
    model = decaying()
    fit(model, 1)
    checkpoint.save(model, directory, Position(1, 0))
    saved, saved_embeddings = state(model), embeddings(model)
    assert all(table.decay < 0.9 for table in checkpoint.dense.tables_of(model).values())
    fit(model, 3, Position(1, 0))
    expected = embeddings(model)

    resumed = decaying()
    position = checkpoint.restore(resumed, directory)
    assert_equal(state(resumed), saved)
    for name, rows in embeddings(resumed).items():
        np.testing.assert_array_equal(rows, saved_embeddings[name])
    fit(resumed, 3, position)
    for name, rows in embeddings(resumed).items():
        np.testing.assert_allclose(rows, expected[name], atol=1e-4)


def test_a_delta_of_a_decayed_table_has_all_rows(directory):
    manager = CheckpointManager(decaying(), directory, max_to_keep=None, full_every_saves=3)
    expected = train_and_save(manager, *range(3))
    manifests = [read_manifest(directory, step) for step in manager.steps()]
    assert [manifest.sequence for manifest in manifests] == [0, 1, 2]
    assert all(manifest.tables[name].whole for manifest in manifests for name in FEATURES)
    decays = [manifest.tables["user"].decay for manifest in manifests]
    assert 1 > decays[0] > decays[1] > decays[2]
    for step, wanted in expected.items():
        restored = decaying()
        checkpoint.restore(restored, directory, step=step)
        assert_equal(state(restored), wanted)


def test_expected_rows_are_told_beside_the_real_ones(directory):
    model = start(expected_rows=1000)
    table = checkpoint.dense.tables_of(model)["user"]
    change_some(model, 0)
    reserved = table.stats().bytes
    change_some(model, 1)
    assert table.stats().bytes == reserved
    checkpoint.save(model, directory, START)
    entry = read_manifest(directory, int(model.optimizer.iterations)).tables["user"]
    assert (entry.expected_rows, entry.rows) == (1000, table.rows)


def test_random_generators_go_on(directory):
    model = start()
    fit(model, 1)
    checkpoint.save(model, directory, START)
    expected = np.random.random(4)
    restored = start()
    checkpoint.restore(restored, directory)
    np.testing.assert_array_equal(np.random.random(4), expected)


@pytest.mark.world_size
def test_training_survives_a_checkpoint_that_cannot_be_written(directory, caplog):
    model = start()
    blocked = directory / "file"
    if distributed.rank() == 0:
        blocked.write_text("in the way")
    distributed.barrier()
    save = tfhybrid.callbacks.Checkpoint(blocked / "below", save_freq=1)
    with pytest.raises(CheckpointError, match=r"could not be written"):
        fit(model, 1, callbacks=[save])
    assert int(model.optimizer.iterations) == STEPS_PER_EPOCH
    if distributed.rank() == 0:
        assert caplog.text.count("Training continues") == STEPS_PER_EPOCH


def test_keeps_the_newest_and_the_real_shape(directory):
    model = start()
    fit(model, 3, callbacks=[tfhybrid.callbacks.Checkpoint(directory, max_to_keep=2)])
    assert checkpoint.steps(directory) == [8, 12]
    manifest = json.loads((directory / "step-0000000012" / "manifest.json").read_text())
    for name, table in checkpoint.dense.tables_of(model).items():
        assert manifest["tables"][name]["rows"] == table.stats().rows <= 80


def test_starts_at_zero_where_there_is_nothing(directory):
    model = start()
    assert checkpoint.restore(model, directory) == (0, 0)
    with pytest.raises(CheckpointError, match=r"Received: a directory without checkpoints, step=7"):
        checkpoint.restore(model, directory, step=7)


def truncate(folder: Path) -> None:
    path = folder / "item-00000.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def flip_a_bit(folder: Path) -> None:
    path = folder / "user-00000.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)


def remove(folder: Path) -> None:
    (folder / "dense.safetensors").unlink()


def leave_the_folder(folder: Path) -> None:
    text = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(text.replace("dense.safetensors", "../dense.safetensors"))


DAMAGES = (truncate, flip_a_bit, remove, leave_the_folder)


def test_damaged_checkpoint_changes_nothing(directory, saved):
    model = start()
    fit(model, 2)
    before = state(model)
    for damage in DAMAGES:
        damaged = directory / damage.__name__
        if distributed.rank() == 0:
            shutil.copytree(saved.directory, damaged)
            damage(folder_of(damaged, STEPS_PER_EPOCH))
        distributed.barrier()
        with pytest.raises(CheckpointError, match=r"damaged|cannot be read|outside"):
            checkpoint.restore(model, damaged)
        assert_equal(state(model), before)


def test_table_of_another_shape_is_refused(saved):
    with pytest.raises(CheckpointError, match=r"dim and initializer .* Received"):
        checkpoint.restore(start(dim=7), saved.directory)


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> SimpleNamespace:
    """A checkpoint that tests read; the rows of each table by name, dense weights by number."""
    directory = common_directory(tmp_path_factory)
    model = start()
    fit(model, 1)
    checkpoint.save(model, directory, Position(1, 0))
    found = rows_and_weights(model)
    tfhybrid.shutdown()
    return SimpleNamespace(directory=directory, rows_and_weights=found)


def rows_and_weights(model: keras.Model) -> dict[str, np.ndarray]:
    tables = checkpoint.dense.tables_of(model)
    rows = {name: table.lookup(np.arange(-40, 40)) for name, table in tables.items()}
    weights = [w for w in model.trainable_weights if not isinstance(w, TableProxy)]
    return rows | {str(i): np.asarray(weight) for i, weight in enumerate(weights)}


def states(model: keras.Model) -> np.ndarray:
    table = checkpoint.dense.tables_of(model)["user"]
    return np.concatenate([block.states for block in table.blocks(states=True)])


@pytest.mark.parametrize("optimizer", ["adagrad", "sgd"])
def test_state_of_another_sparse_optimizer_is_dropped(saved, optimizer, caplog):
    model = start(optimizer)
    checkpoint.restore(model, saved.directory)
    restored = rows_and_weights(model)
    for name, value in saved.rows_and_weights.items():
        np.testing.assert_array_equal(restored[name], value)
    if distributed.rank() == 0:
        initial = np.float32(0.1 if optimizer == "adagrad" else 0.0)
        np.testing.assert_array_equal(states(model), initial)
        assert "Table 'user'" in caplog.text
        assert "its state is dropped" in caplog.text
        assert checkpoint.dense.tables_of(model)["user"].optimizer_start == STEPS_PER_EPOCH
    fit(model, 2, Position(1, 0))


@pytest.mark.parametrize(
    ("optimizer", "warning"),
    [
        (keras.optimizers.SGD, "optimizer Adam: its state is dropped, SGD starts fresh"),
        (
            functools.partial(keras.optimizers.Adam, amsgrad=True),
            "optimizer Adam with other settings: its state is dropped, Adam starts fresh",
        ),
    ],
)
def test_state_of_another_dense_optimizer_is_dropped(saved, optimizer, warning, caplog):
    model = start(dense_optimizer=optimizer)
    checkpoint.restore(model, saved.directory)
    restored = rows_and_weights(model)
    for name, value in saved.rows_and_weights.items():
        np.testing.assert_array_equal(restored[name], value)
    assert int(model.optimizer.iterations) == STEPS_PER_EPOCH
    if distributed.rank() == 0:
        assert warning in caplog.text
    fit(model, 2, Position(1, 0))


def test_model_with_one_more_feature_takes_the_tables_that_both_have(saved):
    model = start(features=[*FEATURES, "hour"])
    with pytest.raises(CheckpointError, match=r"restore\(tables=\[...\]\) restores those"):
        checkpoint.restore(model, saved.directory)
    before = rows_and_weights(model)
    checkpoint.restore(model, saved.directory, tables=FEATURES, weights=False)
    after = rows_and_weights(model)
    for name, value in after.items():
        expected = saved.rows_and_weights if name in FEATURES else before
        np.testing.assert_array_equal(value, expected[name])
    assert checkpoint.dense.tables_of(model)["hour"].rows == 0


def test_only_the_tables_that_are_named_are_restored(saved):
    model = start()
    fit(model, 2)
    before = rows_and_weights(model)
    checkpoint.restore(model, saved.directory, tables=["item"], weights=False)
    after = rows_and_weights(model)
    for name, value in after.items():
        expected = saved.rows_and_weights if name == "item" else before
        np.testing.assert_array_equal(value, expected[name])
    with pytest.raises(ConfigError, match=r"Received: tables=\['cart'\]"):
        checkpoint.restore(model, saved.directory, tables=["item", "cart"])


@pytest.mark.world_size
def test_unwritable_directory_is_an_error_on_all_ranks(directory):
    model = start()
    fit(model, 1)
    blocked = directory / "file"
    if distributed.rank() == 0:
        blocked.write_text("in the way")
    distributed.barrier()
    with pytest.raises(CheckpointError, match=r"could not be written"):
        checkpoint.save(model, blocked / "below", Position(1, 0))
