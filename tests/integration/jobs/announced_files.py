"""A sharded table in files whose keys are announced trains the bits of one in memory, by `fit`."""

from __future__ import annotations

import sys
import tempfile

import numpy as np
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.integration.jobs.sharded import of_all_hosts

KEYS, LENGTH, BATCH, STEPS, DIM = 6000, 4, 16, 150, 8
# Of the about 3,000 rows of a host, and more than twice what ranks announce at a time.
CACHED = 1400
SLOT_BYTES = 16 + 2 * 4 * DIM  # with Adagrad


def model_of(storage: tfhybrid.FileTier | None) -> keras.Model:
    """Returns a compiled model of one table."""
    table = tfhybrid.TableConfig(
        DIM,
        tfhybrid.initializers.Uniform(),
        tfhybrid.optimizers.Adagrad(0.1),
        placement=tfhybrid.Sharded(),
        storage=storage,
    )
    inputs = keras.Input((LENGTH,), dtype="int64", name="user")
    embeddings = tfhybrid.layers.EmbeddingCollection({"user": table})({"user": inputs})["user"]
    weights = keras.initializers.GlorotUniform(7)
    outputs = keras.layers.Dense(1, kernel_initializer=weights)(keras.layers.Flatten()(embeddings))
    model = keras.Model({"user": inputs}, outputs)
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.Adam(1e-3)), loss)
    return model


def trained(storage: tfhybrid.FileTier | None, batches: int) -> tuple[dict, np.ndarray]:
    """Returns the digest of the table and some of its rows.

    Args:
        storage: Where its rows lie.
        batches: Of a pass; with 0 nothing is announced.
    """
    tfhybrid.init(seed=3)
    model = model_of(storage)
    (collection,) = (layer for layer in model.layers if hasattr(layer, "tables"))
    table = collection.tables["user"]
    keys = np.random.default_rng(tfhybrid.rank()).integers(0, KEYS, (STEPS * BATCH, LENGTH))
    labels = (keys.sum(1) % 2).astype(np.float32)
    data = tf.data.Dataset.from_tensor_slices(({"user": keys}, labels)).batch(BATCH)
    if batches:
        data = tfhybrid.data.announce(data, batches=batches, layers=collection)
    model.fit(data, verbose=0, callbacks=[tfhybrid.callbacks.BroadcastVariables()])
    rows = table.lookup(np.arange(0, KEYS, 3))
    if storage is not None:
        stats = table.stats()
        assert stats.written_rows > CACHED, stats  # the cache has no room for all
        # Without passes there are as many of both.
        assert stats.cache_hits > 2 * stats.cache_misses, stats
    digest = of_all_hosts(collection.tables)
    tfhybrid.shutdown()
    keras.backend.clear_session()
    return digest, rows


def main() -> None:
    digest, rows = trained(None, 0)
    files = tfhybrid.FileTier(tempfile.gettempdir(), cache_bytes=CACHED * SLOT_BYTES)
    for batches in (1, 2):
        found, others = trained(files, batches)
        assert found == digest, batches
        np.testing.assert_array_equal(others, rows)
    sys.stdout.write("exact on this rank\n")


if __name__ == "__main__":
    main()
