"""A table in stock TensorFlow: sorted keys, their vectors, binary search."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfhybrid.export.copied_table import CopiedTable
from tfhybrid.export.sorted_keys import SortedKeys
from tfhybrid.ops.initial_values import initial_values, table_seed

# The names of InitializerKind of the core, by number.
_KINDS = ("zeros", "constant", "uniform", "normal", "truncated_normal")

# The vectors that are read from the table at once.
_BLOCK_BYTES = 8 << 20


class RowSlice(NamedTuple):
    """Some rows of a table: the keys and vectors from row `first` on."""

    first: int
    keys: np.ndarray
    vectors: np.ndarray


class StockTable(tf.Module):
    """A table in two variables, and its lookup in built-in operations.

    The variables of this object have one row, so that a table of any size can be traced and saved.
    `slices` yields the rows that belong into them.

    Every int64 is a valid key, so none can mark an empty slot of a hash table. Keys are sorted and
    found by binary search.

    Args:
        table: The table; no step may run while it is exported.
        sorted_keys: The keys of those rows that are exported.
        mark: What the variable of keys contains in place of keys, by which it is found in a
            checkpoint.
        unseen: What a key without a row reads: `"initial"`, its initial value as in training, or
            `"zeros"`.
    """

    def __init__(
        self,
        table: CopiedTable,
        sorted_keys: SortedKeys,
        *,
        mark: int = 0,
        unseen: str = "initial",
    ) -> None:
        super().__init__()
        self.dim = table.dim
        self.rows = sorted_keys.count
        self._table = table
        self._sorted_keys = sorted_keys
        self._unseen = unseen
        kind, self._a, self._b = table.config.initializer.native
        self._kind = _KINDS[kind]
        self._seed = table_seed(table.seed, table.name)
        self._decay = table.decay
        # In host memory, where the table lies too.
        with tf.device("CPU:0"):
            self.keys = tf.Variable(
                tf.constant([mark], tf.int64), trainable=False, name="keys", shape=[None]
            )
            self.vectors = tf.Variable(
                tf.zeros([1, self.dim]), trainable=False, name="vectors", shape=[None, self.dim]
            )

    @property
    def bytes(self) -> int:
        """The size of all keys and vectors."""
        return self.rows * (8 + 4 * self.dim)

    def slices(self) -> Iterator[RowSlice]:
        """Yields all rows in the order of their keys; one slice without rows if there are none."""
        first = 0
        for keys in self._sorted_keys.blocks(max(1, _BLOCK_BYTES // (4 * self.dim))):
            yield RowSlice(first, keys, self._table.lookup(keys))
            first += len(keys)
        if first == 0:
            yield RowSlice(0, np.empty(0, np.int64), np.empty((0, self.dim), np.float32))

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
