"""tfhybrid: one copy of the table and its Adagrad accumulators per host, in shared memory."""

from __future__ import annotations

import keras
import tensorflow as tf

import tfhybrid
from benchmarks.hosts.memory import footprint


def make_table(name: str, dim: int) -> tuple[tfhybrid.layers.Embedding, footprint.TableUnderTest]:
    """Returns an Embedding layer, whose rows its first updates make, and its training step."""
    layer = tfhybrid.layers.Embedding(tfhybrid.TableConfig(dim=dim), name=name)
    keys = keras.Input((1,), dtype="int64")
    model = keras.Model(keys, layer(keys))
    optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.Adagrad(0.05))
    optimizer.build(model.trainable_variables)

    @tf.function
    def train(keys: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(keys, training=True))
        weights = model.trainable_variables
        gradients = tape.gradient(loss, [weight.value for weight in weights])
        optimizer.apply(gradients, weights)

    lookup = tf.function(lambda keys: model(keys, training=False))
    steps = footprint.TableUnderTest(
        train=lambda keys: train(tf.constant(keys[:, None])),
        lookup=lambda keys: lookup(tf.constant(keys[:, None])),
    )
    return layer, steps


def main() -> None:
    """Runs this side on every rank."""
    config = footprint.parse_config(__doc__)
    tfhybrid.init()
    ranks = (tfhybrid.rank(), tfhybrid.size())
    layers = {}

    def make(name: str, rows: int) -> footprint.TableUnderTest:
        layers[name], steps = make_table(name, config.dim)
        return steps

    def total(value: int) -> int:
        return sum(tfhybrid.distributed.allgather_object(value))

    result = footprint.measure(config, ranks, make, total)
    (table,) = layers["items"].tables.values()
    stats = table.stats()
    result |= {
        "payload_bytes": config.payload_bytes,
        "rows": stats.rows,
        "table_bytes": stats.bytes,
        "embedding_bytes": stats.embedding_bytes,
        "state_bytes": stats.state_bytes,
        "index_bytes": stats.index_bytes,
        "index_bytes_per_key": round(stats.index_bytes / stats.rows, 2),
        "growth_to_table": round(result["pss_growth"] / stats.bytes, 3),
    }
    footprint.report("tfhybrid", *ranks, result)


if __name__ == "__main__":
    main()
