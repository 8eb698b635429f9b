"""An epoch that a run broke off is finished once, no step twice."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.support.crash import Crash
from tfhybrid import checkpoint
from tfhybrid.callbacks import BroadcastVariables, Checkpoint
from tfhybrid.data import Batches, ClickLog, Position, Shard, StreamPosition
from tfhybrid.errors import ConfigError

EPOCHS = 2
LOG = ClickLog({"user": 50, "item": 20}, seed=3)
BATCHES = Batches(LOG.clicks(0, 48), 4, seed=1, shard=Shard(0, 1))  # 12 steps an epoch
STEPS = 12
START = Position(0, 0)


@pytest.fixture(autouse=True)
def job():
    tfhybrid.init()
    yield
    tfhybrid.shutdown()


def start() -> keras.Model:
    keras.backend.clear_session()
    keras.utils.set_random_seed(5)
    tfhybrid.shutdown()
    tfhybrid.init()
    model = tfhybrid.models.lr(["user", "item"], table=tfhybrid.TableConfig(4))
    model.compile(
        tfhybrid.DistributedOptimizer(keras.optimizers.Adam(0.01)),
        keras.losses.BinaryCrossentropy(from_logits=True),
    )
    return model


def fit(model: keras.Model, position: Position = START, *callbacks) -> None:
    model.fit(
        BATCHES.dataset(position.epoch, epochs=None),
        initial_epoch=position.epoch,
        epochs=EPOCHS,
        steps_per_epoch=STEPS,
        shuffle=False,
        verbose=0,
        callbacks=[BroadcastVariables(), *callbacks],
    )


def state(model: keras.Model) -> list[object]:
    tables = [table.digest() for table in checkpoint.dense.tables_of(model).values()]
    dense = [variable.numpy().tobytes() for variable in checkpoint.dense.variables_of(model)]
    return [*tables, *dense]


def killed(directory: Path, at: int, save_freq: int = 6) -> None:
    save = Checkpoint(directory, save_freq=save_freq, max_to_keep=None)
    with pytest.raises(InterruptedError):
        fit(start(), START, save, Crash(at))
    save._manager.wait()


def test_a_killed_run_and_the_next_train_each_step_once(tmp_path, caplog) -> None:
    uninterrupted = start()
    fit(uninterrupted)
    wanted = state(uninterrupted)
    killed(tmp_path, 6)

    model = start()
    save = Checkpoint(tmp_path, save_freq=4, max_to_keep=None)
    position = checkpoint.restore(model, tmp_path)
    assert position == (0, 6)
    position = checkpoint.finish_epoch(model, BATCHES, position, callbacks=[save], verbose=0)
    assert position == (1, 0)
    fit(model, position, save)
    assert int(model.optimizer.iterations) == EPOCHS * STEPS
    assert state(model) == wanted
    assert "trained twice" not in caplog.text
    # What was saved meanwhile says where its epoch stood.
    again = start()
    for step, place in [(8, (0, 8)), (12, (0, 12)), (16, (1, 4))]:
        assert checkpoint.restore(again, tmp_path, step=step) == place


def test_a_dataset_of_one_epoch_will_do(tmp_path) -> None:
    killed(tmp_path, 7)
    model = start()
    position = checkpoint.restore(model, tmp_path)
    data = BATCHES.dataset(position.epoch)
    assert checkpoint.finish_epoch(model, data, position, verbose=0) == (1, 0)
    assert int(model.optimizer.iterations) == STEPS


def test_at_the_end_of_an_epoch_nothing_is_left(tmp_path) -> None:
    killed(tmp_path, STEPS)
    model = start()
    position = checkpoint.restore(model, tmp_path)
    assert position == (0, STEPS)
    assert checkpoint.finish_epoch(model, BATCHES, position) == (1, 0)
    assert int(model.optimizer.iterations) == STEPS


def test_at_the_start_of_an_epoch_there_is_nothing_to_finish() -> None:
    assert checkpoint.finish_epoch(start(), BATCHES, Position(3, 0)) == (3, 0)


@pytest.mark.parametrize("callback", [Checkpoint, tfhybrid.callbacks.HotRestart])
def test_fit_warns_of_an_epoch_that_is_not_finished(tmp_path, caplog, callback) -> None:
    killed(tmp_path, 6)
    model = start()
    position = checkpoint.restore(model, tmp_path)
    own = callback(tmp_path) if callback is Checkpoint else callback()
    with caplog.at_level(logging.WARNING):
        fit(model, position, own)
    (warning,) = [r.getMessage() for r in caplog.records if "trained twice" in r.getMessage()]
    assert "continues at epoch 0, step 6" in warning
    assert "tfhybrid.checkpoint.finish_epoch" in warning


def test_no_warning_where_a_loop_of_ones_own_has_trained_since(tmp_path, caplog) -> None:
    killed(tmp_path, 6)
    model = start()
    position = checkpoint.restore(model, tmp_path)
    for features, labels in BATCHES.dataset(*position):
        model.train_on_batch(features, labels)
    fit(model, Position(1, 0))
    assert "trained twice" not in caplog.text


@pytest.mark.parametrize(
    ("data", "position", "options", "wanted"),
    [
        (BATCHES, StreamPosition("a.csv", 3), {}, "needs a tfhybrid.data.Position"),
        (BATCHES, Position(0, 13), {}, r"epoch of these data has 12 steps. Received: .*step 13"),
        (BATCHES.dataset(epochs=None), Position(0, 3), {}, "finite tf.data.Dataset of one epoch"),
        (BATCHES, Position(0, 3), {"epochs": 4}, r"Received: \['epochs'\]"),
    ],
)
def test_what_cannot_be_finished_is_refused(data, position, options, wanted) -> None:
    with pytest.raises(ConfigError, match=wanted):
        checkpoint.finish_epoch(start(), data, position, **options)


def test_the_last_steps_are_saved_when_fit_ends(tmp_path) -> None:
    model = start()
    fit(model, START, Checkpoint(tmp_path, save_freq=10, max_to_keep=None))
    assert checkpoint.steps(tmp_path) == [10, 20, 24]
    assert checkpoint.restore(model, tmp_path) == (EPOCHS, 0)


def test_data_of_unknown_length_are_finished(tmp_path) -> None:
    killed(tmp_path, 6)
    model = start()
    position = checkpoint.restore(model, tmp_path)
    unknown = BATCHES.dataset().filter(lambda *_: True)
    assert unknown.cardinality() == tf.data.UNKNOWN_CARDINALITY
    assert checkpoint.finish_epoch(model, unknown, position, verbose=0) == (1, 0)
    assert int(model.optimizer.iterations) == STEPS
