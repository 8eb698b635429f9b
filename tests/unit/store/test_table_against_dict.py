"""A table does what a dict of NumPy rows does, whatever is done with it and in whatever order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tensorflow import keras

import tfhybrid
from tests.support.reference.mix64 import mix64
from tfhybrid.core import native
from tfhybrid.store import RowBlock

DIM = 3
RATE = np.float32(0.05)
ACCUMULATOR = np.float32(0.1)
EPSILON = np.float32(1e-7)
INT64 = np.iinfo(np.int64)
UNIFORM = 2  # the number of the initializer

# Few enough that they meet again, and all that is odd about an int64.
KEYS = st.one_of(
    st.sampled_from([0, -1, INT64.min, INT64.max, INT64.min + 1, INT64.max - 1]),
    st.integers(-8, 8),
    st.integers(INT64.min, INT64.max),
)
BATCHES = st.lists(KEYS, max_size=12)
SEEDS = st.integers(0, 2**32 - 1)


class DictTable:
    """What a table with Adagrad is to hold: `[embedding, accumulator]` by key, oldest first."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rows: dict[int, np.ndarray] = {}

    def initial(self, key: int) -> np.ndarray:
        keys = np.array([key], np.int64)
        embedding = native.initial_rows(UNIFORM, -0.05, 0.05, self.seed, keys, DIM)[0]
        return np.stack([embedding, np.full(DIM, ACCUMULATOR)])

    def lookup(self, keys: list[int]) -> np.ndarray:
        rows = [self.rows[key] if key in self.rows else self.initial(key) for key in keys]
        return np.array([row[0] for row in rows], np.float32).reshape(-1, DIM)

    def write(self, block: RowBlock) -> None:
        states = np.full_like(block.embeddings, ACCUMULATOR)
        if block.states is not None:
            states = block.states[:, 0]
        for key, *row in zip(block.keys.tolist(), block.embeddings, states, strict=True):
            self.rows[key] = np.stack(row)

    def update(self, keys: list[int], gradients: np.ndarray) -> None:
        sums: dict[int, np.ndarray] = {}
        for key, gradient in zip(keys, gradients, strict=True):
            sums[key] = sums[key] + gradient if key in sums else gradient
        for key, gradient in sums.items():
            embedding, accumulator = self.rows.setdefault(key, self.initial(key))
            accumulator += gradient * gradient
            embedding -= RATE * gradient / np.sqrt(accumulator + EPSILON)

    def remove(self, keys: list[int]) -> None:
        """From the last row to the first; the last of all takes the place of each."""
        order = list(self.rows)
        for number in sorted({order.index(key) for key in keys if key in order}, reverse=True):
            last = order.pop()
            if number < len(order):
                order[number] = last
        self.rows = {key: self.rows[key] for key in order}

    def digest(self) -> int:
        """`custom_ops/core/store/table_digest.cc`."""
        total = 0
        for key, row in self.rows.items():
            number = mix64((key + 1) % 2**64)
            for bits in row.view(np.uint32).ravel().tolist():
                number = (mix64(number ^ bits) + 0x9E3779B97F4A7C15) % 2**64
            total += number
        return total % 2**64


class TableAgainstDict(RuleBasedStateMachine):
    """Does the same with both."""

    @initialize()
    def start(self) -> None:
        tfhybrid.init()
        layer = tfhybrid.layers.Embedding(tfhybrid.TableConfig(DIM), name="item")
        layer.build()
        self.proxies = layer.trainable_variables
        self.optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.Adagrad(float(RATE)))
        self.optimizer.build(self.proxies)
        self.table = layer.table
        self.model = DictTable(native.table_seed(0, "item"))
        self.updates = 0

    def teardown(self) -> None:
        tfhybrid.shutdown()

    @rule(keys=BATCHES, seed=SEEDS, fresh=st.booleans())
    def write(self, keys: list[int], seed: int, fresh: bool) -> None:
        random = np.random.default_rng(seed)
        rows = random.normal(size=(2, len(keys), DIM)).astype(np.float32)
        states = None if fresh else np.abs(rows[1])[:, np.newaxis]
        block = RowBlock(np.array(keys, np.int64), rows[0], states)
        self.table.writer.write_rows(block)
        self.model.write(block)

    @rule(keys=BATCHES, seed=SEEDS)
    def update(self, keys: list[int], seed: int) -> None:
        random = np.random.default_rng(seed)
        gradients = random.normal(size=(len(keys), DIM)).astype(np.float32)
        slices = tf.IndexedSlices(tf.constant(gradients), tf.constant(keys, tf.int64))
        self.optimizer.apply_gradients(zip([slices], self.proxies, strict=True))
        self.model.update(keys, gradients)
        self.updates += 1

    @rule(seed=SEEDS)
    def grow(self, seed: int) -> None:
        """More rows than the first chunks and the first index hold."""
        random = np.random.default_rng(seed)
        keys = random.integers(-300, 300, 150)
        block = RowBlock(keys, random.normal(size=(150, DIM)).astype(np.float32), None)
        self.table.writer.write_rows(block)
        self.model.write(block)

    @rule(keys=BATCHES)
    def lookup(self, keys: list[int]) -> None:
        found = self.table.lookup(np.array(keys, np.int64))
        np.testing.assert_array_equal(found, self.model.lookup(keys))

    @rule(keys=BATCHES)
    def read(self, keys: list[int]) -> None:
        found = self.table.read(np.array(keys, np.int64), states=True)
        assert found.keys.tolist() == [key for key in keys if key in self.model.rows]
        for key, row in zip(found.keys.tolist(), _rows([found]), strict=True):
            np.testing.assert_array_equal(row, self.model.rows[key])

    @rule(keys=BATCHES)
    def remove(self, keys: list[int]) -> None:
        self.table.writer.remove_keys(np.array(keys, np.int64))
        self.model.remove(keys)

    @rule(share=st.floats(0, 1), seed=SEEDS)
    def remove_many(self, share: float, seed: int) -> None:
        random = np.random.default_rng(seed)
        keys = [key for key in self.model.rows if random.random() < share]
        self.table.writer.remove_keys(np.array(keys, np.int64))
        self.model.remove(keys)

    @rule()
    def clear(self) -> None:
        self.table.writer.clear()
        self.model.rows.clear()

    @rule(block_rows=st.integers(1, 50))
    def read_all(self, block_rows: int) -> None:
        blocks = list(self.table.blocks(block_rows, states=True))
        keys = [key for block in blocks for key in block.keys.tolist()]
        assert keys == list(self.model.rows)
        for key, row in zip(keys, _rows(blocks), strict=True):
            np.testing.assert_array_equal(row, self.model.rows[key])

    @rule()
    def digest(self) -> None:
        assert self.table.digest() == self.model.digest()

    @invariant()
    def counts_agree(self) -> None:
        stats = self.table.stats()
        assert (stats.rows, stats.version) == (len(self.model.rows), self.updates)
        assert stats.load_factor <= 0.75


def _rows(blocks: list[RowBlock]) -> Iterator[np.ndarray]:
    for block in blocks:
        yield from np.stack([block.embeddings, block.states[:, 0]], axis=1)


TestTableAgainstDict = TableAgainstDict.TestCase
TestTableAgainstDict.settings = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
