"""A stage of a training that changes its number of ranks: restores, trains, saves, and compares.

    resume.py DIRECTORY PLACEMENT RANKS...

PLACEMENT is "replicated", "sharded" or "table", of the tables in this stage. RANKS are the numbers
of ranks of all stages up to this one. What comes out equals the NumPy reference that changes its
number of ranks at the same steps.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from tensorflow import keras

import tfhybrid
from tests.support.reference import click_model
from tests.support.reference.click_model import OPTIMIZERS
from tfhybrid import checkpoint, distributed
from tfhybrid.data import Position

STEPS = 6
PLACEMENTS = {
    "replicated": tfhybrid.Replicated(),
    "sharded": tfhybrid.Sharded(),
    "table": tfhybrid.Sharded(by="table"),
}
TOLERANCES = {"sgd": 1e-6, "adagrad": 1e-6, "adam": 2e-6}


def run(directory: Path, placement: str, optimizer: str, stages: list[int]) -> None:
    tfhybrid.init()
    assert tfhybrid.size() == stages[-1]
    model = click_model.keras_model(placements=[PLACEMENTS[placement]] * 2)
    trainer = click_model.reference(model, OPTIMIZERS[optimizer][1])
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(tfhybrid.DistributedOptimizer(OPTIMIZERS[optimizer][0]()), loss)
    for ranks in stages[:-1]:
        for batches in click_model.batches(STEPS, ranks):
            trainer.step(batches)
    position = checkpoint.restore(model, directory)
    assert position == (len(stages) - 1, 0)
    if len(stages) > 1:
        compare(model, trainer, optimizer, "as it was saved")
    steps = click_model.batches(STEPS, stages[-1])
    keys, labels = click_model.concatenate([ranks[tfhybrid.rank()] for ranks in steps])
    model.fit(keys, labels, batch_size=16, shuffle=False, verbose=0)
    for batches in steps:
        trainer.step(batches)
    compare(model, trainer, optimizer, "trained on")
    for name, table in click_model.collection(model).tables.items():
        keys = [block.keys for block in table.blocks(block_rows=7)]
        assert sorted(np.concatenate(keys)) == sorted(trainer.tables[name].rows)
        assert table.all_rows == len(trainer.tables[name].rows)
    distributed.barrier()
    checkpoint.save(model, directory, Position(len(stages), 0))
    tfhybrid.shutdown()
    keras.backend.clear_session()


def compare(model: keras.Model, trainer, optimizer: str, when: str) -> None:
    differences = click_model.relative_differences(model, trainer)
    assert max(differences.values()) <= TOLERANCES[optimizer], (when, differences)


if __name__ == "__main__":
    for name in OPTIMIZERS:
        run(Path(sys.argv[1]) / name, sys.argv[2], name, [int(ranks) for ranks in sys.argv[3:]])
    sys.stdout.write("exact on this rank\n")
