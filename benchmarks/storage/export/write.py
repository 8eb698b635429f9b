"""The exporting side: fills the tables and writes the SavedModel."""

from __future__ import annotations

import time

import keras
import numpy as np

import tfhybrid
from benchmarks.storage.export import workload as work
from benchmarks.storage.export.peak_growth import PeakGrowth
from tfhybrid import export
from tfhybrid.store import RowBlock

BLOCK = 65_536


def make_model(workload: work.Workload) -> keras.Model:
    """Returns a 256-128 tower over all embeddings side by side."""
    names = work.names(workload)
    table = tfhybrid.TableConfig(dim=workload.dim)
    inputs = {name: keras.Input((1,), dtype="int64", name=name) for name in names}
    layer = tfhybrid.layers.EmbeddingCollection(
        dict.fromkeys(names, table), concatenate=True, name="embeddings"
    )
    x = layer(inputs)
    for units in (256, 128):
        x = keras.layers.Dense(units, activation="relu")(x)
    return keras.Model(inputs, keras.layers.Dense(1)(x))


def fill(model: keras.Model, workload: work.Workload) -> None:
    """Gives every table its rows, in random order of their keys."""
    rng = np.random.default_rng(0)
    for number, table in enumerate(model.get_layer("embeddings").tables.values()):
        for first in range(0, workload.rows_each, BLOCK):
            ids = np.arange(first, min(first + BLOCK, workload.rows_each))
            vectors = rng.uniform(-0.05, 0.05, (len(ids), workload.dim)).astype(np.float32)
            table.writer.write_rows(RowBlock(work.keys(number, ids), vectors, None))


def main() -> None:
    """Writes two versions: 1 gives unseen keys their initial values, 2 gives them zeros."""
    workload, folder = work.parse(__doc__)
    tfhybrid.init()
    model = make_model(workload)
    fill(model, workload)
    growth = PeakGrowth()
    started = time.monotonic()
    export.saved_model(model, folder, version=1, unseen="initial")
    seconds = time.monotonic() - started
    private_bytes = growth.stop()
    export.saved_model(model, folder, version=2, unseen="zeros")
    files = [file for file in (folder / "1").rglob("*") if file.is_file()]
    result = {
        "seconds": round(seconds, 2),
        "file_bytes": sum(file.stat().st_size for file in files),
        "graph_bytes": (folder / "1" / "saved_model.pb").stat().st_size,
        "payload_bytes": workload.payload_bytes,
        "peak_growth": private_bytes,
        "peak_growth_to_payload": round(private_bytes / workload.payload_bytes, 3),
    }
    work.report("write", result)


if __name__ == "__main__":
    main()
