"""TFRA 0.8.1: `HvdAllToAllEmbedding`, rows sharded over the ranks, sent by all-to-all.

Runs in the environment that `benchmarks/support/peers/install_tfra` makes. TFRA's layers and its
optimizer wrapper are Keras 2 (tf_keras) inside; the dense tower and its optimizer are the same
Keras 3 as on all other sides.
"""

from __future__ import annotations

import argparse

import horovod.tensorflow as hvd
import keras
import numpy as np
import tensorflow as tf
import tf_keras
from tensorflow_recommenders_addons import dynamic_embedding

from benchmarks.step.step import model

LEARNING_RATE = 0.05


def make_tables(config: model.StepConfig, layout: str) -> list[tf_keras.layers.Layer]:
    """Returns one sharded table per feature, or one for all with the feature in the key."""
    count = config.features if layout == "each" else 1
    rows = config.rows_per_feature * config.features // count
    creator = dynamic_embedding.CuckooHashTableCreator(
        saver=dynamic_embedding.FileSystemSaver(proc_size=hvd.size(), proc_rank=hvd.rank())
    )
    return [
        dynamic_embedding.keras.layers.HvdAllToAllEmbedding(
            mpi_size=hvd.size(),
            embedding_size=config.dim,
            key_dtype=tf.int64,
            value_dtype=tf.float32,
            initializer=tf_keras.initializers.RandomUniform(-0.05, 0.05),
            devices=["CPU:0"],
            init_capacity=2 * rows // hvd.size(),
            kv_creator=creator,
            name=f"table_{position}",
        )
        for position in range(count)
    ]


def make_feed(config: model.StepConfig, layout: str) -> model.Feed:
    """Returns the function that gives the ids the shape which the layout's lookup wants."""
    if layout == "each":
        return lambda ids: [tf.constant(feature[:, None]) for feature in ids]
    prefix = np.arange(config.features, dtype=np.int64)[:, None] << 32
    return lambda ids: [tf.constant((ids + prefix).T)]


def make_step(config: model.StepConfig, layout: str) -> model.Step:
    """Returns the step of (ids per table, labels)."""
    tables = make_tables(config, layout)
    tower = model.build_tower(config)
    weights = tower.trainable_variables
    dense_optimizer = keras.optimizers.Adagrad(LEARNING_RATE)
    dense_optimizer.build(weights)
    table_optimizer = dynamic_embedding.DynamicEmbeddingOptimizer(
        tf_keras.optimizers.legacy.Adagrad(LEARNING_RATE)
    )

    @tf.function(autograph=False)
    def step(ids: list[tf.Tensor], labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            embedded = tf.concat(
                [table(keys) for table, keys in zip(tables, ids, strict=True)], axis=-1
            )
            width = config.features * config.dim
            loss = model.log_loss(labels, tower(tf.reshape(embedded, (-1, width))))
        shadows = [table.shadow for table in tables]
        gradients = tape.gradient(loss, [*[w.value for w in weights], *shadows])
        dense, sparse = gradients[: len(weights)], gradients[len(weights) :]
        dense_optimizer.apply(hvd.grouped_allreduce(dense), weights)
        table_optimizer.apply_gradients(zip(sparse, shadows, strict=True))
        return loss

    return step


def main() -> None:
    """Runs this side on every rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    model.add_options(parser)
    parser.add_argument(
        "--layout", choices=["each", "one"], default="one", help="a table per feature, or one"
    )
    arguments = parser.parse_args()
    config = model.config_of(arguments)
    hvd.init()
    model.share_threads(hvd.local_size())
    step = make_step(config, arguments.layout)
    feed = make_feed(config, arguments.layout)
    name = f"TFRA ({arguments.layout})"
    model.measure(name, config, step, feed)


if __name__ == "__main__":
    main()
