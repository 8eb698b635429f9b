"""Plain Horovod: `tf.Variable`, `tf.nn.embedding_lookup`, `hvd.allreduce` of IndexedSlices.

Every rank holds a full copy of the tables.
"""

from __future__ import annotations

import argparse

import horovod.tensorflow as hvd
import keras
import numpy as np
import tensorflow as tf
import tf_keras

from benchmarks.step.step import model

LEARNING_RATE = 0.05


def make_tables(config: model.StepConfig, layout: str) -> list[tf.Variable]:
    """Returns one table per feature, or one for all features with their ids side by side."""
    rows = config.rows_per_feature
    shapes = [rows] * config.features if layout == "each" else [rows * config.features]
    return [
        tf.Variable(tf.random.uniform((count, config.dim), -0.05, 0.05), name=f"table_{position}")
        for position, count in enumerate(shapes)
    ]


def make_feed(config: model.StepConfig, layout: str) -> model.Feed:
    """Returns the function that gives the ids the shape which the layout's lookup wants."""
    if layout == "each":
        return lambda ids: [tf.constant(feature) for feature in ids]
    offsets = np.arange(config.features)[:, None] * config.rows_per_feature
    return lambda ids: [tf.constant((ids + offsets).T)]


def make_step(config: model.StepConfig, layout: str, adagrad: str) -> model.Step:
    """Returns the step of (ids per table, labels)."""
    tables = make_tables(config, layout)
    tower = model.build_tower(config)
    weights = tower.trainable_variables
    dense_optimizer = keras.optimizers.Adagrad(LEARNING_RATE)
    dense_optimizer.build(weights)
    if adagrad == "keras3":
        table_optimizer = keras.optimizers.Adagrad(LEARNING_RATE)
        table_optimizer.build(tables)
    else:
        table_optimizer = tf_keras.optimizers.legacy.Adagrad(LEARNING_RATE)

    @tf.function(autograph=False)
    def step(ids: list[tf.Tensor], labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            embedded = [
                tf.nn.embedding_lookup(table, keys) for table, keys in zip(tables, ids, strict=True)
            ]
            embedded = tf.concat(embedded, axis=-1)
            width = config.features * config.dim
            loss = model.log_loss(labels, tower(tf.reshape(embedded, (-1, width))))
        gradients = tape.gradient(loss, [*[w.value for w in weights], *tables])
        dense, sparse = gradients[: len(weights)], gradients[len(weights) :]
        dense_optimizer.apply(hvd.grouped_allreduce(dense), weights)
        sparse = [hvd.allreduce(slices) for slices in sparse]
        if adagrad == "keras3":
            table_optimizer.apply(sparse, tables)
        else:
            table_optimizer.apply_gradients(zip(sparse, tables, strict=True))
        return loss

    return step


def main() -> None:
    """Runs this side on every rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    model.add_options(parser)
    parser.add_argument(
        "--layout", choices=["each", "one"], default="each", help="a table per feature, or one"
    )
    parser.add_argument(
        "--adagrad",
        choices=["keras3", "keras2"],
        default="keras2",
        help="Keras 3's updates the whole table; Keras 2's runs TensorFlow's sparse kernel",
    )
    arguments = parser.parse_args()
    config = model.config_of(arguments)
    hvd.init()
    model.share_threads(hvd.local_size())
    step = make_step(config, arguments.layout, arguments.adagrad)
    name = f"plain Horovod ({arguments.adagrad}, {arguments.layout})"
    feed = make_feed(config, arguments.layout)
    model.measure(name, config, step, feed)


if __name__ == "__main__":
    main()
