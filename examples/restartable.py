"""A job that may be killed: started again, it goes on from its last checkpoint.

horovodrun -np 2 python examples/restartable.py checkpoints/
"""

import sys

import tfhybrid
import keras
from tfhybrid.data import Batches, ClickLog

DIRECTORY = sys.argv[1]  # that all hosts see

tfhybrid.init()
tfhybrid.metrics.serve()  # to Prometheus, where TFHYBRID_METRICS_PORT is set
log = ClickLog({"user": 500, "item": 100, "hour": 24}, seed=1, latent_dim=4)
train = Batches(log.clicks(0, 300_000), 1024 // tfhybrid.size(), seed=1)
test = Batches(log.clicks(300_000, 50_000), 1024, seed=1, shuffle=False)

table = tfhybrid.TableConfig(dim=8, optimizer=tfhybrid.optimizers.Adam(0.02))
model = tfhybrid.models.deepfm(["user", "item", "hour"], table=table, hidden=(64,))
model.compile(
    optimizer=tfhybrid.DistributedOptimizer(keras.optimizers.Adam(1e-3)),
    loss=keras.losses.BinaryCrossentropy(from_logits=True),
)
history = model.fit(
    train,
    epochs=2,
    verbose=2 if tfhybrid.rank() == 0 else 0,
    callbacks=[
        tfhybrid.callbacks.BroadcastVariables(),
        tfhybrid.callbacks.MetricAverage(),
        tfhybrid.callbacks.Checkpoint(DIRECTORY, save_freq=200, resume=True),
    ],
)
scores = tfhybrid.metrics.evaluate(model, test.dataset())
best = log.best_auc(50_000, start=300_000).drawn
if tfhybrid.rank() == 0:
    print(f"trained epochs {history.epoch}")
    print(f"test AUC {scores['auc']:.4f}; the best possible is {best:.4f}")
