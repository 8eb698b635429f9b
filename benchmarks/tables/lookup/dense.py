"""A dense `tf.Variable`: TensorFlow's own gather and sparse Adagrad kernel, rows addressed by key.

It has no index and makes no rows: a floor, not a competitor.
"""

from __future__ import annotations

import tensorflow as tf

from benchmarks.tables.lookup import turns, workload


def make_operations(rows: int) -> dict[str, turns.Operation]:
    """Returns the operations on a variable `[rows, DIM]` and its accumulators."""
    shape = (rows, workload.DIM)
    # Drawn eagerly, the values would leave twice their size behind in the process.
    draw = tf.function(lambda: tf.random.uniform(shape, -0.05, 0.05), autograph=False)
    table = tf.Variable(draw())
    accumulator = tf.Variable(tf.fill(shape, workload.INITIAL_ACCUMULATOR))
    gradients = tf.constant(workload.gradients())
    splits = tf.constant(workload.bag_splits())

    @tf.function(autograph=False)
    def lookup(keys: tf.Tensor) -> tf.Tensor:
        return tf.nn.embedding_lookup(table, keys)

    @tf.function(autograph=False)
    def update(keys: tf.Tensor) -> tf.Tensor:
        tf.raw_ops.ResourceSparseApplyAdagradV2(
            var=table.handle,
            accum=accumulator.handle,
            lr=workload.LEARNING_RATE,
            epsilon=workload.EPSILON,
            grad=gradients,
            indices=keys,
        )
        return tf.nn.embedding_lookup(table, keys[:1])

    @tf.function(autograph=False)
    def bags(keys: tf.Tensor) -> tf.Tensor:
        ragged = tf.RaggedTensor.from_row_splits(keys, splits, validate=False)
        return tf.nn.embedding_lookup_sparse(table, ragged, None, combiner="mean")

    return {
        "lookup": lookup,
        "update": update,
        "bags": bags,
        "bag_gradients": turns.with_gradient(bags, table),
    }


def main() -> None:
    """Builds the table and serves."""
    rows = turns.parse_rows(__doc__)
    operations = make_operations(rows)
    turns.serve(rows, operations, lambda: rows)


if __name__ == "__main__":
    main()
