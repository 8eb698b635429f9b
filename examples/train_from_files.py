"""From files to serving: Parquet with lists of keys, scores over all ranks, a SavedModel.

python examples/train_from_files.py
horovodrun -np 2 python examples/train_from_files.py
"""

import tempfile
from pathlib import Path

import tfhybrid
import keras
import numpy as np
import pyarrow as pa
import pyarrow.parquet
from tfhybrid.data import FileBatches, Parquet

SAMPLES = 40_000  # a day


def day_of_clicks(day: int) -> pa.Table:
    """Returns samples of users who click on items of the kinds that they clicked on before."""
    rng = np.random.default_rng(day)
    user, item = rng.integers(0, 500, SAMPLES), rng.integers(0, 100, SAMPLES)
    liked = [rng.integers(0, 10, rng.integers(1, 6)) * 10 + each % 10 for each in user]
    probability = np.where(user % 10 == item % 10, 0.7, 0.1)
    label = rng.random(SAMPLES) < probability
    columns = {"label": label, "user": user, "item": item, "liked": liked}
    return pa.table({**columns, "probability": probability})  # the last one is not read below


tfhybrid.init(seed=1)
keras.utils.set_random_seed(1)
folder = Path(tempfile.mkdtemp())  # every rank writes the same files, so none has to wait
for day in range(3):
    pa.parquet.write_table(day_of_clicks(day), folder / f"day_{day}.parquet", row_group_size=4096)

samples = Parquet(["user", "item", "liked"])
first_days = [folder / "day_0.parquet", folder / "day_1.parquet"]
train = FileBatches(samples, first_days, 1024 // tfhybrid.size(), seed=1)
test = FileBatches(samples, folder / "day_2.parquet", 1024, seed=1, shuffle=False)

adam = tfhybrid.optimizers.Adam(0.03)
one = tfhybrid.TableConfig(dim=8, optimizer=adam)
several = tfhybrid.TableConfig(dim=8, optimizer=adam, combiner="mean", max_length=50, keep="last")
inputs = {
    "user": keras.Input((1,), dtype="int64", name="user"),
    "item": keras.Input((1,), dtype="int64", name="item"),
    "liked": keras.Input((None,), dtype="int64", name="liked", ragged=True),
}
embedded = tfhybrid.layers.EmbeddingCollection(
    {"user": one, "item": one, "liked": several}, shared={"items": ["item", "liked"]}
)(inputs)
user, item = (keras.layers.Flatten()(embedded[name]) for name in ("user", "item"))
match = keras.layers.Multiply()([item, embedded["liked"]])
hidden = keras.layers.Dense(32, "relu")(keras.layers.Concatenate()([user, item, match]))
model = keras.Model(inputs, keras.layers.Dense(1)(hidden))
model.compile(
    optimizer=tfhybrid.DistributedOptimizer(keras.optimizers.Adam(0.01)),
    loss=keras.losses.BinaryCrossentropy(from_logits=True),
)
model.fit(
    train,
    epochs=4,
    verbose=2 if tfhybrid.rank() == 0 else 0,
    callbacks=[tfhybrid.callbacks.BroadcastVariables(), tfhybrid.callbacks.MetricAverage()],
)
scores = tfhybrid.metrics.evaluate(model, test.dataset(), group="user")
exported = tfhybrid.export.saved_model(model, folder / "exported")
last_day = day_of_clicks(2)
best = tfhybrid.metrics.auc(last_day["label"].to_numpy(), last_day["probability"].to_numpy())
if tfhybrid.rank() == 0:
    print(f"exported {exported}; AUC within users {scores['gauc']:.4f}")
    print(f"test AUC {scores['auc']:.4f}; the best possible is {best:.4f}")
