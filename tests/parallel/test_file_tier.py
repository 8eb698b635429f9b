"""Tables in files on a disk: exact, whatever the cache and the number of ranks."""

from __future__ import annotations

import os

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.parallel import checkpointed
from tests.parallel.exact_training import (
    TABLE_OPTIMIZERS,
    assert_exact,
    assert_replicas_equal,
    fit,
    loss,
)
from tests.support.reference import click_model, training
from tests.support.reference.click_model import OPTIMIZERS
from tfhybrid import checkpoint, distributed

pytestmark = pytest.mark.usefixtures("job")

STEPS = 20
# Bytes of a slot that holds an embedding of 8 numbers and most state that an optimizer has.
SLOT_BYTES = 16 + 4 * (8 + 3 * 8)


def max_keys_of_a_step(steps: list[list[training.Batch]]) -> int:
    """Returns how many rows a cache must hold at least, for either table."""

    def keys_of(ranks: list[training.Batch], table: str) -> int:
        keys, _ = click_model.concatenate(ranks)
        features = {feature for feature, of in click_model.FIELDS if of == table}
        return len(np.unique(np.concatenate([keys[f].ravel() for f in features])))

    return max(keys_of(ranks, table) for ranks in steps for table in click_model.DIMS)


def trained(storage: tfhybrid.FileTier | None, steps, keras_optimizer, optimizer=None):
    """Returns a trained model."""
    model = click_model.keras_model(optimizer=optimizer, storage=storage)
    model.compile(tfhybrid.DistributedOptimizer(keras_optimizer), loss=loss())
    fit(model, steps)
    return model


def digests(model: keras.Model) -> list[int]:
    return [table.digest() for table in click_model.collection(model).tables.values()]


@pytest.mark.parametrize("slots", [1, 1.5, 10], ids=["a-step", "half-more", "all"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training_equals_the_reference(directory, optimizer, slots) -> None:
    steps = click_model.batches(STEPS, tfhybrid.size())
    storage = tfhybrid.FileTier(
        directory, cache_bytes=int(slots * max_keys_of_a_step(steps) * SLOT_BYTES)
    )
    model = click_model.keras_model(storage=storage)
    trainer = click_model.reference(model, OPTIMIZERS[optimizer][1])
    model.compile(tfhybrid.DistributedOptimizer(OPTIMIZERS[optimizer][0]()), loss=loss())
    fit(model, steps)
    for ranks in steps:
        trainer.step(ranks)
    assert_exact(model, trainer, 2e-6)
    assert_replicas_equal(model, trainer)
    for table in click_model.collection(model).tables.values():
        stats = table.stats()
        assert stats.version == STEPS
        assert stats.file_bytes > 0
        assert stats.cache_hits > 0


@pytest.mark.parametrize("optimizer", TABLE_OPTIMIZERS)
def test_tables_have_the_bits_of_tables_in_memory(directory, optimizer) -> None:
    steps = click_model.batches(STEPS, tfhybrid.size())
    dense = keras.optimizers.SGD
    in_memory = digests(trained(None, steps, dense(0.1), TABLE_OPTIMIZERS[optimizer][0]))
    tfhybrid.shutdown()
    tfhybrid.init()
    state_floats = np.prod(TABLE_OPTIMIZERS[optimizer][0].state_shape(8), dtype=int)
    slot_bytes = 16 + 4 * (8 + int(state_floats))
    storage = tfhybrid.FileTier(directory, cache_bytes=max_keys_of_a_step(steps) * slot_bytes)
    model = trained(storage, steps, dense(0.1), TABLE_OPTIMIZERS[optimizer][0])
    assert digests(model) == in_memory
    assert any(t.stats().cache_misses for t in click_model.collection(model).tables.values())


@pytest.mark.parametrize("to_files", [True, False])
def test_a_checkpoint_of_one_storage_restores_as_the_other(directory, to_files) -> None:
    files = tfhybrid.FileTier(directory, cache_bytes=64 * 2**10)
    first, second = (None, files) if to_files else (files, None)
    model = checkpointed.start(storage=first)
    save = tfhybrid.callbacks.Checkpoint(directory / "saved", save_freq="epoch")
    checkpointed.fit(model, 2, callbacks=[save])
    checkpointed.fit(model, 3, checkpointed.Position(2, 0))
    expected = checkpointed.state(model)
    resumed = checkpointed.start(storage=second)
    position = checkpoint.restore(resumed, directory / "saved")
    checkpointed.fit(resumed, 3, position)
    checkpointed.assert_equal(checkpointed.state(resumed), expected)


def test_a_step_that_does_not_fit_is_refused(directory) -> None:
    storage = tfhybrid.FileTier(directory, cache_bytes=10 * SLOT_BYTES)
    steps = click_model.batches(5, tfhybrid.size())
    with pytest.raises(tf.errors.OpError, match="do not fit in its cache"):
        trained(storage, steps, keras.optimizers.SGD(0.1))


def test_weights_decay_as_in_memory(directory) -> None:
    steps = click_model.batches(STEPS, tfhybrid.size())
    in_memory = digests(trained(None, steps, keras.optimizers.AdamW(0.1)))
    tfhybrid.shutdown()
    tfhybrid.init()
    slots = max_keys_of_a_step(steps)
    storage = tfhybrid.FileTier(directory, cache_bytes=slots * SLOT_BYTES)
    model = trained(storage, steps, keras.optimizers.AdamW(0.1))
    assert digests(model) == in_memory


def test_the_files_go_with_the_job(directory) -> None:
    steps = click_model.batches(2, tfhybrid.size())
    trained(tfhybrid.FileTier(directory), steps, keras.optimizers.SGD(0.1))
    assert len(os.listdir(directory)) == len(click_model.DIMS)
    distributed.barrier()
    tfhybrid.shutdown()
    tfhybrid.init()
    distributed.barrier()
    assert os.listdir(directory) == []
