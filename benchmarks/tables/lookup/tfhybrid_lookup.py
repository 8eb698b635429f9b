"""tfhybrid: an `Embedding` layer and the sparse half of `DistributedOptimizer`, on one rank."""

from __future__ import annotations

import keras
import tensorflow as tf

import tfhybrid
from benchmarks.tables.lookup import turns, workload
from tfhybrid.layers import table_lookup
from tfhybrid.ops.lookup import FeatureKeys


def make_operations(
    layer: tfhybrid.layers.Embedding, **options: float
) -> dict[str, turns.Operation]:
    """Returns the operations on a layer's table; an update of a key that has no row creates it.

    Args:
        layer: The layer, built.
        **options: Of Adagrad, beside those that all sides have.
    """
    adagrad = keras.optimizers.Adagrad(
        workload.LEARNING_RATE, workload.INITIAL_ACCUMULATOR, workload.EPSILON, **options
    )
    optimizer = tfhybrid.DistributedOptimizer(adagrad)
    optimizer.build(layer.trainable_variables)
    gradients = tf.constant(workload.gradients())
    # Its first axis says of how many samples the gradients are.
    shape = tf.constant([workload.KEYS, workload.DIM], tf.int64)
    splits = tf.constant(workload.bag_splits())
    (proxy,) = layer.trainable_variables

    @tf.function(autograph=False)
    def lookup(keys: tf.Tensor) -> tf.Tensor:
        return layer(keys, training=False)

    @tf.function(autograph=False)
    def update(keys: tf.Tensor) -> tf.Tensor:
        slices = tf.IndexedSlices(gradients, keys, shape)
        optimizer.apply([slices], layer.trainable_variables)
        # An update may still be under way when its op returns; a lookup waits for it.
        return layer(keys[:1], training=False)

    @tf.function(autograph=False)
    def bags(keys: tf.Tensor) -> tf.Tensor:
        feature = FeatureKeys(keys, splits=splits, combiner="mean")
        return table_lookup.lookup([proxy], [feature])[0]

    return {
        "lookup": lookup,
        "update": update,
        "create": update,
        "bags": bags,
        "bag_gradients": turns.with_gradient(bags, proxy),
    }


def main() -> None:
    """Builds the table by training every key once, and serves."""
    rows = turns.parse_rows(__doc__)
    tfhybrid.init()
    layer = tfhybrid.layers.Embedding(tfhybrid.TableConfig(dim=workload.DIM), name="item")
    layer.build((workload.KEYS,))
    operations = make_operations(layer)
    for keys in workload.fill(rows):
        operations["create"](tf.constant(keys))
    turns.serve(rows, operations, lambda: layer.table.stats().rows)


if __name__ == "__main__":
    main()
