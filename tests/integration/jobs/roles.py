"""Tables on embedding nodes: the bits of a run without them, checkpoints there and back.

roles.py FOLDER [OPTIMIZER:REDUCTION | forgetting ...], as of exchange.py; TFHYBRID_NODES names
nodes that are up. The job connects to them in every second run only.
"""

from __future__ import annotations

import os
import sys

from tensorflow import keras

import tfhybrid
from tests.integration.jobs.exchange import trained
from tests.integration.jobs.sharded import ALL_KEYS, PLACEMENTS, assert_equal, forget, of_all_hosts
from tests.support.reference import click_model
from tfhybrid import Replicated, distributed

NODES = os.environ.pop("TFHYBRID_NODES")


def on_nodes(wanted: bool) -> None:
    """Decides where the next run's tables lie."""
    os.environ.pop("TFHYBRID_NODES", None)
    if wanted:
        os.environ["TFHYBRID_NODES"] = NODES


def state_of(model: keras.Model):
    tables = click_model.collection(model).tables
    rows = {name: table.lookup(ALL_KEYS) for name, table in tables.items()}
    return of_all_hosts(tables), click_model.dense_weights(model), rows


def train(case: str, folder: str, placement: str = "replicated"):
    """Trains, saves, and returns the state."""
    optimizer, reduction = case.split(":")
    tfhybrid.init()
    model, _, _ = trained(optimizer, reduction, PLACEMENTS[placement])
    found = state_of(model)
    rows = {name: table.all_rows for name, table in click_model.collection(model).tables.items()}
    on_ranks = distributed.allgather_object(rows)
    assert all(each == rows for each in on_ranks), on_ranks
    for table in click_model.collection(model).tables.values():
        assert sum(len(block.keys) for block in table.blocks()) == table.all_rows
    tfhybrid.checkpoint.save(model, folder, tfhybrid.data.Position(1, 0))
    end()
    return found


def restore(case: str, folder: str):
    """Restores what another run saved, into a model that has trained on, and returns the state."""
    optimizer, reduction = case.split(":")
    tfhybrid.init()
    model, _, _ = trained(optimizer, reduction, PLACEMENTS["replicated"])
    assert tfhybrid.checkpoint.restore(model, folder) == tfhybrid.data.Position(1, 0)
    found = state_of(model)
    end()
    return found


def end() -> None:
    distributed.barrier()
    tfhybrid.shutdown()
    keras.backend.clear_session()


def main(folder: str, cases: list[str]) -> None:
    for case in cases:
        if case == "forgetting":
            digests = []
            for wanted in (False, True):
                on_nodes(wanted)
                digests.append(forget(Replicated()))
            different = [cell for cell, digest in digests[0].items() if digests[1][cell] != digest]
            assert not different, different
            continue
        saved = f"{folder}/{case}"
        on_nodes(False)
        alone = train(case, f"{saved}/alone")
        on_nodes(True)
        assert_equal(train(case, f"{saved}/nodes"), alone, case)
        assert_equal(train(case, f"{saved}/whole", "whole"), alone, (case, "whole"))
        assert_equal(restore(case, f"{saved}/alone"), alone, (case, "restored on nodes"))
        on_nodes(False)
        assert_equal(restore(case, f"{saved}/nodes"), alone, (case, "restored without nodes"))

    sys.stdout.write("exact on this rank\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
