"""Exports a model on all ranks, then where nothing can be written: PATH."""

from __future__ import annotations

import sys

import numpy as np

import tfhybrid
from tests.support.reference import click_model
from tfhybrid import export
from tfhybrid.errors import ExportError

tfhybrid.init()
model = click_model.keras_model()
model.compile(tfhybrid.DistributedOptimizer("adam"), "mse")
for ranks in click_model.batches(4, tfhybrid.size()):
    keys, labels = ranks[tfhybrid.rank()]
    model.train_on_batch(keys, labels)
folder = export.saved_model(model, sys.argv[1])
keys, _ = click_model.batches(1, 1)[0][0]
if tfhybrid.rank() == 1:  # any other rank than the one that writes
    np.savez(f"{sys.argv[1]}/inputs.npz", **keys)
    np.savez(f"{sys.argv[1]}/expected.npz", output_0=model.predict(keys, verbose=0))
try:
    export.saved_model(model, "/dev/null/nowhere")
except ExportError:
    sys.stdout.write(f"rank={tfhybrid.rank()} folder={folder.name} refused\n")
