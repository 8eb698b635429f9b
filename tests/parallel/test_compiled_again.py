"""A model that is compiled again, on all ranks alike."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from tensorflow import keras

import tfhybrid
from tests.support.reference import click_model
from tfhybrid import distributed

pytestmark = [pytest.mark.usefixtures("job"), pytest.mark.world_size]


def test_another_optimizer_takes_over_on_all_ranks() -> None:
    """Only the leader once refused it, and the others waited."""
    model = click_model.keras_model()
    steps = click_model.batches(6, tfhybrid.size())
    for optimizer, ranks in (("adam", steps[:3]), ("adagrad", steps[3:])):
        model.compile(
            tfhybrid.DistributedOptimizer(optimizer),
            keras.losses.BinaryCrossentropy(from_logits=True),
        )
        for batches in ranks:
            model.train_on_batch(*batches[tfhybrid.rank()])
    tables = click_model.collection(model).tables
    assert {name: table.version for name, table in tables.items()} == {"user": 6, "item": 6}
    weights = hashlib.sha256(b"".join(w.tobytes() for w in click_model.dense_weights(model)))
    assert len(set(distributed.allgather_object(weights.hexdigest()))) == 1
    if distributed.local_rank() == 0:
        for table in tables.values():
            assert table.optimizer_start == 3
            # Adagrad's accumulators start at 0.1 and grow; moments of Adam would be smaller.
            states = np.concatenate([block.states for block in table.blocks(states=True)])
            assert states.min() >= np.float32(0.1)
