"""tfhybrid: one copy of the tables per host in shared memory, updated once per step."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable

import keras
import numpy as np
import tensorflow as tf

import tfhybrid
from benchmarks.step.step import model
from tfhybrid.core import native

LEARNING_RATE = 0.05


def build_model(
    config: model.StepConfig, options: argparse.Namespace
) -> tuple[keras.Model, tfhybrid.layers.EmbeddingCollection]:
    """Returns the model of {feature: ids `[batch, 1]`}, an EmbeddingCollection and the tower."""
    table = tfhybrid.TableConfig(
        dim=config.dim,
        placement=tfhybrid.Sharded() if options.sharded else tfhybrid.Replicated(),
        gather_on=options.gather_on,
    )
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


def parser() -> argparse.ArgumentParser:
    """Returns the parser of this side's options."""
    options = argparse.ArgumentParser(description=__doc__)
    model.add_options(options)
    options.add_argument("--exchange", default="leaders", help="how gradients travel between hosts")
    options.add_argument("--wire-dtype", default="float32", help="of gradients between hosts")
    options.add_argument("--dense", default="auto", help="how dense gradients are added up")
    options.add_argument("--sharded", action="store_true", help="each row on one host")
    options.add_argument("--gather-on", default="host", help="where rows become embeddings")
    options.add_argument("--dataset", action="store_true", help="batches come from tf.data")
    options.add_argument("--pass-batches", type=int, default=0, help="of a pass; 0 announces none")
    return options


def feed(ids: np.ndarray) -> dict[str, tf.Tensor]:
    """Returns the keys of a batch by feature."""
    with tf.device("CPU:0"):  # where an input pipeline leaves them
        return {f"feature_{i}": tf.constant(keys[:, None]) for i, keys in enumerate(ids)}


def ahead_of(
    options: argparse.Namespace, collection: tfhybrid.layers.EmbeddingCollection
) -> Callable[[list[model.Batch]], Iterable[model.Batch]]:
    """Returns the function that hands over batches, and announces those to come."""

    def ahead(batches: list[model.Batch]) -> Iterable[model.Batch]:
        data = dataset_of(batches) if options.dataset else batches
        if options.pass_batches == 0:
            return data
        return tfhybrid.data.announce(data, batches=options.pass_batches, layers=collection)

    return ahead


def name_of(options: argparse.Namespace) -> str:
    """Returns the name of this side with these options."""
    way = "sharded" if options.sharded else options.exchange
    way += f", gathered on the {options.gather_on}" if options.gather_on != "host" else ""
    way += ", from a data set" if options.dataset else ""
    if options.pass_batches:
        way += f", {options.pass_batches} batches announced"
    return f"tfhybrid ({way}, {options.wire_dtype}, dense {options.dense})"


def main() -> None:
    """Runs this side on every rank."""
    options = parser().parse_args()
    config = model.config_of(options)
    if options.dense == "horovod":
        os.environ.setdefault("HOROVOD_CYCLE_TIME", "5")
    tfhybrid.init()
    network, collection = build_model(config, options)
    step = make_step(network, options)
    ahead = ahead_of(options, collection)
    model.measure(name_of(options), config, step, feed, ahead, count_fetching)


if __name__ == "__main__":
    main()
