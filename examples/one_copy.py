"""Measures what a large table takes: one copy per host, and a copy in every process.

horovodrun -np 2 python examples/one_copy.py
"""

from __future__ import annotations

import ctypes
import gc
import math
from pathlib import Path
from typing import NamedTuple

import tfhybrid
import keras
import numpy as np
from tfhybrid.distributed import allgather_object

ROWS, DIM = 1_000_000, 32
BATCH = 8_192  # keys per step of a process
MIB = 2**20


class Memory(NamedTuple):
    """Memory of a table on this host, in bytes, with Adam's two moments of each value.

    Attributes:
        processes: Number of processes that train.
        one_copy: Growth of the processes' memory by a table of tfhybrid.
        index: Part of it that finds the rows of keys; a table without keys needs none.
        copies: Growth of the processes' memory by a Keras embedding in each, as with plain Horovod.
    """

    processes: int
    one_copy: int
    index: int
    copies: int


def measure(rows: int = ROWS) -> Memory:
    """Fills a table from all processes, then makes a copy in each; every rank must call it.

    The memory is the sum of the processes' proportional set sizes: a page that n processes share
    counts 1/n in each. It has the room for more rows that a table keeps, too.

    Args:
        rows: Rows of the table. Default one million.
    """
    model, table = large_table()
    fill(
        model, table, BATCH * tfhybrid.size()
    )  # a step's buffers grow now, so that they do not count as the table's
    begun_with, before = table.stats().bytes, total_pss()
    fill(model, table, rows)
    one_copy = total_pss() - before + begun_with
    make_copy(BATCH)
    before = total_pss()
    copy = make_copy(rows)
    copies = total_pss() - before
    del copy
    return Memory(tfhybrid.local_size(), one_copy, table.stats().index_bytes, copies)


def large_table() -> tuple[keras.Model, tfhybrid.Table]:
    """Returns a model of one embedding, and the embedding's table."""
    config = tfhybrid.TableConfig(DIM, optimizer=tfhybrid.optimizers.Adam())
    layer = tfhybrid.layers.Embedding(config, name="large_table")
    inputs = keras.Input((1,), dtype="int64")
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Flatten()(layer(inputs))))
    model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.Adam()), "mse")
    return model, layer.table


def fill(model: keras.Model, table: tfhybrid.Table, rows: int) -> None:
    """Trains every row once, each process its own part, then reads all rows in every process."""
    batches = math.ceil(rows / BATCH / tfhybrid.size()) * tfhybrid.size()
    keys = np.arange(batches * BATCH) % rows  # whole batches for every process
    own = keys[tfhybrid.rank() :: tfhybrid.size(), None]
    labels = np.ones(len(own), np.float32)
    broadcast = tfhybrid.callbacks.BroadcastVariables()
    model.fit(own, labels, BATCH, shuffle=False, verbose=0, callbacks=[broadcast])
    for start in range(0, rows, BATCH):
        table.lookup(keys[start : start + BATCH])


def make_copy(rows: int) -> tuple[keras.layers.Embedding, keras.optimizers.Adam]:
    """Returns an embedding of Keras and the Adam that has its two moments, without a step."""
    layer = keras.layers.Embedding(rows, DIM, embeddings_initializer="zeros")
    layer.build(None)
    adam = keras.optimizers.Adam()
    adam.build(layer.trainable_variables)
    return layer, adam


def total_pss() -> int:
    """Returns the summed proportional set sizes of the processes of this host, in bytes.

    Files, such as TensorFlow's libraries, do not count: a page of theirs counts less while another
    program uses it too.
    """
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # memory that is free already does not count
    allgather_object(None)  # no process measures while another one still works
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    counted = ("Pss_Anon:", "Pss_Shmem:")
    own = sum(1024 * int(line.split()[1]) for line in lines if line.startswith(counted))
    return sum(allgather_object(own))


def report_lines(memory: Memory, rows: int = ROWS, many: int = 8) -> list[tuple[str, str]]:
    """Returns the rows of a report, each a title and a size.

    Args:
        memory: Result of `measure`.
        rows: Rows of the table.
        many: Number of processes for which the last two rows are computed. Default 8.
    """
    one, copies = memory.one_copy / MIB, memory.copies / MIB
    processes = f"{memory.processes} process{'es'[: 2 * (memory.processes > 1)]}"
    return [
        (f"Memory of a table of {rows:,} rows", ""),
        (f"tfhybrid, one copy, {processes}", f"{one:,.0f} MiB"),
        (f"plain Horovod, a copy each, {processes}", f"{copies:,.0f} MiB"),
        (f"tfhybrid, {many} processes (computed)", f"{one:,.0f} MiB"),
        (
            f"plain Horovod, {many} processes (computed)",
            f"{copies / memory.processes * many:,.0f} MiB",
        ),
    ]


def note(memory: Memory) -> str:
    """Returns what a report says about the sizes."""
    return (
        f"Memory is measured, as the sum of the processes' PSS, unless it says computed. Each row "
        f"has {DIM} values and Adam's two moments of each. tfhybrid's also has the index that "
        f"finds the rows of any 64-bit keys, {memory.index / MIB:,.0f} MiB, and room for more rows."
    )


def main() -> None:
    """Measures; rank 0 prints."""
    tfhybrid.init()
    memory = measure()
    if tfhybrid.rank() == 0:
        for title, size in report_lines(memory):
            print(f"{title:44} {size:>10}")
        print(note(memory))


if __name__ == "__main__":
    main()
