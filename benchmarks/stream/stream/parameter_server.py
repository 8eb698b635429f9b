"""TensorFlow's ParameterServerStrategy on the step: asynchronous, 2 workers, 2 servers.

Each feature's ids pass `tf.unique` before its rows are read, so that each row travels once. The
optimizer is Keras 2's Adagrad, which knows parameter servers.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from benchmarks.step.step.workload import Batches, StepConfig, add_options, config_in
from benchmarks.stream.stream.site import free_ports

LEARNING_RATE = 0.05
WORKERS, SERVERS = 2, 2


def main() -> None:
    """Runs all processes, or, with TF_CONFIG set, is a worker or a server."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_options(parser)
    config = config_in(parser.parse_args())
    if "TF_CONFIG" in os.environ:
        serve()
        return
    ports = free_ports(WORKERS + SERVERS)
    cluster = {
        "worker": [f"127.0.0.1:{port}" for port in ports[:WORKERS]],
        "ps": [f"127.0.0.1:{port}" for port in ports[WORKERS:]],
    }
    servers = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.stream.stream.parameter_server"],
            env=os.environ | {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})},
        )
        for task in ({"type": kind, "index": i} for kind in cluster for i in range(2))
    ]
    try:
        measure(config, cluster)
    finally:
        for server in servers:
            server.kill()
            server.wait()


def serve() -> None:
    """Serves what the coordinator schedules, until it is killed."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    tf.distribute.Server(
        resolver.cluster_spec(),
        job_name=resolver.task_type,
        task_index=resolver.task_id,
        protocol="grpc",
    ).join()


def measure(config: StepConfig, cluster: dict[str, list[str]]) -> None:
    """Times windows of steps and prints the result."""
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster), rpc_layer="grpc"
    )
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        shape = [config.rows_per_feature, config.dim]
        tables = [
            tf.Variable(tf.random.uniform(shape, -0.05, 0.05)) for _ in range(config.features)
        ]
        tower = tf_keras.Sequential(
            [
                tf_keras.Input((config.features * config.dim,)),
                tf_keras.layers.Dense(256, activation="relu"),
                tf_keras.layers.Dense(128, activation="relu"),
                tf_keras.layers.Dense(1),
            ]
        )
        optimizer = tf_keras.optimizers.legacy.Adagrad(LEARNING_RATE)
    weights = [*tables, *tower.trainable_variables]

    def train(ids: tf.Tensor, labels: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            embedded = [_rows(table, ids[i]) for i, table in enumerate(tables)]
            logits = tower(tf.concat(embedded, axis=1))
            losses = tf.nn.sigmoid_cross_entropy_with_logits(labels, logits)
            loss = tf.reduce_mean(losses)
        optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))

    @tf.function(autograph=False)
    def step(iterator: Any) -> None:
        strategy.run(train, args=next(iterator))

    per_worker = coordinator.create_per_worker_dataset(lambda: _dataset(config))
    iterator = iter(per_worker)
    seconds = []
    for _ in range(config.windows + 1):
        started = time.perf_counter()
        for _ in range(config.steps * WORKERS):
            coordinator.schedule(step, args=(iterator,))
        coordinator.join()
        seconds.append(time.perf_counter() - started)
    samples = config.steps * WORKERS * config.batch
    rate = samples / statistics.median(seconds[1:])
    result = {"side": "parameter servers", "samples_per_second": rate}
    print(json.dumps(result | dataclasses.asdict(config)), flush=True)


def _rows(table: tf.Variable, ids: tf.Tensor) -> tf.Tensor:
    distinct, places = tf.unique(ids)
    return tf.gather(tf.nn.embedding_lookup(table, distinct), places)


def _dataset(config: StepConfig) -> tf.data.Dataset:
    """Returns prepared batches, over and over; workers cannot call Python."""
    ids, labels = zip(*Batches(config, 0, 1).measured(config.steps), strict=True)
    tensors = np.stack(ids), np.stack(labels)
    return tf.data.Dataset.from_tensor_slices(tensors).repeat().prefetch(4)


if __name__ == "__main__":
    main()
