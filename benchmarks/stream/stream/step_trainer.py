"""A trainer of a stream whose step is that of the step benchmark: 26 features and its tower."""

from __future__ import annotations

import argparse
import os

import keras

import tfhybrid
from benchmarks.step.step import model
from benchmarks.step.step.tfhybrid_step import LEARNING_RATE


def main() -> None:
    """Trains until it is stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    model.add_options(parser)
    parser.add_argument("--push", default="deltas")
    parser.add_argument("--direct", action="store_true")
    options = parser.parse_args()
    config = model.config_of(options)
    tfhybrid.init()
    keras.utils.set_random_seed(0)
    names = [f"feature_{position}" for position in range(config.features)]
    table = tfhybrid.TableConfig(dim=config.dim, initializer="uniform")
    inputs = {name: keras.Input((), dtype="int64", name=name) for name in names}
    collection = tfhybrid.layers.EmbeddingCollection(dict.fromkeys(names, table), concatenate=True)
    network = keras.Model(inputs, model.build_tower(config)(collection(inputs)))
    network.compile(
        tfhybrid.DistributedOptimizer(keras.optimizers.Adagrad(LEARNING_RATE)),
        keras.losses.BinaryCrossentropy(from_logits=True),
    )
    leases = tfhybrid.stream.Leases(
        os.environ["TFHYBRID_STREAM"],
        model="step",
        batch_size=config.batch,
        push=options.push,
        direct=options.direct,
    )
    data = tfhybrid.stream.dataset(leases, features=names, label="label")
    tables = {name: name for name in names}
    online = tfhybrid.stream.Online(leases, tables=tables)
    network.fit(data, callbacks=[online], verbose=0)


if __name__ == "__main__":
    main()
