"""Saves on several hosts, where each leader writes its share; then with a replica that differs.

replicas.py DIRECTORY
"""

from __future__ import annotations

import re
import socket
import sys
from pathlib import Path

import keras
import numpy as np

import tfhybrid
from tests.reference import click_model
from tfhybrid import checkpoint, distributed
from tfhybrid.checkpoint.saving import Snapshot
from tfhybrid.checkpoint.stored import StoredCheckpoint
from tfhybrid.errors import CheckpointError
from tfhybrid.store import RowBlock, current_job

directory = Path(sys.argv[1])
tfhybrid.init()
model = click_model.keras_model()
optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.Adagrad(0.1))
model.compile(optimizer, keras.losses.BinaryCrossentropy(from_logits=True))
(ranks,) = click_model.batches(1, tfhybrid.size())
model.train_on_batch(*ranks[tfhybrid.rank()])

snapshot = Snapshot(model, directory, checkpoint.Position(0, 1))
leaders = distributed.allgather_object(current_job().is_leader)
assert snapshot._share.leaders == tuple(np.flatnonzero(leaders))
distributed.together(snapshot.write)
distributed.barrier()
stored = StoredCheckpoint.open(snapshot.folder)
stored.check()
tables = checkpoint.dense.tables_of(model)
assert {name: entry.rows for name, entry in stored.manifest.tables.items()} == {
    name: table.rows for name, table in tables.items()
}
digests = {name: table.digest() for name, table in tables.items()}
if current_job().is_leader:
    saved = {name: entry.digest for name, entry in stored.manifest.tables.items()}
    assert saved == digests
sys.stdout.write("saved\n")

model.train_on_batch(*ranks[tfhybrid.rank()])
if current_job().is_leader and tfhybrid.rank() > 0:
    table = tables["item"]
    table.write_rows(RowBlock(np.array([77]), np.ones((1, table.dim), np.float32), None))
distributed.barrier()
try:
    checkpoint.save(model, directory, checkpoint.Position(0, 2))
except CheckpointError as error:
    found = re.search(r"The replicas differ: rank (\d+) on (\S+) has in (\S+)", str(error))
    if found is None:
        raise
    assert found[3].startswith("item-0")
    sys.stdout.write(f"difference found on {found[2]}, told on {socket.gethostname()}\n")
else:
    raise AssertionError("replicas that differ were saved")
assert checkpoint.steps(directory) == [1]
