"""Every way in which gradients travel, on several hosts: the same bits, and those of the reference.

exchange.py [OPTIMIZER:REDUCTION | forgetting ...]

OPTIMIZER is one of the click model's, or "clipped": AdamW with penalties and one norm of all.
"forgetting" trains tables with admission and eviction.
"""

from __future__ import annotations

import itertools
import sys

import tensorflow as tf
from tensorflow import keras

import tfhybrid
from tests.support.reference import click_model
from tests.support.reference.click_model import OPTIMIZERS
from tests.support.reference.forgetting_job import ForgettingJob
from tfhybrid import distributed
from tfhybrid.job import current_job

STEPS = 8
# In one order of dense sums, whatever the exchange: else their last bits differ.
DENSE = "hierarchical"
EXCHANGES = ("all_ranks", "leaders", "owner")
TOLERANCES = {"sgd": 1e-6, "adagrad": 1e-6, "adam": 2e-6, "clipped": 2e-6}
BFLOAT16_TOLERANCE = 2.0**-7


def model_and_reference(
    optimizer: str, reduction: str, placements=click_model.REPLICATED, gather_on=click_model.HOST
):
    """Returns a model with tables placed so, its reference and what makes its optimizer."""
    if optimizer == "clipped":
        return click_model.regularized(
            placements=placements,
            gather_on=gather_on,
            clipping=("global_norm", 0.1),
            reduction=reduction,
        )
    make, theirs = OPTIMIZERS[optimizer]
    model = click_model.keras_model(placements=placements, gather_on=gather_on)
    return model, click_model.reference(model, theirs, reduction=reduction), make


class Updates(keras.callbacks.Callback):
    """Notes after how many batches the updates came."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[int] = []

    def on_train_batch_end(self, batch: int, logs=None) -> None:
        if int(self.model.optimizer.iterations) > len(self.ends):
            self.ends.append(batch + 1)

    def on_train_end(self, logs=None) -> None:
        if not self.ends or self.ends[-1] < STEPS:
            self.ends.append(STEPS)


def trained(
    optimizer: str,
    reduction: str,
    placements=click_model.REPLICATED,
    announced=None,
    span: int = 30,
    gather_on=click_model.HOST,
    **options,
):
    """Returns a model that was trained so, the keys of its data, and differences to the reference.

    `announced` are arguments of `tfhybrid.data.announce`, `options` of `DistributedOptimizer`;
    keys lie within `span` of 0.
    """
    model, trainer, make = model_and_reference(optimizer, reduction, placements, gather_on)
    wrapped = tfhybrid.DistributedOptimizer(make(), reduction=reduction, **options)
    model.compile(wrapped, keras.losses.BinaryCrossentropy(from_logits=True))
    steps = click_model.batches(STEPS, tfhybrid.size(), span=span)
    keys, labels = click_model.concatenate([ranks[tfhybrid.rank()] for ranks in steps])
    told = [tfhybrid.callbacks.BroadcastVariables()]
    data = tf.data.Dataset.from_tensor_slices((keys, labels)).batch(16)
    updates = Updates()
    if announced is not None:
        by_pass = {"optimizer": wrapped} if options.get("update") == "pass" else {}
        layers = click_model.collection(model)
        data = tfhybrid.data.announce(data, layers=layers, **announced, **by_pass)
    model.fit(data, verbose=0, callbacks=[*told, updates])
    for first, last in itertools.pairwise([0, *updates.ends]):
        trainer.step_of_micro_batches(list(zip(*steps[first:last], strict=True)))
    return model, keys, click_model.relative_differences(model, trainer)


def train(optimizer: str, reduction: str, exchange: str, wire_dtype: str = "float32"):
    """Returns the tables' digests, equal on all hosts, and the differences to the reference."""
    tfhybrid.init()
    options = {"exchange": exchange, "wire_dtype": wire_dtype, "dense": DENSE}
    model, _, differences = trained(optimizer, reduction, **options)
    tables = click_model.collection(model).tables
    found = None
    if current_job().is_leader:
        found = {name: (table.version, table.digest()) for name, table in tables.items()}
    by_leader = [its for its in distributed.allgather_object(found) if its]
    hosts = len(set(current_job().hosts))
    # Each table was updated once per host and step, however many ranks there are.
    assert [its["user"][0] for its in by_leader] == hosts * [STEPS], by_leader
    assert by_leader == hosts * by_leader[:1], by_leader
    tfhybrid.shutdown()
    keras.backend.clear_session()
    return by_leader[0], differences


def forget(exchange: str) -> dict[str, list[int]]:
    """Returns the digests of tables that forget, equal on all hosts, rows in the same order."""
    tfhybrid.init()
    job = ForgettingJob(exchange=exchange, dense=DENSE)
    job.train(1, 3 * STEPS)
    found = None
    if current_job().is_leader:
        rows = {
            cell: [block.keys.tolist() for block in table.blocks()]
            for cell, table in job.tables.items()
        }
        found = (job.digests(), rows)
    by_leader = [its for its in distributed.allgather_object(found) if its]
    assert by_leader == len(by_leader) * by_leader[:1]
    tfhybrid.shutdown()
    keras.backend.clear_session()
    return by_leader[0][0]


def main(cases: list[str]) -> None:
    for case in cases:
        if case == "forgetting":
            assert len({str(forget(exchange)) for exchange in EXCHANGES}) == 1
            continue
        optimizer, reduction = case.split(":")
        digests = {}
        for exchange in EXCHANGES:
            digests[exchange], differences = train(optimizer, reduction, exchange)
            assert max(differences.values()) <= TOLERANCES[optimizer], (case, exchange, differences)
        assert len({str(digest) for digest in digests.values()}) == 1, (case, digests)
        for exchange in ("leaders", "owner"):
            rounded, differences = train(optimizer, reduction, exchange, "bfloat16")
            assert rounded != digests["all_ranks"]
            assert max(differences.values()) <= BFLOAT16_TOLERANCE, (case, exchange, differences)
    sys.stdout.write("exact on this rank\n")


if __name__ == "__main__":
    main(sys.argv[1:] or ["sgd:mean", "adagrad:frequency", "adam:frequency", "adagrad:sum"])
