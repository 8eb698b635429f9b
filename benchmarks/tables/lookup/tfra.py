"""TFRA 0.8.1: a dynamic embedding on a cuckoo table on the CPU, in an environment of its own."""

from __future__ import annotations

import tensorflow as tf
from tensorflow_recommenders_addons import dynamic_embedding

from benchmarks.tables.lookup import turns, workload


def make_operations(table: dynamic_embedding.Variable) -> dict[str, turns.Operation]:
    """Returns lookup and upsert.

    There is no update: TFRA's optimizers work on what a whole training step has looked up.
    """
    values = tf.constant(workload.gradients())

    @tf.function(autograph=False)
    def lookup(keys: tf.Tensor) -> tf.Tensor:
        return table.lookup(keys)

    @tf.function(autograph=False)
    def create(keys: tf.Tensor) -> tf.Tensor:
        with tf.control_dependencies([table.upsert(keys, values)]):
            return table.lookup(keys[:1])

    return {"lookup": lookup, "create": create}


def main() -> None:
    """Builds the table, with room for twice its rows, and serves."""
    rows = turns.parse_rows(__doc__)
    table = dynamic_embedding.get_variable(
        "item",
        key_dtype=tf.int64,
        value_dtype=tf.float32,
        dim=workload.DIM,
        devices=["/CPU:0"],
        init_size=2 * rows,
    )
    operations = make_operations(table)
    for keys in workload.fill(rows):
        operations["create"](tf.constant(keys))
    turns.serve(rows, operations, lambda: int(table.size()))


if __name__ == "__main__":
    main()
