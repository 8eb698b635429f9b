"""The model: features, tables, layers, optimizer, loss. Used by train.py and train_online.py."""

from __future__ import annotations

import tfhybrid
import keras

FEATURES = ["user", "item", "hour"]  # columns of int64 keys
LABEL = "label"
SEED = 1  # of initial values, also of keys that are seen only later


def build() -> keras.Model:
    """Returns the compiled model."""
    table = tfhybrid.TableConfig(dim=8, optimizer=tfhybrid.optimizers.Adam(0.01))
    # A ready model. Any Keras model with a tfhybrid.layers.EmbeddingCollection works, too.
    model = tfhybrid.models.deepfm(FEATURES, table=table, hidden=[32, 16])
    model.compile(
        optimizer=tfhybrid.DistributedOptimizer(keras.optimizers.Adam(0.005)),
        loss=keras.losses.BinaryCrossentropy(from_logits=True),
    )
    return model
