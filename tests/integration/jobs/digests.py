"""Trains a small model; the first rank prints digests of tables and dense weights.

digests.py [DENSE], how dense gradients are added up.
"""

from __future__ import annotations

import hashlib
import sys

from tensorflow import keras

import tfhybrid
from tests.support.reference import click_model

tfhybrid.init("digests", seed=11)
model = click_model.keras_model()
optimizer = tfhybrid.DistributedOptimizer("adam", dense=(*sys.argv[1:], "horovod")[0])
model.compile(optimizer, keras.losses.BinaryCrossentropy(from_logits=True))
for ranks in click_model.batches(10, tfhybrid.size()):
    keys, labels = ranks[tfhybrid.rank()]
    model.train_on_batch(keys, labels)
tables = click_model.collection(model).tables
digests = {name: f"{table.digest():016x}" for name, table in tables.items()}
weights = b"".join(weight.tobytes() for weight in click_model.dense_weights(model))
digests["dense"] = hashlib.sha256(weights).hexdigest()
if tfhybrid.rank() == 0:
    sys.stdout.write(f"digests {digests}\n")
