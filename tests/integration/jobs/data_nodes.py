"""Data nodes read what trainers train: the bits of a run whose ranks read it themselves.

data_nodes.py CLUSTER DELIVERY ...; TFHYBRID_NODES names nodes that are up, of that file. The job
trains once without them, then once for each delivery. In the last run a node drains, and its rows
move in the midst of an epoch. It is the script of the data nodes, too.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.integration.jobs.exchange import model_and_reference
from tests.integration.jobs.sharded import assert_equal
from tests.support.reference import click_model
from tfhybrid.cluster import launching
from tfhybrid.cluster.cluster_file import Cluster
from tfhybrid.data import Shard
from tfhybrid.data_nodes.key_links import PUSH
from tfhybrid.job import current_job
from tfhybrid.monitoring import metrics

NODES = os.environ.get("TFHYBRID_NODES", "")
STEPS = 6
EPOCHS = 2
BATCH = 16
STALENESS = 3


def samples(shard: Shard, first: int = 0):
    """Keys and labels of a shard."""
    steps = click_model.batches(first + STEPS, shard.size)[first:]
    return click_model.concatenate([ranks[shard.rank] for ranks in steps])


def train_data(shard: Shard) -> tf.data.Dataset:
    data = tf.data.Dataset.from_tensor_slices(samples(shard))
    return data.shuffle(64, seed=5, reshuffle_each_iteration=False).batch(BATCH)


def valid_data(shard: Shard, first: int) -> tf.data.Dataset:
    """Batches of a number that TensorFlow does not know."""
    data = tf.data.Dataset.from_tensor_slices(samples(shard, first)).batch(BATCH)
    return data.filter(lambda *_: True)


class Drains(keras.callbacks.Callback):
    """Has a node give its rows away in the midst of the first epoch, when batches are held."""

    def __init__(self, cluster: Path) -> None:
        super().__init__()
        self._cluster = cluster
        self.owners: list[set[str]] = []  # at the end of each epoch

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        if (self._epoch, batch) != (0, 1):
            return
        if tfhybrid.rank() == 0:
            assert launching.drain(Cluster.read(self._cluster), "embedding-1") == 1
        tfhybrid.distributed.barrier()

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        self.owners.append(set(current_job().access.links.nodes.names))


def trained(*callbacks: keras.callbacks.Callback, stale: Mapping[str, Any], **options):
    """Trains, evaluates and predicts; returns all that comes of it."""
    model, _, make = model_and_reference("adagrad", "frequency")
    layer = click_model.collection(model)
    model.compile(
        tfhybrid.DistributedOptimizer(make()),
        keras.losses.BinaryCrossentropy(from_logits=True),
        steps_per_execution=2,
    )
    if not layer.built:
        layer.build(None)
    data = tfhybrid.data.from_nodes(train_data, layer, **options, **stale)
    valid = tfhybrid.data.from_nodes(
        valid_data, layer, arguments={"first": STEPS}, trains=False, **options
    )
    history = model.fit(
        data,
        epochs=EPOCHS,
        validation_data=valid,
        verbose=0,
        callbacks=[tfhybrid.callbacks.BroadcastVariables(), *callbacks],
    )
    predicted = model.predict(valid.map(lambda features, _: features), verbose=0)
    return model, history.history, predicted


def run(on_nodes: bool, delivery: str, drains: Path | None = None, **stale: Any):
    os.environ.pop("TFHYBRID_NODES", None)
    if on_nodes:
        os.environ["TFHYBRID_NODES"] = NODES
    tfhybrid.init()
    drain = [] if drains is None else [Drains(drains), tfhybrid.callbacks.FollowNodes(2)]
    model, history, predicted = trained(*drain, stale=stale, delivery=delivery)
    if drains is not None:
        assert drain[0].owners == [{"embedding-0"}] * EPOCHS
    if on_nodes:
        refused(model)
    tables = click_model.collection(model).tables
    keys, _ = samples(Shard(0, 1))
    ids = np.unique(np.concatenate([each.ravel() for each in keys.values()]))
    rows = {name: table.lookup(ids) for name, table in tables.items()}
    versions = {name: table.version for name, table in tables.items()}
    found = versions, click_model.dense_weights(model), rows
    tfhybrid.distributed.barrier()
    tfhybrid.shutdown()
    keras.backend.clear_session()
    return found, history, predicted


def refused(model: keras.Model) -> None:
    """Keys themselves are no key handles."""
    keys, _ = samples(Shard(0, 1))
    with pytest.raises(tf.errors.InvalidArgumentError, match="wants what data nodes sent"):
        model.predict_on_batch({name: each[:4] for name, each in keys.items()})


def lacks_updates(folder: Path) -> None:
    """The rows of a run with a staleness lack updates, never more than they may."""
    (versions, _, _), _, _ = run(True, PUSH, staleness=STALENESS, read_log=str(folder))
    assert set(versions.values()) == {EPOCHS * STEPS}, versions
    rank = os.environ.get("HOROVOD_RANK", "0")
    log = folder / f"reads-{rank}.jsonl"
    reads = [json.loads(line) for line in log.read_text().splitlines()]
    assert {read["applied"] for read in reads} == {*range(1, EPOCHS * STEPS + 1)}
    assert {read["table"] for read in reads} == set(versions)
    missing = [read["applied"] - 1 - read["read"] for read in reads]
    assert min(missing) >= 0
    assert 0 < max(missing) <= STALENESS, missing
    told = dict(metrics.of_process())[metrics.MISSING_UPDATES]
    assert 0 <= told["median"] <= told["most"] <= max(missing), told


def main(cluster: Path, deliveries: list[str]) -> None:
    alone = run(False, deliveries[0])
    lacks_updates(cluster.parent / "reads")
    for delivery in deliveries:
        split = run(True, delivery, cluster if delivery == deliveries[-1] else None)
        assert_equal(split[0], alone[0], delivery)
        assert split[1] == alone[1], (split[1], alone[1])
        np.testing.assert_array_equal(split[2], alone[2])
    sys.stdout.write("exact on this rank\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
