"""Metrics of all ranks while `fit` runs, and what acts on them: the same on every rank."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tensorflow import keras

import tfhybrid
from tests.parallel.checkpointed import FEATURES, STEPS_PER_EPOCH, batches, start, state
from tests.parallel.checkpointed import assert_equal as assert_same
from tfhybrid import checkpoint, distributed, metrics
from tfhybrid.callbacks import BroadcastVariables, Checkpoint, Evaluate, MetricAverage
from tfhybrid.data import Batches, Clicks
from tfhybrid.errors import ConfigError, UnsupportedError

pytestmark = [pytest.mark.usefixtures("job"), pytest.mark.world_size]


def fit(model: keras.Model, epochs: int, *callbacks) -> keras.callbacks.History:
    source = batches()
    return model.fit(
        source.dataset(epochs=None),
        epochs=epochs,
        steps_per_epoch=source.steps_per_epoch,
        shuffle=False,
        verbose=0,
        callbacks=[BroadcastVariables(), *callbacks],
    )


def validation() -> Batches:
    rng = np.random.default_rng(8)
    keys = {name: rng.integers(-40, 40, 150) for name in FEATURES}
    return Batches(
        Clicks(keys, ((keys["user"] + keys["item"]) % 2).astype(np.float32)),
        16,
        seed=1,
        shuffle=False,
    )


class Worse(keras.callbacks.Callback):
    """Writes values that differ from rank to rank, and of all of which rank 0's are taken."""

    def __init__(self, values: list[float]) -> None:
        super().__init__()
        self._values = values

    def on_epoch_end(self, epoch, logs=None) -> None:
        logs["score"] = self._values[epoch] + 100 * distributed.rank()


def test_scores_are_those_of_evaluate_and_stop_training_everywhere() -> None:
    model = start()
    data = validation().dataset()
    stop = keras.callbacks.EarlyStopping("val_auc", mode="max", patience=0, min_delta=1.0)
    history = fit(model, 5, MetricAverage(), Evaluate(data, group="user"), stop).history
    assert len(history["val_gauc"]) == 2  # one epoch for a baseline, one that is no better
    scores = metrics.evaluate(model, data, group="user")
    assert {name: history[f"val_{name}"][-1] for name in scores} == scores
    assert scores["samples"] == 150
    assert len(set(map(str, distributed.allgather_object(history)))) == 1


def test_a_name_that_is_there_already_is_refused() -> None:
    data = validation().dataset()
    with pytest.raises(ConfigError, match=r"logs already have names that Evaluate writes.*val_auc"):
        fit(start(), 1, Evaluate(data), Evaluate(data))


def test_metrics_that_count_are_of_the_samples_of_all_ranks() -> None:
    model = start()
    own = [
        keras.metrics.AUC(from_logits=True, name="area"),
        keras.metrics.Precision(thresholds=0.0),
        keras.metrics.RootMeanSquaredError(name="rmse"),
    ]
    model.compile(model.optimizer, model.loss, metrics=own)
    data = validation().dataset()
    history = model.fit(
        batches().dataset(),
        validation_data=data,
        verbose=0,
        callbacks=[BroadcastVariables(), MetricAverage()],
    ).history
    outputs = distributed.allgather(
        np.concatenate([model.predict_on_batch(features) for features, _ in data])
    )
    labels = distributed.allgather(np.concatenate([np.asarray(label) for _, label in data]))
    for metric, name in zip(own, ("area", "precision", "rmse"), strict=True):
        alone = type(metric).from_config(metric.get_config())
        alone.update_state(labels, outputs)
        assert history[f"val_{name}"] == [pytest.approx(float(alone.result()), rel=1e-6)], name
    assert len(set(map(str, distributed.allgather_object(history)))) == 1


def test_the_best_epoch_is_kept_and_restored_with_its_tables(directory) -> None:
    model = start()
    states = []
    note = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: states.append(state(model)))
    save = Checkpoint(directory, max_to_keep=1, monitor="score", mode="max")
    fit(model, 4, Worse([1.0, 3.0, 2.0, math.nan]), save, note)
    assert checkpoint.steps(directory) == [2 * STEPS_PER_EPOCH, 4 * STEPS_PER_EPOCH]
    assert checkpoint.restore_best(model, directory) == (2, 0)
    assert_same(state(model), states[1])

    # A run that goes on compares with the best of the one before.
    model = start()
    checkpoint.restore(model, directory)
    fit(model, 2, Worse([2.5, 2.9]), Checkpoint(directory, monitor="score", mode="max"))
    assert checkpoint.restore_best(model, directory) == (2, 0)


def test_only_the_best_are_saved(directory) -> None:
    save = Checkpoint(directory, monitor="score", mode="min", save_best_only=True)
    fit(start(), 4, Worse([3.0, 4.0, 2.0, 5.0]), save)
    assert checkpoint.steps(directory) == [STEPS_PER_EPOCH, 3 * STEPS_PER_EPOCH]


def test_a_delta_that_is_the_best_keeps_what_it_adds_to(directory) -> None:
    save = Checkpoint(directory, max_to_keep=1, full_every_saves=2, monitor="score", mode="max")
    fit(start(), 4, Worse([1.0, 3.0, 2.0, 0.0]), save)
    steps = [STEPS_PER_EPOCH * epoch for epoch in (1, 2, 3, 4)]
    assert checkpoint.steps(directory) == steps
    assert checkpoint.restore_best(start(), directory) == (2, 0)


def test_what_is_not_in_the_logs_cannot_be_monitored(directory) -> None:
    save = Checkpoint(directory, monitor="val_auc", mode="max")
    with pytest.raises(ConfigError, match=r"Received: monitor='val_auc', logs of \['loss'\]"):
        fit(start(), 1, save)


def test_there_is_no_best_without_a_monitor(directory) -> None:
    with pytest.raises(tfhybrid.errors.CheckpointError, match="No checkpoint is pinned"):
        checkpoint.restore_best(start(), directory)


@pytest.mark.parametrize(
    "options",
    [
        {"monitor": "val_auc"},
        {"monitor": "val_auc", "mode": "auto"},
        {"save_best_only": True},
        {"save_best_only": True, "monitor": "loss", "mode": "min", "save_freq": 3},
    ],
)
def test_options_that_do_not_go_together_are_refused(options) -> None:
    with pytest.raises(ConfigError, match="needs a"):
        Checkpoint("nowhere", **options)


def test_a_metric_that_counts_is_refused_where_outputs_name_the_logs() -> None:
    model = start()
    heads = {
        name: keras.layers.Identity(name=name)(model.output) for name in ("click", "conversion")
    }
    both = keras.Model(model.inputs, heads)
    losses = dict.fromkeys(heads, "mse")
    auc = {name: [keras.metrics.AUC()] for name in heads}
    both.compile(model.optimizer, losses, metrics=auc)
    data = batches().dataset().map(lambda x, y: (x, dict.fromkeys(heads, y)))
    with pytest.raises(UnsupportedError, match=r"a model with one output.*callbacks\.Evaluate"):
        both.fit(data, verbose=0, callbacks=[BroadcastVariables(), MetricAverage()])
