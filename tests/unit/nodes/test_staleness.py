"""Rows may lack up to k updates, never more; NumPy computes a run again from the log of reads."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.reference.clusters import until
from tests.reference.stale_rows import StaleTable, replay
from tests.unit.core.test_sharded import INITIALIZER, RATE
from tests.unit.nodes.split_roles import (
    ADAGRAD,
    STEPS,
    TABLES,
    Job,
    dataset,
    flat,
    gradients_of,
    split_job,
    step,
)
from tests.unit.nodes.test_owner_engines import BY_KEY
from tests.unit.nodes.test_split_roles import all_keys, colocated, rows_of
from tfhybrid.core import batches
from tfhybrid.core.engine import Engine
from tfhybrid.errors import ConfigError, StoreError, TfhybridError
from tfhybrid.nodes.elements import unflatten
from tfhybrid.nodes.grouping import by_label
from tfhybrid.nodes.key_links import JOINS, NOTICE, REQUEST, UNASKED

EPOCHS = 2
SEED = 0
TABLE_OF = dict(TABLES)


@dataclasses.dataclass
class Read:
    """A line of a log."""

    rank: int
    epoch: int
    number: int  # of the batch, over all data nodes
    table: str
    owner: int
    version: int
    applied: int


def lines_of(folder: Path, data: int) -> list[Read]:
    """The log of every rank; batches are shared among data nodes."""
    found = []
    for path in sorted(folder.glob("reads-*.jsonl")):
        for line in path.read_text().splitlines():
            told = json.loads(line)
            _, stream, epoch, node, number = told["batch"].split("/")
            found.append(
                Read(
                    int(stream.split(".")[0]),
                    int(epoch),
                    int(number) * data + int(node),
                    told["table"],
                    told["owner"],
                    told["read"],
                    told["applied"],
                )
            )
    return found


def missing(reads: Sequence[Read]) -> int:
    """The most updates that rows lacked."""
    return max(read.applied - 1 - read.version for read in reads)


def train_and_log(job: Job, folder: Path, staleness: int, **wanted: object) -> list[Read]:
    """Trains, and returns what was read."""
    for rank in range(job.trainers):
        job.log(rank).write_to(folder / f"reads-{rank}.jsonl")
    job.train(epochs=EPOCHS, staleness=staleness, **wanted)
    for rank in range(job.trainers):
        job.log(rank).note()
    return lines_of(folder, job.nodes)


def replayed(
    steps: Sequence[Sequence[tuple[Mapping[str, np.ndarray], np.ndarray]]],
    reads: Sequence[Read],
    job: Job,
) -> list[np.ndarray]:
    """The rows that NumPy trains from the log; `steps` are the batches of all ranks in order."""
    tables = {
        name: StaleTable(
            name,
            dim,
            INITIALIZER.native,
            SEED,
            RATE,
            (ADAGRAD["initial_accumulator_value"], ADAGRAD["epsilon"]),
        )
        for name, dim in TABLES.items()
    }
    of_batch: dict[tuple[int, int], dict[tuple[str, int], int]] = {}
    for read in reads:
        known = of_batch.setdefault((read.applied, read.rank), {})
        assert known.setdefault((read.table, read.owner), read.version) == read.version
    told = [
        [
            (features, labels, of_batch[number + 1, rank])
            for rank, (features, labels) in enumerate(of_ranks)
        ]
        for number, of_ranks in enumerate(steps)
    ]
    declared = job.declared

    def owners_of(table: str, keys: np.ndarray) -> np.ndarray:
        places, _ = batches.number_places(table, BY_KEY, declared.owners, 0, [keys])
        return places[0] >> batches.INDEX_BITS & ((1 << batches.OWNER_BITS) - 1)

    replay(tables, told, flat, owners_of, gradients_of)
    return [
        table.lookup(keys, table.version)
        for table, keys in zip(tables.values(), all_keys(job.trainers), strict=True)
    ]


def steps_of(trainers: int) -> list[tuple]:
    """The batches of all ranks, over all epochs."""
    return list(zip(*(dataset((rank, trainers)) for rank in range(trainers)), strict=True)) * EPOCHS


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize("trainers", [1, 2])
@pytest.mark.parametrize(("data", "embedding"), [(1, 1), (2, 3)])
@pytest.mark.parametrize("staleness", [1, 4])
def test_numpy_trains_the_same_bits_from_the_log(
    tmp_path: Path, join: str, data: int, embedding: int, trainers: int, staleness: int
) -> None:
    """Later batches have keys that earlier ones had not."""
    with split_job(tmp_path / "split", data, embedding, trainers) as job:
        reads = train_and_log(job, tmp_path, staleness, join=join)
        found = [rows_of(engine, trainers) for engine in job.engines[:trainers]]
        wanted = replayed(steps_of(trainers), reads, job)
    assert 0 <= missing(reads) <= staleness
    for read in reads:
        assert read.applied == read.epoch * STEPS + read.number + 1
        assert read.version >= read.epoch * STEPS  # every epoch begins with all updates
    for of_trainer in found:
        for rows, same in zip(of_trainer, wanted, strict=True):
            np.testing.assert_array_equal(rows, same)


@pytest.mark.parametrize("join", JOINS)
def test_without_staleness_there_is_no_log_and_the_bits_are_those_without_roles(
    tmp_path: Path, join: str
) -> None:
    with split_job(tmp_path / "split", 2, 2, 2) as job:
        assert train_and_log(job, tmp_path, 0, join=join) == []
        found = rows_of(job.engines[1], 2)
    for rows, same in zip(found, colocated(tmp_path / "colocated", 2, None), strict=True):
        np.testing.assert_array_equal(rows, same)
