"""A trainer of `examples/online.py`, which starts some: click-through rates from user and item.

Before a batch is trained the model predicts it. What it predicted goes to a file, with the labels:
progressive validation.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import tfhybrid
import keras

FEATURES = ("user", "item")


class Predictions(keras.callbacks.Callback):
    """Writes a line for each batch, once it is trained: times, labels, predictions.

    Args:
        leases: That are trained.
        path: The file.
    """

    def __init__(self, leases: tfhybrid.stream.Leases, path: Path) -> None:
        super().__init__()
        self._leases = leases
        self._file = path.open("a")
        self._line: dict[str, list[float]] = {}

    def on_train_batch_begin(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Predicts the batch that comes."""
        rows = self._leases.batch()
        if rows is None:
            return
        features = {name: rows[name].to_numpy() for name in FEATURES}
        logits = self.model(features, training=False).numpy()[:, 0]
        self._line = {
            "time": rows["time"].to_pylist(),
            "label": rows["label"].to_pylist(),
            "prediction": logits.round(4).tolist(),
        }

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        """Writes what was predicted."""
        self._file.write(json.dumps(self._line) + "\n")
        self._file.flush()


def build() -> keras.Model:
    """Returns the compiled model: two embeddings, their product, and a hidden layer."""
    table = tfhybrid.TableConfig(dim=16, optimizer=tfhybrid.optimizers.Adagrad(0.3))
    inputs = {name: keras.Input((), dtype="int64", name=name) for name in FEATURES}
    user, item = (
        tfhybrid.layers.Embedding(table, table=name, name=f"of_{name}")(inputs[name])
        for name in FEATURES
    )
    together = keras.layers.Concatenate()([user, item, keras.layers.Multiply()([user, item])])
    hidden = keras.layers.Dense(32, activation="relu")(together)
    model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
    model.compile(
        tfhybrid.DistributedOptimizer(keras.optimizers.Adagrad(0.05)),
        keras.losses.BinaryCrossentropy(from_logits=True),
    )
    return model


def main(push: str, folder: Path) -> None:
    """Trains what the provider hands out, until it is stopped."""
    tfhybrid.init()
    keras.utils.set_random_seed(0)
    leases = tfhybrid.stream.Leases(
        os.environ["TFHYBRID_STREAM"], model="clicks", batch_size=32, push=push
    )
    data = tfhybrid.stream.dataset(leases, features=FEATURES, label="label")
    online = tfhybrid.stream.Online(leases, tables={name: name for name in FEATURES})
    predictions = Predictions(leases, folder / f"{leases.trainer}.jsonl")
    build().fit(data, callbacks=[online, predictions], shuffle=False, verbose=0)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
