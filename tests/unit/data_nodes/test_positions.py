"""Training goes on at a position with other data nodes: no batch is lost or trained twice."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.roles.colocated_run import EPOCHS, colocated, rows_of
from tests.support.roles.split_roles import (
    STEPS,
    TABLES,
    Job,
    dataset,
    split_job,
    step,
)
from tfhybrid.data_nodes.elements import unflatten
from tfhybrid.data_nodes.key_links import PULL, PUSH


class Reshuffled:
    """Batches that come in another order in each epoch."""

    def __init__(self) -> None:
        self.epoch = -1

    def __iter__(self) -> Iterator[tuple[dict, np.ndarray]]:
        self.epoch += 1
        order = np.random.default_rng(self.epoch).permutation(STEPS)
        return iter([dataset((0, 1))[number] for number in order])


def told(job: Job, **wanted: object) -> list[list[np.ndarray]]:
    """Prices, which say what batch it is, of two epochs of a data set."""
    job.make = lambda *_: Reshuffled()
    feed = job.feed(0, **wanted)
    epochs = [
        [
            unflatten(structure, leaves)[0]["price"].values
            for structure, leaves in feed.epoch(job.declared)
        ]
        for _ in range(2)
    ]
    feed.close()
    return epochs


@pytest.mark.parametrize("nodes", [1, 2, 3])
@pytest.mark.parametrize(("epoch", "first"), [(1, 0), (1, 4), (2, 1), (0, STEPS)])
def test_data_nodes_begin_at_a_position(tmp_path: Path, nodes: int, epoch: int, first: int) -> None:
    every = Reshuffled()
    wanted = [[features["price"] for features, _ in every] for _ in range(4)]
    with split_job(tmp_path / "split", nodes, 1, 1) as job:
        found = told(job, epoch=epoch, step=first)
    following = wanted[epoch][first:] if first else wanted[epoch + 1]
    for batches, same in zip(found, [wanted[epoch][first:], following], strict=True):
        assert len(batches) == len(same)
        for prices, equal in zip(batches, same, strict=True):
            np.testing.assert_array_equal(prices, equal)


@pytest.mark.parametrize("delivery", [PULL, PUSH])
@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 2), (2, 1)])
@pytest.mark.parametrize("first", [1, 5])
def test_training_resumes_with_other_data_nodes(
    tmp_path: Path, before: int, after: int, first: int, delivery: str
) -> None:
    with split_job(tmp_path / "split", before, 2, 1) as job:
        for node in job.owners:
            node.open_update("sgd", TABLES)
        update = job.engines[0].open_update("sgd", TABLES)

        def train(feed, steps: int | None = None) -> None:
            epoch = feed.epoch(job.declared)
            for structure, leaves in itertools.islice(epoch, steps):
                element = unflatten(structure, [leaf.values for leaf in leaves])
                step(job.engines[0], update, element, handles=True)
            epoch.close()

        feed = job.feed(0, 1, delivery=delivery)
        train(feed)
        train(feed, first)
        feed.close()
        job.nodes = after
        feed = job.feed(0, 2, delivery=delivery, epoch=1, step=first)
        train(feed)
        feed.close()
        job.settle()
        assert job.engines[0].table_stats("user").version == EPOCHS * STEPS
        found = rows_of(job.engines[0], 1)
    for rows, same in zip(found, colocated(tmp_path / "colocated", 1, None), strict=True):
        np.testing.assert_array_equal(rows, same)
