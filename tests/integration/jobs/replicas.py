"""Saves on several hosts, where each leader writes its share; then with a replica that differs.

replicas.py DIRECTORY
"""

from __future__ import annotations

import re
import socket
import sys
from pathlib import Path

import numpy as np
import pytest
from tensorflow import keras

import tfhybrid
from tests.support.reference import click_model
from tfhybrid import checkpoint, distributed
from tfhybrid.checkpoint.saving import ModelSnapshot
from tfhybrid.checkpoint.stored import StoredCheckpoint
from tfhybrid.data import Position
from tfhybrid.errors import CheckpointError, ReplicaError
from tfhybrid.job import current_job
from tfhybrid.store import RowBlock

directory = Path(sys.argv[1])
tfhybrid.init()
model = click_model.keras_model()
optimizer = tfhybrid.DistributedOptimizer(keras.optimizers.Adagrad(0.1))
model.compile(optimizer, keras.losses.BinaryCrossentropy(from_logits=True))
(ranks,) = click_model.batches(1, tfhybrid.size())
model.train_on_batch(*ranks[tfhybrid.rank()])
compare = tfhybrid.callbacks.CompareReplicas()
compare.set_model(model)
compare.compare()

snapshot = ModelSnapshot(model, directory, Position(0, 1))
leaders = distributed.allgather_object(current_job().is_leader)
assert snapshot._writers.leaders == tuple(np.flatnonzero(leaders))
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

# What one host cannot freeze is thawed on the others.
if current_job().is_leader and tfhybrid.rank() > 0:
    tables["user"].writer.freeze()
with pytest.raises(CheckpointError, match="is being saved"):
    checkpoint.save(model, directory, Position(0, 1))
if current_job().is_leader and tfhybrid.rank() > 0:
    tables["user"].writer.thaw()
checkpoint.save(model, directory, Position(0, 1))

model.train_on_batch(*ranks[tfhybrid.rank()])
if current_job().is_leader and tfhybrid.rank() > 0:
    table = tables["item"]
    table.writer.write_rows(RowBlock(np.array([77]), np.ones((1, table.dim), np.float32), None))
distributed.barrier()
with pytest.raises(ReplicaError, match=r"table 'item' differ; they were last equal at version 1\."):
    compare.compare()
told = r"The replicas differ: rank \d+ on (\S+) has .* in item-0"
with pytest.raises(CheckpointError, match=told) as error:
    checkpoint.save(model, directory, Position(0, 2))
host = re.search(told, str(error.value))[1]
sys.stdout.write(f"difference found on {host}, told on {socket.gethostname()}\n")
assert checkpoint.steps(directory) == [1]
