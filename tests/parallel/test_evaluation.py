"""Metrics over the samples of all ranks, whatever the share of each."""

from __future__ import annotations

import logging
from contextlib import nullcontext

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tfhybrid import metrics
from tfhybrid.errors import DataError, StoreError

pytestmark = [pytest.mark.usefixtures("job"), pytest.mark.world_size]

SAMPLES = 97


def model() -> keras.Model:
    inputs = {name: keras.Input((1,), name=name) for name in ("user", "logit")}
    return keras.Model(inputs, keras.layers.Identity()(inputs["logit"]))


def samples() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(5)
    users = random.integers(-(2**62), 2**62, 6)[random.integers(0, 6, SAMPLES)]
    logits = random.normal(0, 2, SAMPLES).astype(np.float32)
    return users, logits, (logits + random.normal(0, 2, SAMPLES) > 0).astype(np.float32)


def share(part: slice) -> tf.data.Dataset:
    users, logits, labels = (column[part, np.newaxis] for column in samples())
    return tf.data.Dataset.from_tensor_slices(({"user": users, "logit": logits}, labels)).batch(16)


@pytest.mark.parametrize("first", [0, 30, SAMPLES], ids=["none", "a part", "all"])
def test_ranks_with_uneven_shares_get_the_metrics_of_all_samples(first) -> None:
    """The first rank has `first` samples, none or all among them; the last has the rest."""
    rank, size = tfhybrid.rank(), tfhybrid.size()
    edges = [0, *([first] * (size - 1)), SAMPLES]
    scores = metrics.evaluate(model(), share(slice(edges[rank], edges[rank + 1])), group="user")
    users, logits, labels = samples()
    probabilities = 1 / (1 + np.exp(-logits.astype(np.float64)))
    assert scores["samples"] == SAMPLES
    assert scores["auc"] == metrics.auc(labels, logits)
    assert scores["gauc"] == pytest.approx(metrics.gauc(users, labels, logits), abs=1e-12)
    for name in ("log_loss", "normalized_entropy", "calibration"):
        expected = getattr(metrics, name)(labels, probabilities)
        assert scores[name] == pytest.approx(expected, rel=1e-6), name


def test_a_warning_that_fails_on_one_rank_leaves_no_other_waiting() -> None:
    class Broken(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise InterruptedError

    logit = keras.Input((1,), name="logit")
    heads = {name: keras.layers.Activation("sigmoid", name=name)(logit) for name in ("a", "b")}
    logits = np.zeros((8, 1), np.float32)
    data = [({"logit": logits}, {name: np.eye(8, 1, dtype=np.float32) for name in heads})]
    log, broken = logging.getLogger("tfhybrid.metrics"), Broken()
    log.addFilter(broken)
    try:
        with pytest.raises(InterruptedError) if tfhybrid.rank() == 0 else nullcontext():
            metrics.evaluate(keras.Model({"logit": logit}, heads), data)
    finally:
        log.removeFilter(broken)


def test_a_rank_whose_data_lacks_the_group_stops_all() -> None:
    rank = tfhybrid.rank()
    group = "logit" if rank == 0 else "user"
    wanted, said = (
        (DataError, "integer key") if rank == 0 else (StoreError, "DataError: group must be")
    )
    with pytest.raises(wanted, match=said):
        metrics.evaluate(model(), share(slice(rank, None, tfhybrid.size())), group=group)
