"""README's example: a click model, trained on a Parquet file.

python examples/train_click_model.py
horovodrun -np 2 python examples/train_click_model.py

The part that README shows works with files of your own. Here, it reads a generated click log, whose
best possible AUC is known.
"""

# ruff: noqa: E402 (README's part begins with its imports)

import os
import tempfile

import pyarrow as pa
import pyarrow.parquet
from tfhybrid.data import ClickLog

folder = tempfile.TemporaryDirectory()  # every rank writes the same files, so no rank has to wait
os.chdir(folder.name)
log = ClickLog({"user": 500, "item": 100}, seed=1, latent_dim=4)
for file, start, count in (("train.parquet", 0, 400_000), ("test.parquet", 400_000, 50_000)):
    clicks = log.clicks(start, count)
    pa.parquet.write_table(pa.table({**clicks.features, "label": clicks.label}), file)
best = log.best_auc(50_000, start=400_000).drawn

# README's part:
import tfhybrid  # first, to keep TensorFlow quiet
import keras

tfhybrid.init()
columns = tfhybrid.data.Parquet(["user", "item"], label="label")  # any integers or strings
train = tfhybrid.data.Batches(columns.read("train.parquet"), 1024 // tfhybrid.size(), seed=1)
test = tfhybrid.data.Batches(columns.read("test.parquet"), 1024, seed=1, shuffle=False)

table = tfhybrid.TableConfig(dim=8, optimizer=tfhybrid.optimizers.Adam(0.02))
model = tfhybrid.models.deepfm(["user", "item"], table=table, hidden=(32,))
loss = keras.losses.BinaryCrossentropy(from_logits=True)
model.compile(tfhybrid.DistributedOptimizer(keras.optimizers.Adam(1e-3)), loss)

callbacks = [tfhybrid.callbacks.BroadcastVariables(), tfhybrid.callbacks.MetricAverage()]
model.fit(train, epochs=2, verbose=2 if tfhybrid.rank() == 0 else 0, callbacks=callbacks)
scores = tfhybrid.metrics.evaluate(model, test.dataset())
print(f"test AUC {scores['auc']:.4f}")
# End of README's part.

print(f"best possible AUC {best:.4f}")
