"""A small job with all that a checkpoint holds. Every version can run it: `python job.py FOLDER`.

That writes FOLDER, with a whole checkpoint and a delta, and what the model was worth then and some
steps later. It is done once for each version whose checkpoints differ, and kept.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from tensorflow import keras

import tfhybrid
from tfhybrid.layers.table_proxy import TableProxy

STEPS = 6
KEYS = np.arange(-12, 24)


def start() -> keras.Model:
    """Starts the job and builds its model."""
    tfhybrid.init(seed=5)
    keras.utils.set_random_seed(3)
    plain = tfhybrid.TableConfig(dim=3, optimizer="adagrad")
    forgetting = tfhybrid.TableConfig(
        dim=2,
        admission=tfhybrid.Admission(2),
        eviction=tfhybrid.Eviction(unseen_steps=5),
    )
    configs = {"user": plain, "item": forgetting}
    inputs = {name: keras.Input((2,), dtype="int64", name=name) for name in configs}
    embedded = tfhybrid.layers.EmbeddingCollection(configs)(inputs)
    flat = keras.layers.Concatenate()([keras.layers.Flatten()(e) for e in embedded.values()])
    normalized = keras.layers.BatchNormalization()(flat)
    model = keras.Model(inputs, keras.layers.Dense(1)(normalized))
    model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.Adam(0.01)), "mse")
    return model


def train(model: keras.Model, first: int, steps: int) -> None:
    """Trains on the batches from the step `first` on."""
    for step in range(first, first + steps):
        random = np.random.default_rng(step)
        keys = {name: random.integers(-12 + step, 12 + step, (16, 2)) for name in ("user", "item")}
        model.train_on_batch(keys, random.normal(size=(16, 1)).astype(np.float32))


def worth(model: keras.Model) -> dict[str, object]:
    """Returns what tables, dense weights and optimizer are worth, as JSON has it."""
    (layer,) = (each for each in model.layers if hasattr(each, "tables"))
    variables = [*model.weights, *model.optimizer.variables]
    dense = [v for v in variables if not isinstance(v, TableProxy)]
    return {
        "lookups": {name: table.lookup(KEYS).tolist() for name, table in layer.tables.items()},
        "rows": {name: table.stats().rows for name, table in layer.tables.items()},
        "waiting": {name: table.stats().waiting for name, table in layer.tables.items()},
        "versions": {name: table.version for name, table in layer.tables.items()},
        "dense": [np.asarray(variable).tolist() for variable in dense],
    }


def _write(folder: Path) -> None:
    model = start()
    manager = tfhybrid.checkpoint.CheckpointManager(
        model, folder, background=False, full_every_saves=2
    )
    where = getattr(tfhybrid.data, "Position", None) or tfhybrid.checkpoint.Position
    train(model, 0, STEPS - 2)
    manager.save(where(0, STEPS - 2))
    train(model, STEPS - 2, 2)
    manager.save(where(0, STEPS))
    worths = {"saved": worth(model)}
    train(model, STEPS, STEPS)
    (folder / "worth.json").write_text(json.dumps(worths | {"later": worth(model)}))


if __name__ == "__main__":
    _write(Path(sys.argv[1]))
