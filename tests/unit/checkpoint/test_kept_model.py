"""Restart from memory, in one process that plays the killed run and the next one."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.support.crash import Crash
from tests.support.reference import click_model
from tests.support.resuming_run import BATCHES, STEPS, Run, crash
from tfhybrid import checkpoint
from tfhybrid.checkpoint import kept_model
from tfhybrid.data import Position
from tfhybrid.errors import ConfigError, StoreError
from tfhybrid.job import current_job
from tfhybrid.job import job as job_module
from tfhybrid.settings import shm_directory

_names = itertools.count()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    name = f"hot-restart-{next(_names)}"

    def begin(**options) -> Run:
        return Run(name, tmp_path / "checkpoints", **options)

    yield begin
    tfhybrid.shutdown()


def uninterrupted(start: Callable[..., Run]) -> dict[str, object]:
    run = start()
    run.train(0, STEPS)
    digests = run.digests
    tfhybrid.shutdown()
    return digests


def test_resumes_to_the_same_bits(start) -> None:
    wanted = uninterrupted(start)
    for first, last in ((0, 4), (4, 5), (5, STEPS)):
        run = start()
        assert run.position == (0, first)
        run.train(first, last)
        digests = run.digests
        crash()
    assert digests == wanted


def test_micro_batches_of_a_step_that_was_not_complete_are_done_again(start) -> None:
    run = start(passes=3)
    run.train(0, 9)
    wanted = run.digests
    tfhybrid.shutdown()
    run = start(passes=3)
    run.train(0, 7)
    crash()
    run = start(passes=3)
    assert run.position == (0, 6)
    run.train(6, 9)
    assert run.digests == wanted


def test_a_pass_without_its_update_is_trained_again(start) -> None:
    run = start(update="pass")
    run.train_in_passes(0, 8, end=8)
    wanted = run.digests
    tfhybrid.shutdown()
    run = start(update="pass")
    run.train_in_passes(0, 7, end=8)
    crash()
    run = start(update="pass")
    assert run.position == (0, 6)
    run.train_in_passes(6, 8, end=8)
    assert run.digests == wanted


def test_steps_without_a_graph(start) -> None:
    run = start()
    run.model.run_eagerly = True
    run.train(0, 2)
    digests = run.digests
    crash()
    run = start()
    assert run.position == (0, 2)
    assert run.digests == digests


def test_a_run_that_ended_leaves_nothing(start, caplog) -> None:
    start().train(0, 2)
    tfhybrid.shutdown()
    assert start().position == (0, 0)
    assert "Not resumed from memory" in caplog.text


def test_positions_are_those_of_fit(start, tmp_path) -> None:
    """Killed in the second epoch, which the next run finishes."""
    keys, labels = click_model.concatenate([ranks[0] for ranks in BATCHES])
    data = tf.data.Dataset.from_tensor_slices((keys, labels)).batch(16)

    run = start()
    callbacks = [Crash(STEPS + 5), tfhybrid.callbacks.HotRestart()]
    with pytest.raises(InterruptedError):
        run.model.fit(data, epochs=3, callbacks=callbacks, verbose=0)
    crash()
    run = start()
    assert run.position == (1, 5)
    callbacks = [tfhybrid.callbacks.HotRestart(), Crash(STEPS + 8)]
    with pytest.raises(InterruptedError):
        checkpoint.finish_epoch(run.model, data, run.position, callbacks=callbacks, verbose=0)
    crash()
    assert start().position == (1, 8)


def test_several_steps_in_one_execution(start) -> None:
    run = start()
    run.model.compile(run.model.optimizer, "mse", steps_per_execution=4)
    keys, labels = click_model.concatenate([ranks[0] for ranks in BATCHES])
    callbacks = [tfhybrid.callbacks.HotRestart()]
    run.model.fit(keys, labels, batch_size=16, shuffle=False, callbacks=callbacks, verbose=0)
    crash()
    assert start().position == (0, STEPS)


def test_a_position_of_ones_own_resumes_where_it_was_kept(start) -> None:
    run = start()
    for step in range(3):
        checkpoint.keep_position(run.model, {"clicks": [10 * (step + 1), 7]})
        run.train(step, step + 1)
    crash()
    assert start().position == {"clicks": [30, 7]}


def test_a_position_of_ones_own_that_was_not_kept_at_each_step_is_none(start) -> None:
    run = start()
    checkpoint.keep_position(run.model, {"clicks": 10})
    run.train(0, 2)
    crash()
    assert start().position == (0, 0)


@pytest.mark.parametrize(
    ("position", "wanted"),
    [
        ({"clicks": "x" * 4096}, "at most 4096 bytes of JSON"),
        ({"clicks": float("nan")}, "or a JSON object"),
        ({"clicks": object()}, "or a JSON object"),
        (17, "or a JSON object"),
    ],
)
def test_what_is_no_position_is_refused(start, position, wanted) -> None:
    with pytest.raises(ConfigError, match=wanted):
        checkpoint.keep_position(start().model, position)


def test_random_generators_go_on(start) -> None:
    run = start()
    random.seed(3)
    np.random.seed(4)
    for step in range(3):
        checkpoint.keep_position(run.model, Position(7, step))
        run.train(step, step + 1)
        drawn = random.random(), np.random.random()
    crash()
    run = start()
    assert run.position == (7, 3)
    assert (random.random(), np.random.random()) == drawn


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"seed": 1}, "the seed was 0, and is 1"),
        ({"optimizer": lambda: keras.optimizers.Adagrad(0.01)}, 'the optimizer was "Adam", and'),
        ({"optimizer": lambda: keras.optimizers.Adam(0.02)}, "the optimizer's learning_rate was"),
        ({"reduction": "mean"}, "the reduction was"),
        ({"table_optimizer": "sgd"}, "the tables' optimizers was"),
        ({"units": 5}, "the dense variable 4 was [[16, 4]"),
    ],
)
def test_a_changed_configuration_is_not_attached(start, options, told, caplog) -> None:
    run = start()
    run.train(0, 2)
    crash()
    run = start(**options)
    assert run.position == (0, 0)
    assert f"Not resumed from memory: rank 0: {told}" in caplog.text
    assert all(t.rows == t.version == 0 for t in checkpoint.dense.tables_of(run.model).values())
    run.train(0, 3)
    crash()
    assert start(**options).position == (0, 3)


@pytest.mark.parametrize("kind", [0, 99, 2**32 - 1])
def test_a_store_with_a_damaged_optimizer_is_not_attached(start, kind, caplog) -> None:
    run = start()
    run.train(0, 2)
    name = current_job().name
    crash()
    (table,) = Path(shm_directory()).glob(f"tfhybrid-*-{name}/item.table")
    with table.open("r+b") as file:
        file.seek(288)  # optimizer.kind, docs/store_format.md
        file.write(kind.to_bytes(4, "little"))
    assert start().position == (0, 0)
    assert "Not resumed from memory" in caplog.text


def test_otherwise_the_checkpoint_is_restored(start, tmp_path) -> None:
    run = start()
    run.train(0, 3)
    checkpoint.save(run.model, tmp_path / "checkpoints", Position(0, 3))
    digests = run.digests
    run.train(3, 5)
    crash()
    run = start(optimizer=lambda: keras.optimizers.Adam(0.02))
    assert run.position == (0, 3)
    assert {name: run.digests[name] for name in ("user", "item")} == {
        name: digests[name] for name in ("user", "item")
    }
    run.train(3, 4)
    crash()
    assert start(optimizer=lambda: keras.optimizers.Adam(0.02)).position == (0, 4)


def test_a_step_that_was_asked_for_is_not_taken_from_memory(start, tmp_path, caplog) -> None:
    run = start()
    run.train(0, 2)
    checkpoint.save(run.model, tmp_path / "checkpoints", Position(0, 2))
    run.train(2, 5)
    crash()
    assert start().position == (0, 5)
    crash()
    keras.backend.clear_session()
    tfhybrid.init(f"hot-restart-{next(_names)}", resume="memory")
    model = click_model.keras_model()
    model.compile(tfhybrid.DistributedOptimizer("adam"), "mse")
    with pytest.raises(checkpoint.restoring.CheckpointError, match="step"):
        checkpoint.restore(model, tmp_path / "none", step=3)


def test_tables_wait_for_restore(start) -> None:
    tfhybrid.init(f"hot-restart-{next(_names)}", resume="memory")
    model = click_model.keras_model()
    model.compile(tfhybrid.DistributedOptimizer("adam"), "mse")
    with pytest.raises(StoreError, match=r"checkpoint\.restore"):
        click_model.collection(model).tables["user"].lookup([1])
    keys, labels = BATCHES[0][0]
    with pytest.raises(ConfigError, match=r"checkpoint\.restore.*before its first step"):
        model.train_on_batch(keys, labels)


def test_two_optimizers_are_not_kept(start, caplog) -> None:
    run = start()
    run.train(0, 1)
    layer = tfhybrid.layers.Embedding(tfhybrid.TableConfig(4), name="another")
    optimizer = tfhybrid.DistributedOptimizer("sgd")
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(tf.constant([[1]])))
    optimizer.apply_gradients(
        zip(tape.gradient(loss, layer.trainable_variables), layer.trainable_variables, strict=True)
    )
    checkpoint.keep_position(run.model, Position(0, 1))
    run.train(1, 2)
    crash()
    assert start().position == (0, 0)
    assert "kept-0: No such file" in caplog.text


def test_nothing_is_kept_in_other_jobs(job) -> None:
    model = click_model.keras_model()
    model.compile(tfhybrid.DistributedOptimizer("adam"), "mse")
    checkpoint.keep_position(model, Position(0, 0))
    assert kept_model.keeper_of(model) is None
    with pytest.raises(ConfigError, match="resume"):
        tfhybrid.init(resume="memory")
    with pytest.raises(ConfigError, match="resumes=False"):
        tfhybrid.init(job_module.current_job().name, resume="memory")
