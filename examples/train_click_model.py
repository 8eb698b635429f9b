"""The example of the README: a click model on a generated click log.

python examples/train_click_model.py
horovodrun -np 2 python examples/train_click_model.py
"""

import keras

import tfhybrid
from tfhybrid.data import Batches, ClickLog

FEATURES = {"user": 1_000, "item": 200, "hour": 24}  # the number of ids of each

tfhybrid.init()
log = ClickLog(FEATURES, seed=1)
train = Batches(log.clicks(0, 300_000), 1024 // tfhybrid.size(), seed=1)
test = Batches(log.clicks(300_000, 50_000), 1024, seed=1, shuffle=False)

table = tfhybrid.TableConfig(dim=8, optimizer=tfhybrid.optimizers.Adam(0.01))
inputs = {name: keras.Input((1,), dtype="int64", name=name) for name in FEATURES}
embedded = tfhybrid.layers.EmbeddingCollection(dict.fromkeys(FEATURES, table))(inputs)
hidden = keras.layers.Flatten()(keras.layers.Concatenate()([embedded[name] for name in FEATURES]))
hidden = keras.layers.Dense(64, activation="relu")(hidden)
model = keras.Model(inputs, keras.layers.Dense(1)(hidden))

model.compile(
    optimizer=tfhybrid.DistributedOptimizer(keras.optimizers.Adam(1e-3)),
    loss=keras.losses.BinaryCrossentropy(from_logits=True),
)
model.fit(
    train.dataset(epochs=None),
    epochs=3,
    steps_per_epoch=train.steps_per_epoch,
    shuffle=False,  # the batches come shuffled
    verbose=2 if tfhybrid.rank() == 0 else 0,
    callbacks=[tfhybrid.callbacks.BroadcastVariables(), tfhybrid.callbacks.MetricAverage()],
)
scores = tfhybrid.metrics.evaluate(model, test.dataset())
if tfhybrid.rank() == 0:
    best = log.best_auc(50_000, start=300_000).drawn
    print(f"test AUC {scores['auc']:.4f}; the best possible is {best:.4f}")
