"""tfhybrid: one copy of the tables per host in shared memory, updated once per step."""

from __future__ import annotations

import argparse
import os

import keras
import tensorflow as tf

import tfhybrid
from benchmarks.step.step import model
from tfhybrid.core import native

LEARNING_RATE = 0.05


def build_model(
    config: model.StepConfig, sharded: bool
) -> tuple[keras.Model, tfhybrid.layers.EmbeddingCollection]:
    """Returns the model of {feature: ids `[batch, 1]`}, an EmbeddingCollection and the tower."""
    placement = tfhybrid.Sharded() if sharded else tfhybrid.Replicated()
    table = tfhybrid.TableConfig(dim=config.dim, initializer="uniform", placement=placement)
    names = [f"feature_{position}" for position in range(config.features)]
    inputs = {name: keras.Input((1,), dtype="int64", name=name) for name in names}
    collection = tfhybrid.layers.EmbeddingCollection(dict.fromkeys(names, table), concatenate=True)
    return keras.Model(inputs, model.build_tower(config)(collection(inputs))), collection


def make_step(network: keras.Model, options: argparse.Namespace) -> model.Step:
    """Returns the step of ({feature: ids}, labels)."""
    optimizer = tfhybrid.DistributedOptimizer(
        keras.optimizers.Adagrad(LEARNING_RATE),
        exchange=options.exchange,
        wire_dtype=options.wire_dtype,
        dense=options.dense,
    )
    optimizer.build(network.trainable_variables)

    @tf.function(autograph=False)
    def step(ids: dict[str, tf.Tensor], labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = model.log_loss(labels, network(ids, training=True))
        weights = network.trainable_variables
        gradients = tape.gradient(loss, [weight.value for weight in weights])
        optimizer.apply(gradients, weights)
        return loss

    return step


def dataset_of(batches: list[model.Batch]) -> tf.data.Dataset:
    """Returns the batches as an input pipeline hands them over."""
    ids, labels = zip(*batches, strict=True)
    features = {name: tf.stack([batch[name] for batch in ids]) for name in ids[0]}
    return tf.data.Dataset.from_tensor_slices((features, tf.stack(labels)))


def count_fetching() -> dict[str, float]:
    """Returns since the job began: milliseconds of getting rows, and rows and bytes."""
    passes, counters, times = tfhybrid.pass_stats(), native.counters(), native.phase_times()
    return {
        "pass_on_its_way_milliseconds": 1e3 * times["pass"],
        "fetch_wait_milliseconds": 1e3 * times["fetch"],
        "lookup_milliseconds": 1e3 * times["lookup"],
        "ahead_milliseconds": 1e3 * times["ahead"],
        "pass_bytes": passes.bytes,
        "pass_asked_rows": passes.requested,
        "pass_refreshed_rows": passes.refreshed,
        "fetched_bytes": counters["fetched_bytes"],
        "update_bytes": counters["sent_bytes"],
    }


def main() -> None:
    """Runs this side on every rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    model.add_options(parser)
    parser.add_argument("--exchange", default="leaders", help="how gradients travel between hosts")
    parser.add_argument("--wire-dtype", default="float32", help="of gradients between hosts")
    parser.add_argument("--dense", default="auto", help="how dense gradients are added up")
    parser.add_argument("--sharded", action="store_true", help="each row on one host")
    parser.add_argument("--dataset", action="store_true", help="batches come from tf.data")
    parser.add_argument("--pass-batches", type=int, default=0, help="of a pass; 0 announces none")
    arguments = parser.parse_args()
    config = model.config_of(arguments)
    if arguments.dense == "horovod":
        os.environ.setdefault("HOROVOD_CYCLE_TIME", "5")
    tfhybrid.init()

    def feed(ids):
        with tf.device("CPU:0"):  # where an input pipeline leaves them
            return {f"feature_{i}": tf.constant(keys[:, None]) for i, keys in enumerate(ids)}

    network, collection = build_model(config, arguments.sharded)
    step = make_step(network, arguments)

    def ahead(batches):
        data = dataset_of(batches) if arguments.dataset else batches
        if arguments.pass_batches == 0:
            return data
        return tfhybrid.data.announce(data, batches=arguments.pass_batches, layers=collection)

    way = "sharded" if arguments.sharded else arguments.exchange
    way += ", from a data set" if arguments.dataset else ""
    if arguments.pass_batches:
        way += f", {arguments.pass_batches} batches announced"
    name = f"tfhybrid ({way}, {arguments.wire_dtype}, dense {arguments.dense})"
    model.measure(name, config, step, feed, ahead, count_fetching)


if __name__ == "__main__":
    main()
