"""How much memory a sharded table takes while it is saved, restored and exported.

    share_memory.py DIRECTORY

Each rank is a host. What it says is bytes at the peak of each phase beyond those before it, shared
memory included except while it exports; and those of the whole table.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tfhybrid import checkpoint, distributed
from tfhybrid.data import Position

ROWS, DIM, BATCH = 2_000_000, 32, 40_000


def grown(work: Callable[[], object], kinds: str = "Anon|Shmem") -> int:
    """Returns by how many bytes the process was larger at its peak than before.

    Pages of files are not counted: the kernel takes them back when memory is short.
    """
    sizes, ended = [size(kinds)], threading.Event()

    def watch() -> None:
        while not ended.wait(0.005):
            sizes.append(size(kinds))

    watching = threading.Thread(target=watch)
    watching.start()
    work()
    ended.set()
    watching.join()
    return max(sizes) - sizes[0]


def size(kinds: str) -> int:
    """Returns the bytes of this process's memory of some kinds that are in use."""
    status = Path("/proc/self/status").read_text()
    found = re.findall(rf"Rss(?:{kinds}):\s+(\d+)", status)
    return sum(int(kilobytes) << 10 for kilobytes in found)


def built() -> tuple[keras.Model, tfhybrid.store.Table]:
    tfhybrid.init()
    config = tfhybrid.TableConfig(DIM, optimizer="adagrad", placement=tfhybrid.Sharded())
    inputs = keras.Input((1,), dtype="int64")
    layer = tfhybrid.layers.Embedding(config, name="item")
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Flatten()(layer(inputs))))
    model.compile(tfhybrid.DistributedOptimizer("sgd"), "mse")
    model.optimizer.build(model.trainable_variables)
    return model, layer.table


def check_export(folder: Path, table: tfhybrid.store.Table) -> None:
    """What stock TensorFlow loads is the rows of all hosts."""
    stock = tf.saved_model.load(str(folder)).tables["item"]
    np.testing.assert_array_equal(stock.keys, np.arange(ROWS))
    some = np.arange(0, ROWS, 997)
    np.testing.assert_array_equal(stock.vectors.numpy()[some], table.lookup(some))


def main(directory: Path) -> None:
    model, table = built()
    keys = np.arange(tfhybrid.rank(), ROWS, tfhybrid.size())[:, None]
    model.fit(keys, np.ones(len(keys)), batch_size=BATCH, shuffle=False, verbose=0)
    total = sum(shard.rows for shard in table.owners()) * (8 + 4 * DIM * 2)
    own = table.stats().bytes
    saved = grown(lambda: checkpoint.save(model, directory, Position(1, 0)))
    folder = directory.parent / "exported"
    # Its rows in shared memory, which it reads, are there anyway.
    exported = grown(lambda: tfhybrid.export.saved_model(model, folder), "Anon")
    if tfhybrid.rank() == 1:
        check_export(folder / "1", table)
    distributed.barrier()
    tfhybrid.shutdown()
    keras.backend.clear_session()
    model, table = built()
    restored = grown(lambda: checkpoint.restore(model, directory))
    assert table.all_rows == ROWS
    rank = tfhybrid.rank()
    sys.stdout.write(f"{rank=} {total=} {own=} {saved=} {restored=} {exported=}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
