"""`Checkpoint(resume=True)`, its directory, and data that `fit` reads themselves."""

from __future__ import annotations

import functools
import logging
import random
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from tensorflow import keras

import tfhybrid
from tests.support.crash import Crash
from tests.support.strict import no_warnings
from tfhybrid import checkpoint
from tfhybrid._keras import IS_KERAS_3
from tfhybrid.callbacks import BroadcastVariables, Checkpoint, Evaluate, MetricAverage
from tfhybrid.checkpoint.stored import StoredCheckpoint, folder_of
from tfhybrid.data import Batches, ClickLog, FileBatches, Parquet, Position, Shard
from tfhybrid.data.position import cursor_of
from tfhybrid.errors import CheckpointError, ConfigError

EPOCHS = 3
LOG = ClickLog({"user": 50, "item": 20}, seed=3)
STEPS = 12  # an epoch

pytestmark = pytest.mark.skipif(not IS_KERAS_3, reason="fit of Keras 2 does not read such data")


def batches(batch_size: int = 4, **options) -> Batches:
    return Batches(LOG.clicks(0, 48), batch_size, shard=Shard(0, 1), **{"seed": 1} | options)


class Epochs(keras.callbacks.Callback):
    """Records which epochs and batches `fit` shows to other callbacks."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[tuple[int, int]] = []
        self._batches = 0

    def on_train_batch_end(self, batch, logs=None) -> None:
        self._batches += 1

    def on_epoch_end(self, epoch, logs=None) -> None:
        self.ended.append((epoch, self._batches))
        self._batches = 0


@pytest.fixture(autouse=True)
def job():
    tfhybrid.init()
    yield
    tfhybrid.shutdown()


def start(**options) -> keras.Model:
    keras.backend.clear_session()
    keras.utils.set_random_seed(5)
    tfhybrid.shutdown()
    tfhybrid.init()
    model = tfhybrid.models.dnn(
        ["user", "item"], table=tfhybrid.TableConfig(4), hidden=(4,), dropout=0.3
    )
    model.compile(
        tfhybrid.DistributedOptimizer(keras.optimizers.Adam(0.01), **options),
        keras.losses.BinaryCrossentropy(from_logits=True),
    )
    return model


def state(model: keras.Model) -> list[object]:
    tables = [table.digest() for table in checkpoint.dense.tables_of(model).values()]
    dense = [variable.numpy().tobytes() for variable in checkpoint.dense.variables_of(model)]
    return [*tables, *dense]


def fit(model: keras.Model, data, *callbacks, **options) -> None:
    options = {"epochs": EPOCHS, "verbose": 0} | options
    model.fit(data, callbacks=[BroadcastVariables(), *callbacks], **options)


@functools.cache
def undisturbed() -> list[object]:
    """State of a model after three epochs without a crash."""
    model = start()
    fit(model, batches())
    return state(model)


def killed(directory: Path, at: int, data=None, model=None, **options) -> None:
    save = Checkpoint(directory, **{"save_freq": 5, "resume": True} | options)
    with pytest.raises(InterruptedError):
        fit(model or start(), data or batches(), save, Crash(at))
    save._manager.wait()


def test_fit_reads_batches_themselves_as_their_endless_dataset() -> None:
    data = batches()
    long_form = start()
    steps = data.steps_per_epoch
    fit(long_form, data.dataset(epochs=None), steps_per_epoch=steps, shuffle=False)
    assert state(long_form) == undisturbed()
    model = start()
    before = random.getstate()
    with no_warnings():
        model.fit(data, epochs=EPOCHS, verbose=0)  # no callback tells the data its epoch
    assert state(model) == undisturbed()
    assert random.getstate() == before  # Keras has shuffled numbers that nothing reads


def test_fit_begins_anew_after_one_that_was_interrupted(tmp_path) -> None:
    data = batches()
    with pytest.raises(InterruptedError):
        fit(start(), data, Crash(STEPS + 3))
    model = start()
    fit(model, data, Checkpoint(tmp_path, resume=True))
    assert state(model) == undisturbed()


def test_callbacks_of_a_fit_that_raised_do_not_run_in_the_next(tmp_path) -> None:
    model = start()
    with pytest.raises(InterruptedError):
        fit(model, batches(), Checkpoint(tmp_path, save_freq=5), Crash(3))
    assert model.optimizer.distributed_step.fit.callbacks  # Keras calls no on_train_end
    fit(model, batches(), epochs=1)
    assert model.optimizer.distributed_step.fit.callbacks == []


def test_to_look_at_a_batch_does_not_open_the_data(tmp_path) -> None:
    data, model = batches(), start()
    assert len(data[0][1]) == 4
    dataset = data.dataset(epochs=None)
    fit(model, dataset, Checkpoint(tmp_path), steps_per_epoch=STEPS, shuffle=False)
    assert state(model) == undisturbed()


def test_the_epoch_of_fit_is_the_epoch_of_the_data() -> None:
    model = start()
    fit(model, batches(), initial_epoch=1, epochs=2)
    second_epoch = state(model)
    model = start()
    fit(model, batches().dataset(1), epochs=1, shuffle=False)
    assert state(model) == second_epoch


def test_batches_may_be_iterated_over(tmp_path) -> None:
    rows = {
        "label": [0, 1] * 10,
        "user": [*range(20)],
        "tags": [[i] * (i % 3) for i in range(20)],
    }
    pa.parquet.write_table(pa.table(rows), tmp_path / "a.parquet", row_group_size=7)
    data = FileBatches(
        Parquet(["user", "tags"]), tmp_path / "*", 3, seed=1, window=8, shard=Shard(0, 1)
    )
    read = [(x["user"].numpy().tolist(), x["tags"].to_list()) for x, _ in data]
    assert len(read) == data.steps_per_epoch == len(data) == 7
    dataset = [(x["user"].numpy().tolist(), x["tags"].to_list()) for x, _ in data.dataset()]
    assert read == dataset


def test_a_failure_in_the_rest_of_an_epoch_leaves_the_filters_of_warnings(tmp_path) -> None:
    killed(tmp_path, 7)
    with warnings.catch_warnings():
        before = [*warnings.filters]
        killed(tmp_path, 8)
        assert warnings.filters == before


@pytest.mark.parametrize("crashes", [(7, 13, 29), (24,)])
def test_killed_runs_end_as_one_that_was_not(tmp_path, crashes) -> None:
    for at in crashes:
        killed(tmp_path, at, save_freq=4)
    model, epochs = start(), Epochs()
    with no_warnings():
        fit(model, batches(), Checkpoint(tmp_path, save_freq=4, resume=True), epochs)
    assert state(model) == undisturbed()
    done = crashes[-1] // 4 * 4
    expected = [(e, STEPS - max(done - e * STEPS, 0)) for e in range(done // STEPS, EPOCHS)]
    assert epochs.ended == expected
    assert model.history.epoch == [epoch for epoch, _ in expected]


def test_files_too(tmp_path) -> None:
    clicks = LOG.clicks(0, 48)
    rows = pa.table({**clicks.features, "label": clicks.label})
    pa.parquet.write_table(rows, tmp_path / "a.parquet", row_group_size=9)

    def data() -> FileBatches:
        format_ = Parquet(["user", "item"])
        return FileBatches(format_, tmp_path / "*.parquet", 4, seed=1, window=12)

    model = start()
    fit(model, data(), epochs=2)
    expected = state(model)
    killed(tmp_path / "saved", 18, data())
    model = start()
    fit(model, data(), Checkpoint(tmp_path / "saved", resume=True), epochs=2)
    assert state(model) == expected


def test_a_later_fit_begins_as_it_says_and_a_finished_job_says_so(tmp_path, caplog) -> None:
    killed(tmp_path, 14)
    model, epochs = start(), Epochs()
    save = Checkpoint(tmp_path, resume=True)
    fit(model, batches(), save)
    fit(model, batches(), epochs, epochs=1)
    assert epochs.ended == [(0, STEPS)]
    # The callback has resumed already: a second fit of the job goes on with its own weights.
    fit(model, batches(), save, epochs, initial_epoch=EPOCHS, epochs=EPOCHS + 1)
    assert epochs.ended[-1] == (EPOCHS, STEPS)
    steps = int(model.optimizer.iterations)
    again = start()
    with caplog.at_level(logging.WARNING):
        fit(again, batches(), Checkpoint(tmp_path, resume=True), epochs=EPOCHS + 1)
    assert "Nothing is left to train" in caplog.text
    assert int(again.optimizer.iterations) == steps == 5 * STEPS


def test_a_restored_model_is_not_restored_again(tmp_path) -> None:
    killed(tmp_path, 14)
    model, epochs = start(), Epochs()
    assert checkpoint.restore(model, tmp_path) == (0, 10)
    fit(model, batches(), Checkpoint(tmp_path, resume=True), epochs, epochs=1)
    assert epochs.ended == [(0, 2)]


def test_another_batch_size_goes_on_at_the_next_sample(tmp_path, caplog) -> None:
    killed(tmp_path, 8)  # saved at step 5: 20 of 50 samples
    model, epochs = start(), Epochs()
    with caplog.at_level(logging.WARNING):
        fit(model, batches(10), Checkpoint(tmp_path, save_freq=1, resume=True), epochs)
    assert "Epoch 0 continues at the next sample with other steps: batch_size was 4" in caplog.text
    # 28 of 48 samples are left: two steps of 10, and the rest.
    assert epochs.ended == [(0, 3), (1, 5), (2, 5)]
    assert checkpoint.restore(model, tmp_path, step=17) == (2, 4)


def test_what_does_not_fit_the_position_is_refused_when_training_begins(tmp_path) -> None:
    killed(tmp_path, 8)
    for data, wanted in [
        (batches(seed=2), "seed was 1, and is 2"),
        (batches().dataset(), "give tfhybrid.data.Batches or FileBatches themselves"),
    ]:
        model = start()
        with pytest.raises(ConfigError, match=wanted):
            fit(model, data, Checkpoint(tmp_path, resume=True))


def test_an_initial_epoch_that_is_not_where_the_job_stopped_is_refused(tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"leave out initial_epoch\. Received: .*epoch 2"):
        fit(start(), batches(), Checkpoint(tmp_path, resume=True), initial_epoch=2)


def test_steps_per_epoch_is_refused_for_such_data() -> None:
    with pytest.raises(ConfigError, match=r"leave out steps_per_epoch\. Received: 5 steps"):
        fit(start(), batches(), MetricAverage(), steps_per_epoch=5)


def test_resume_and_fresh_exclude_each_other_and_memory_needs_its_job(tmp_path) -> None:
    with pytest.raises(ConfigError, match="not both"):
        Checkpoint(tmp_path, resume=True, fresh=True)
    with pytest.raises(ConfigError, match="resume must be one of"):
        Checkpoint(tmp_path, resume="disk")
    with pytest.raises(ConfigError, match=r'tfhybrid.init\(job="NAME", resume="memory"\)'):
        fit(start(), batches(), Checkpoint(tmp_path, resume="memory"))


def test_a_directory_of_another_run_is_refused_before_the_first_step(tmp_path) -> None:
    killed(tmp_path, 8)
    model = start()
    with pytest.raises(CheckpointError, match=r"steps \[5\].*resume=True.*fresh=True"):
        fit(model, batches(), Checkpoint(tmp_path))
    assert int(model.optimizer.iterations) == 0


def test_fresh_moves_checkpoints_aside_and_deletes_none(tmp_path, caplog) -> None:
    evaluate = Evaluate(batches())
    best = {"monitor": "val_auc", "mode": "max", "full_every_saves": 3}
    model = start()
    fit(model, batches(), evaluate, Checkpoint(tmp_path, **best))
    before = {
        path.relative_to(tmp_path): path.read_bytes()
        for path in tmp_path.rglob("*")
        if path.is_file()
    }
    for number in (1, 2):
        model = start()
        save = Checkpoint(tmp_path, save_freq=10, fresh=True)
        with caplog.at_level(logging.WARNING):
            fit(model, batches(), save, epochs=1)
            fit(model, batches(), save, initial_epoch=1, epochs=2)  # its own, which stay
        assert f"moved {[0, 3, 3][number]} checkpoints to {tmp_path}/before-{number}" in caplog.text
        assert checkpoint.steps(tmp_path) == [10, 12, 20, 24][-3:]
    assert checkpoint.steps(tmp_path / "before-2") == [12, 20, 24]
    for path, content in before.items():
        assert (tmp_path / "before-1" / path).read_bytes() == content
    assert checkpoint.restore_best(start(), tmp_path / "before-1")


def test_a_checkpoint_falls_on_the_end_of_an_update(tmp_path) -> None:
    model = start(backward_passes_per_step=3)
    fit(model, batches())
    expected = state(model)
    model = start(backward_passes_per_step=3)
    save = Checkpoint(tmp_path, save_freq=2, resume=True, max_to_keep=None)

    class CrashAtBatch(keras.callbacks.Callback):
        batches = 0

        def on_train_batch_end(self, batch, logs=None) -> None:
            CrashAtBatch.batches += 1
            if CrashAtBatch.batches == 20:  # two batches of the seventh update are summed
                raise InterruptedError

    with pytest.raises(InterruptedError):
        fit(model, batches(), save, CrashAtBatch())
    save._manager.wait()
    assert checkpoint.steps(tmp_path) == [2, 4, 6]
    manifest = StoredCheckpoint.open(folder_of(tmp_path, 6)).manifest
    assert (manifest.position["epoch"], manifest.position["step"]) == (1, 6)
    model = start(backward_passes_per_step=3)
    fit(model, batches(), Checkpoint(tmp_path, resume=True))
    assert state(model) == expected


def test_the_long_form_notices_other_data_too(tmp_path) -> None:
    def run(data, at=None):
        model = start()
        position = checkpoint.restore(model, tmp_path)
        save = Checkpoint(tmp_path, save_freq=5)
        more = [] if at is None else [Crash(at)]
        try:
            position = checkpoint.finish_epoch(
                model, data, position, callbacks=[save, *more], verbose=0
            )
            fit(
                model,
                data.dataset(position.epoch, epochs=None),
                save,
                *more,
                initial_epoch=position.epoch,
                steps_per_epoch=data.steps_per_epoch,
                shuffle=False,
            )
        finally:
            if save._manager is not None:
                save._manager.wait()
        return model

    with pytest.raises(InterruptedError):
        run(batches(), at=8)
    with pytest.raises(ConfigError, match="seed was 1, and is 2"):
        run(batches(seed=2))
    # 20 of 48 samples are trained: 28 are 3 steps of up to 10, then two epochs of 5.
    assert int(run(batches(10)).optimizer.iterations) == 5 + 3 + 10


def test_an_older_position_is_taken_for_steps_of_the_same_data(tmp_path, caplog) -> None:
    model = start()
    fit(model, batches(), epochs=1)
    checkpoint.save(model, tmp_path, Position(0, 7))
    again, epochs = start(), Epochs()
    with caplog.at_level(logging.WARNING):
        fit(again, batches(), Checkpoint(tmp_path, resume=True), epochs, epochs=1)
    assert "does not say of which batch size" in caplog.text
    assert epochs.ended == [(0, 5)]


def test_fit_that_is_stopped_within_an_epoch_is_resumed_there(tmp_path) -> None:
    class Stop(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None) -> None:
            self.model.stop_training = batch == 6

    fit(start(), batches(), Checkpoint(tmp_path, resume=True), Stop())
    model = start()
    fit(model, batches(), Checkpoint(tmp_path, resume=True))
    assert state(model) == undisturbed()


def test_positions_of_callbacks_say_their_data(tmp_path) -> None:
    killed(tmp_path, 8)
    position = checkpoint.restore(start(), tmp_path)
    assert cursor_of(position)["data"] | {"digest": 0} == {
        "batch_size": 4,
        "ranks": 1,
        "window": 0,
        "seed": 1,
        "shuffle": True,
        "drop_remainder": False,
        "samples": 48,
        "digest": 0,
    }
    assert np.isscalar(cursor_of(position)["data"]["digest"])
