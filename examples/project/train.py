"""Trains on the files in data/, evaluates, exports. The same job as model.yaml, with equal results.

    launch/one_host 2 python train.py

Started again, it resumes from its last checkpoint.
"""

from __future__ import annotations

import tfhybrid
import keras
from model import FEATURES, LABEL, SEED, build

BATCH_SIZE, EPOCHS = 512, 2  # the batch size is that of all ranks together
CHECKPOINTS, EXPORTED = "output/checkpoints", "output/exported"


def main() -> None:
    """Runs the job on every rank."""
    tfhybrid.init("click-model", seed=SEED)
    tfhybrid.metrics.serve()  # to Prometheus, if TFHYBRID_METRICS_PORT is set
    keras.utils.set_random_seed(SEED)

    samples = tfhybrid.data.Parquet(FEATURES, label=LABEL)
    train = tfhybrid.data.FileBatches(
        samples, "data/train-*.parquet", BATCH_SIZE // tfhybrid.size(), seed=SEED
    )
    test = tfhybrid.data.FileBatches(samples, "data/test.parquet", 4096, seed=0, shuffle=False)
    model = build()
    model.fit(
        train,
        epochs=EPOCHS,
        verbose=2 if tfhybrid.rank() == 0 else 0,
        callbacks=[
            tfhybrid.callbacks.BroadcastVariables(),
            tfhybrid.callbacks.MetricAverage(),
            tfhybrid.callbacks.Evaluate(test.dataset(), group="user"),
            tfhybrid.callbacks.Checkpoint(CHECKPOINTS, monitor="val_auc", mode="max", resume=True),
        ],
    )
    tfhybrid.checkpoint.restore_best(model, CHECKPOINTS)
    scores = tfhybrid.metrics.evaluate(model, test.dataset(), group="user")
    folder = tfhybrid.export.saved_model(model, EXPORTED)
    if tfhybrid.rank() == 0:
        texts = [f"step {int(model.optimizer.iterations)}"]
        print(", ".join([*texts, *(f"{name} {score:.6g}" for name, score in scores.items())]))
        print(f"exported {folder}")


if __name__ == "__main__":
    main()
