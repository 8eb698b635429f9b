"""A click model in four roles: data nodes, embedding nodes, trainers and a metadata node.

    make roles

starts the nodes of examples/roles.yaml, trains on two ranks, and ends them. The same script without
nodes, with the same result to the last bit:

    horovodrun -np 2 python examples/roles.py
"""

import tfhybrid
from tfhybrid.data import Batches, ClickLog, Shard, from_nodes

FEATURES = {"user": 1_000, "item": 200, "hour": 24}  # the number of ids of each
SAMPLES, BATCH, EPOCHS = 100_000, 1024, 2


def clicks(shard: Shard, start: int, count: int, shuffle: bool):
    """The batches of a shard, for ever; data nodes call it."""
    log = ClickLog(FEATURES, seed=1).clicks(start, count)
    return Batches(log, BATCH // shard.size, seed=1, shuffle=shuffle, shard=shard).dataset(
        epochs=None
    )


def click_model():
    """A model that looks three features up, and the layer that does."""
    import keras

    table = tfhybrid.TableConfig(dim=8, optimizer=tfhybrid.optimizers.Adam(0.01))
    inputs = {name: keras.Input((1,), dtype="int64", name=name) for name in FEATURES}
    layer = tfhybrid.layers.EmbeddingCollection(dict.fromkeys(FEATURES, table))
    embedded = layer(inputs)
    hidden = keras.layers.Concatenate()([embedded[name] for name in FEATURES])
    hidden = keras.layers.Dense(64, activation="relu")(keras.layers.Flatten()(hidden))
    return keras.Model(inputs, keras.layers.Dense(1)(hidden)), layer


def main() -> None:
    """Trains and evaluates, whoever reads the data."""
    import keras

    tfhybrid.init(seed=1)
    keras.utils.set_random_seed(1)
    model, layer = click_model()
    model.compile(
        tfhybrid.DistributedOptimizer(keras.optimizers.Adam(1e-3)),
        keras.losses.BinaryCrossentropy(from_logits=True),
    )
    told = {"start": 0, "count": SAMPLES, "shuffle": True}
    tested = {"start": SAMPLES, "count": SAMPLES // 4, "shuffle": False}
    model.fit(
        from_nodes(clicks, layer, arguments=told),
        epochs=EPOCHS,
        steps_per_epoch=SAMPLES // BATCH,
        shuffle=False,  # data nodes shuffle
        verbose=0,
        callbacks=[tfhybrid.callbacks.BroadcastVariables()],
    )
    valid = from_nodes(clicks, layer, arguments=tested, trains=False)
    loss = model.evaluate(valid, steps=SAMPLES // 4 // BATCH, verbose=0)
    rows = {name: table.all_rows for name, table in layer.tables.items()}
    if tfhybrid.rank() == 0:
        print(f"loss {loss!r} on {SAMPLES // 4:,} other samples; rows {rows}")


if __name__ == "__main__":
    main()
