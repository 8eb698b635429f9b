"""Table in stock TensorFlow: sorted keys, their vectors, binary search."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfhybrid.export.copied_table import CopiedTable
from tfhybrid.export.sorted_keys import SortedKeys
from tfhybrid.ops.initial_values import initial_values, table_seed

# Names of the core's InitializerKind, by number.
_KINDS = ("zeros", "constant", "uniform", "normal", "truncated_normal")

# Size of the vectors that are read from the table at once.
_BLOCK_BYTES = 8 << 20


class RowSlice(NamedTuple):
    """Consecutive rows of a table: the keys and vectors from row `first` on."""

    first: int
    keys: np.ndarray
    vectors: np.ndarray


class StockTable(tf.Module):
    """Copy of a table in two variables, with a lookup in built-in operations.

    The variables of this object have one row, so that a table of any size can be traced and saved.
    `slices` yields the rows to write to them afterwards.

    Every int64 is a valid key, so none can mark an empty slot of a hash table. Therefore keys are
    sorted and looked up by binary search.

    Args:
        table: Table to copy. No step may run while it is exported.
        sorted_keys: Keys of the rows to export; must be open until they are written.
        mark: Number that the variable of keys contains in place of keys, to find it in a
            checkpoint. Default 0.
        unseen: Embedding of a key without a row: `"zeros"`, or `"initial"`, its initial value as in
            training. Default: `None`, that of the table.

    Attributes:
        dim: Number of floats in an embedding.
        rows: Number of rows to export.
    """

    def __init__(
        self,
        table: CopiedTable,
        sorted_keys: SortedKeys,
        *,
        mark: int = 0,
        unseen: str | None = None,
    ) -> None:
        super().__init__()
        self.dim = table.dim
        self.rows = sorted_keys.count
        self._table = table
        self._sorted_keys = sorted_keys
        self._unseen = unseen or table.unseen
        kind, self._a, self._b = table.config.initializer.native
        self._kind = _KINDS[kind]
        self._seed = table_seed(table.seed, table.name)
        self._decay = table.decay
        # In host memory, like the original table.
        with tf.device("CPU:0"):
            self.keys = tf.Variable(
                tf.constant([mark], tf.int64), trainable=False, name="keys", shape=[None]
            )
            self.vectors = tf.Variable(
                tf.zeros([1, self.dim]), trainable=False, name="vectors", shape=[None, self.dim]
            )

    @property
    def bytes(self) -> int:
        """Size of all keys and vectors, in bytes."""
        return self.rows * (8 + 4 * self.dim)

    def slices(self) -> Iterator[RowSlice]:
        """Yields all rows in slices, in ascending order of keys; one empty slice without rows."""
        first = 0
        for keys in self._sorted_keys.blocks(max(1, _BLOCK_BYTES // (4 * self.dim))):
            yield RowSlice(first, keys, self._table.lookup(keys))
            first += len(keys)
        if first == 0:
            yield RowSlice(0, np.empty(0, np.int64), np.empty((0, self.dim), np.float32))

    def lookup(self, keys: tf.Tensor) -> tf.Tensor:
        """Returns the embeddings of keys; built-in operations, for use in a graph.

        Args:
            keys: Keys, int64, any shape.

        Returns:
            float32 `keys.shape + [dim]`.
        """
        flat = tf.reshape(keys, [-1])
        embeddings = tf.reshape(self._lookup(flat), tf.concat([tf.shape(keys), [self.dim]], axis=0))
        embeddings.set_shape(keys.shape.concatenate([self.dim]))
        return embeddings

    def _lookup(self, keys: tf.Tensor) -> tf.Tensor:
        """Returns the embeddings `[n, dim]` of keys `[n]`."""
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
