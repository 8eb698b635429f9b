"""A table in stock TensorFlow: sorted keys, their vectors, binary search."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tfhybrid.errors import ExportError
from tfhybrid.job import current_job
from tfhybrid.ops.initial_values import initial_values, table_seed
from tfhybrid.store import Table

# The names of InitializerKind of the core, by number.
_KINDS = ("zeros", "constant", "uniform", "normal", "truncated_normal")

# A block of vectors is held in memory while it is copied.
_BLOCK_BYTES = 64 << 20

# On the CPU `tf.searchsorted` counts in 32 bits, whatever its output type.
_MOST_ROWS = 2**31 - 1


class StockTable(tf.Module):
    """A copy of a table in two variables, with a lookup by built-in operations.

    Every int64 is a valid key, so none can mark an empty slot of a hash table. Keys are sorted and
    found by binary search.

    Args:
        table: The table; no step may run while it is copied.
        unseen: What a key without a row reads: `"initial"`, its initial value as in training, or
            `"zeros"`.
        min_norm: Rows whose vector has a smaller Euclidean norm are left out.

    Raises:
        ExportError: The table has more rows than `tf.searchsorted` can count.
    """

    def __init__(self, table: Table, *, unseen: str = "initial", min_norm: float = 0.0) -> None:
        super().__init__()
        self.dim = table.dim
        self._unseen = unseen
        kind, self._a, self._b = table.config.initializer.native
        self._kind = _KINDS[kind]
        self._seed = table_seed(current_job().seed, table.name)
        self._decay = table.decay
        keys = _sorted_keys(table, min_norm)
        self.rows = len(keys)
        # In host memory, like the table.
        with tf.device("CPU:0"):
            self.keys = tf.Variable(keys, trainable=False, name="keys")
            self.vectors = tf.Variable(
                tf.zeros([self.rows, self.dim]), trainable=False, name="vectors"
            )
            self._copy_vectors(table, keys)

    def lookup(self, keys: tf.Tensor) -> tf.Tensor:
        """Returns the embeddings of keys.

        Args:
            keys: int64, any shape.

        Returns:
            float32 `keys.shape + [dim]`.
        """
        flat = tf.reshape(keys, [-1])
        embeddings = tf.reshape(self._lookup(flat), tf.concat([tf.shape(keys), [self.dim]], axis=0))
        embeddings.set_shape(keys.shape.concatenate([self.dim]))
        return embeddings

    def _copy_vectors(self, table: Table, keys: np.ndarray) -> None:
        """Reads the vectors in the order of the keys, straight into the variable."""
        block_rows = max(1, _BLOCK_BYTES // (4 * self.dim))
        for first in range(0, self.rows, block_rows):
            block = table.lookup(keys[first : first + block_rows])
            # `vectors[first:last].assign(block)` would copy the whole variable for each block.
            tf.raw_ops.ResourceStridedSliceAssign(
                ref=self.vectors.handle,
                begin=[first],
                end=[first + len(block)],
                strides=[1],
                value=block,
            )

    def _lookup(self, keys: tf.Tensor) -> tf.Tensor:
        """`[n]` -> `[n, dim]`."""
        if self.rows == 0:
            return self._values_of_unseen(keys)
        positions = tf.searchsorted(self.keys, keys, out_type=tf.int64)
        positions = tf.minimum(positions, self.rows - 1)
        is_held = tf.equal(tf.gather(self.keys, positions), keys)
        vectors = tf.gather(self.vectors, positions)
        if self._unseen == "zeros":
            return tf.where(is_held[:, tf.newaxis], vectors, 0.0)

        def with_initial_values() -> tf.Tensor:
            unseen = tf.where(tf.logical_not(is_held))
            values = self._values_of_unseen(tf.gather_nd(keys, unseen))
            return tf.tensor_scatter_nd_update(vectors, unseen, values)

        # Initial values are the most expensive part, so compute them only if a key needs one.
        return tf.cond(tf.reduce_all(is_held), lambda: vectors, with_initial_values)

    def _values_of_unseen(self, keys: tf.Tensor) -> tf.Tensor:
        kind = "zeros" if self._unseen == "zeros" else self._kind
        values = initial_values(kind, self._a, self._b, self._seed, keys, self.dim)
        return values if self._decay == 1.0 else values * self._decay


def _sorted_keys(table: Table, min_norm: float) -> np.ndarray:
    """Returns the keys of all rows that are exported, int64 `[n]`."""
    keys = np.empty(table.all_rows, np.int64)
    count = 0
    for block in table.blocks():
        kept = block.keys
        if min_norm > 0:
            # Rows with NaN are exported too, so that the exported model equals the trained one.
            kept = kept[~(np.linalg.norm(block.embeddings, axis=1) < min_norm)]
        keys[count : count + len(kept)] = kept
        count += len(kept)
    if count > _MOST_ROWS:
        raise ExportError(
            f"A table of an exported model can have {_MOST_ROWS:,} rows. Received: {count:,} in "
            f"'{table.name}'; a larger min_norm leaves out more rows"
        )
    keys = keys[:count]
    keys.sort()
    return keys
