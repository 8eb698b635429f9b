"""Ranks with different numbers of batches, and short ones, against the reference of all samples."""

from __future__ import annotations

import numpy as np
import pytest
from tensorflow import keras

import tfhybrid
from tests.parallel.exact_training import (
    TOLERANCES,
    assert_exact,
    assert_replicas_equal,
    loop_step,
    loss,
)
from tests.parallel.uneven_batches import (
    BATCHES,
    assert_same_everywhere,
    compiled,
    dataset_of,
    share_of,
    steps_of,
)
from tests.support.reference import click_model
from tests.support.reference.click_model import OPTIMIZERS
from tfhybrid import checkpoint, distributed
from tfhybrid.errors import ConfigError

pytestmark = pytest.mark.usefixtures("job")


@pytest.mark.parametrize(
    ("optimizer", "reduction", "eager"),
    [
        pytest.param("adam", "frequency", False, marks=pytest.mark.world_size),
        pytest.param("adam", "mean", False, marks=pytest.mark.world_size),
        ("sgd", "frequency", False),
        ("sgd", "mean", False),
        ("adam", "frequency", True),
    ],
)
def test_fit_counts_every_sample_once(optimizer, reduction, eager) -> None:
    """Without a callback: ranks go through their epochs at their own pace, and join at the end."""
    shares = [[*share_of(r), *share_of(r)] for r in range(tfhybrid.size())]
    model = compiled(optimizer, reduction=reduction)
    model.run_eagerly = eager
    trainer = click_model.reference(model, OPTIMIZERS[optimizer][1], reduction=reduction)
    model.fit(dataset_of(share_of(tfhybrid.rank())), epochs=2, verbose=0)
    for batches in steps_of(shares):
        trainer.step(batches)
    assert_exact(model, trainer, TOLERANCES[optimizer])
    assert_same_everywhere(model, model.optimizer)
    assert_replicas_equal(model, trainer)
    assert model.optimizer.iterations == 2 * max(BATCHES[: tfhybrid.size()])


class Versions(keras.callbacks.Callback):
    """Notes how many steps there had been when each epoch was validated, and when it ended."""

    def __init__(self) -> None:
        super().__init__()
        self.at_test: list[int] = []
        self.at_end: list[dict] = []

    def on_test_begin(self, logs=None) -> None:
        self.at_test.append(int(self.model.optimizer.iterations))

    def on_epoch_end(self, epoch, logs=None) -> None:
        self.at_end.append(dict(logs))


def test_epochs_validation_and_callbacks_wait_for_all(tmp_path_factory) -> None:
    folder = tmp_path_factory.mktemp("checkpoints")
    folder = distributed.broadcast_object(folder)
    shares = [share_of(r) for r in range(tfhybrid.size())]
    mine = dataset_of(shares[tfhybrid.rank()])
    model = compiled("adam")
    trainer = click_model.reference(model, OPTIMIZERS["adam"][1])
    versions = Versions()
    model.fit(
        mine,
        validation_data=mine,
        epochs=2,
        verbose=0,
        callbacks=[
            tfhybrid.callbacks.BroadcastVariables(),
            tfhybrid.callbacks.LearningRateWarmup(0.001, steps=1, start=1.0),
            tfhybrid.callbacks.MetricAverage(),
            tfhybrid.callbacks.Checkpoint(folder, save_freq=12, max_to_keep=None),
            versions,
        ],
    )
    losses = [[], []]
    for epoch in range(2):
        for batches in steps_of(shares):
            losses[epoch].append((trainer.step(batches), [len(labels) for _, labels in batches]))
    assert_exact(model, trainer, TOLERANCES["adam"])
    assert_same_everywhere(model, model.optimizer)
    longest = max(BATCHES[: tfhybrid.size()])
    assert versions.at_test == [longest, 2 * longest]
    assert len(set(map(str, distributed.allgather_object(versions.at_end)))) == 1
    for epoch in range(2):
        values, samples = (np.concatenate(column) for column in zip(*losses[epoch], strict=True))
        wanted = np.average(values, weights=samples)
        assert versions.at_end[epoch]["loss"] == pytest.approx(wanted, rel=1e-5)
    manager = checkpoint.CheckpointManager(model, folder)
    assert manager.steps() == sorted({*range(12, 2 * longest + 1, 12), 2 * longest})


@pytest.mark.world_size
@pytest.mark.parametrize("eager", [False, True])
def test_a_loop_of_ones_own_joins_when_its_data_ends(eager) -> None:
    shares = [share_of(r) for r in range(tfhybrid.size())]
    model = click_model.keras_model()
    trainer = click_model.reference(model, OPTIMIZERS["adagrad"][1])
    optimizer = tfhybrid.DistributedOptimizer(OPTIMIZERS["adagrad"][0]())
    step = loop_step(model, optimizer, eager=eager)
    for keys, labels in shares[tfhybrid.rank()]:
        step(keys, labels)
    optimizer.join()
    for batches in steps_of(shares):
        trainer.step(batches)
    assert_exact(model, trainer, TOLERANCES["adagrad"])
    assert_same_everywhere(model, optimizer)


@pytest.mark.world_size
def test_a_rank_without_any_batch_joins_once_it_is_built() -> None:
    model = click_model.keras_model()
    trainer = click_model.reference(model, OPTIMIZERS["sgd"][1])
    model.compile(tfhybrid.DistributedOptimizer(OPTIMIZERS["sgd"][0]()), loss())
    batches = share_of(0)[:3]
    if tfhybrid.rank() == 0:
        for keys, labels in batches:
            model.train_on_batch(keys, labels)
    elif tfhybrid.rank() == 1:
        with pytest.raises(ConfigError, match="optimizer that was not built on rank 1"):
            model.optimizer.join()
        model.optimizer.build(model.trainable_variables)
    else:
        model.optimizer.build(model.trainable_variables)
    model.optimizer.join()
    for batch in batches:
        trainer.step([batch])
    assert_exact(model, trainer, TOLERANCES["sgd"])
    assert_same_everywhere(model, model.optimizer)


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_micro_batches_are_summed(optimizer) -> None:
    """Each rank's last step has fewer; a step of the reference is the sum of its micro-batches."""
    passes = 4
    counts = [8, 10, 3, 4][: tfhybrid.size()]
    shares = [share_of(r)[: counts[r]] for r in range(tfhybrid.size())]
    model = compiled(optimizer, backward_passes_per_step=passes)
    trainer = click_model.reference(model, OPTIMIZERS[optimizer][1])
    model.fit(dataset_of(shares[tfhybrid.rank()]), verbose=0)
    for first in range(0, max(counts), passes):
        parts = [share[first : first + passes] for share in shares]
        trainer.step_of_micro_batches([part for part in parts if part])
    assert_exact(model, trainer, TOLERANCES[optimizer])
    assert_same_everywhere(model, model.optimizer)
    assert model.optimizer.iterations == -(-max(counts) // passes)
