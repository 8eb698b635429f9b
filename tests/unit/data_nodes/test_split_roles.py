"""Data nodes, embedding nodes and trainers train the rows of a run without roles, bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.roles.clusters import until
from tests.support.roles.colocated_run import (
    EPOCHS,
    all_keys,
    colocated,
    rows_of,
)
from tests.support.roles.owner_engines import opened
from tests.support.roles.split_roles import (
    STEPS,
    TABLES,
    dataset,
    flat,
    split_job,
    step,
)
from tfhybrid.core import split_batches
from tfhybrid.core.native import LinkPurpose, PlacementKind
from tfhybrid.core.update import UpdateChoices
from tfhybrid.data_nodes.elements import unflatten
from tfhybrid.data_nodes.key_links import (
    DELIVERIES,
    NOTIFY,
    PULL,
    PUSH,
)
from tfhybrid.errors import ConfigError, DataError, NameTakenError, StoreError, TfhybridError


@pytest.mark.parametrize(
    ("reduction", "delivery"),
    [*(("frequency", delivery) for delivery in DELIVERIES.values()), ("mean", PULL)],
)
@pytest.mark.parametrize("trainers", [1, 2])
@pytest.mark.parametrize("embedding", [1, 2, 3])
@pytest.mark.parametrize("data", [1, 2])
def test_the_bits_are_those_of_a_run_without_roles(
    tmp_path: Path, delivery: str, data: int, embedding: int, trainers: int, reduction: str
) -> None:
    choices = UpdateChoices(reduction=reduction)
    with split_job(tmp_path / "split", data, embedding, trainers) as job:
        job.train(choices, EPOCHS, delivery=delivery)
        found = [rows_of(engine, trainers) for engine in job.engines[:trainers]]
        created = [sum(node.table_stats(name).rows for node in job.owners) for name in TABLES]
        # Of each epoch what was looked up last, and what was asked for behind it.
        assert all(split_batches.held(node)[0] <= trainers * EPOCHS * 5 for node in job.owners)
    wanted = colocated(tmp_path / "colocated", trainers, choices)
    for of_trainer in found:
        for rows, same in zip(of_trainer, wanted, strict=True):
            np.testing.assert_array_equal(rows, same)
    assert created == [len(keys) - 10 for keys in all_keys(trainers)]


@pytest.mark.parametrize("delivery", [NOTIFY, PUSH])
def test_rows_that_are_sent_are_not_asked_for(tmp_path: Path, delivery: str) -> None:
    """Trainers have no connection to ask by."""
    sends = [LinkPurpose.UPDATES]
    with split_job(tmp_path / "sent", 2, 2, 2, sends) as job:
        job.train(epochs=EPOCHS, delivery=delivery)
        assert job.engines[0].table_stats("user").version == EPOCHS * STEPS
        with pytest.raises(StoreError, match="no connection to host"):
            rows_of(job.engines[0], 2)


def test_rows_of_another_version_than_was_said_are_asked_for(tmp_path: Path) -> None:
    """Two data sets in turn: each was told that all updates would be its own."""
    with split_job(tmp_path / "split", 1, 2, 1) as job:
        for node in job.owners:
            node.open_update("sgd", TABLES)
        trainer = job.engines[0]
        update = trainer.open_update("sgd", TABLES)
        feeds = [job.feed(0, 1, delivery=PUSH), job.feed(0, 2)]
        for epochs in zip(*(feed.epoch(job.declared) for feed in feeds), strict=True):
            for structure, leaves in epochs:
                element = unflatten(structure, [leaf.values for leaf in leaves])
                step(trainer, update, element, handles=True)
        job.settle()
        found = rows_of(trainer, 1)
    (tmp_path / "colocated").mkdir()
    with opened(tmp_path / "colocated", 1, 0, [(PlacementKind.REPLICATED, 0)] * 2) as engines:
        update = engines[0].open_update("sgd", TABLES)
        for element in dataset((0, 1)):
            step(engines[0], update, element, handles=False)
            step(engines[0], update, element, handles=False)
        for name in TABLES:
            engines[0].wait(name)
        for rows, same in zip(found, rows_of(engines[0], 1), strict=True):
            np.testing.assert_array_equal(rows, same)


def test_each_data_node_may_read_a_shard_of_its_own(tmp_path: Path) -> None:
    """By file: the data nodes take turns, and one that has ended is skipped."""
    lengths = {0: 2, 1: 5, 2: 3}
    with split_job(tmp_path / "split", 3, 2, 1) as job:
        job.make = lambda _, shard, __: dataset(shard, lengths[shard[0]])
        feed = job.feed(0, divide_by="file")
        found = [leaves[2].values for _, leaves in feed.epoch(job.declared)]
        feed.close()
    turns = [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1), (1, 2), (2, 2), (1, 3), (1, 4)]
    wanted = [dataset((node, 3), lengths[node])[number] for node, number in turns]
    for who, (features, _) in zip(found, wanted, strict=True):
        assert len(who) == len(features["who"])


@pytest.mark.parametrize("died", [0, 3, STEPS - 1])
def test_a_data_node_that_dies_reads_again(tmp_path: Path, died: int) -> None:
    """What it had not answered comes under the same tickets; nothing is lost or trained twice."""
    with split_job(tmp_path / "split", 2, 2, 1) as job:
        for node in job.owners:
            node.open_update("sgd", TABLES)
        update = job.engines[0].open_update("sgd", TABLES)
        feed = job.feed(0)
        for _ in range(EPOCHS):
            for number, (structure, leaves) in enumerate(feed.epoch(job.declared)):
                if number == died:
                    job.dials[-1 - number % 2][1].close()
                element = unflatten(structure, [leaf.values for leaf in leaves])
                step(job.engines[0], update, element, handles=True)
        feed.close()
        job.settle()
        assert len(job.dials) > 2
        assert job.engines[0].table_stats("item").version == EPOCHS * STEPS
        found = rows_of(job.engines[0], 1)
    for rows, same in zip(found, colocated(tmp_path / "colocated", 1, None), strict=True):
        np.testing.assert_array_equal(rows, same)


def test_another_content_under_the_same_id_is_refused(tmp_path: Path) -> None:
    """A pipeline that is not deterministic is noticed when a data node reads again."""
    with split_job(tmp_path / "split", 1, 2, 1) as job:
        read = []

        def make(_: str, shard: tuple[int, int], __: dict) -> list:
            read.append(shard)
            changed = [] if len(read) < 2 else dataset((5, 9))[1:]
            return [*dataset(shard)[:1], *(changed or dataset(shard)[1:])]

        job.make = make
        feed = job.feed(0)
        epoch = feed.epoch(job.declared)
        next(epoch)
        # The answer to the second batch is lost; its keys are with the owners.
        until(lambda: all(split_batches.held(node)[0] >= 2 for node in job.owners))
        job.dials[-1][1].close()
        with pytest.raises(NameTakenError, match=r"Batch session/0\.0/0/0/1 has the digest"):
            next(epoch)
        epoch.close()
        feed.close()


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    with split_job(tmp_path / "split", 1, 2, 1) as job:
        for node in job.owners:
            node.open_update("sgd", TABLES)
        trainer = job.engines[0]
        update = trainer.open_update("sgd", TABLES)
        evaluated, ended = job.feed(0, 1, trains=False), job.feed(0, 2)
        structure, leaves = next(evaluated.epoch(job.declared))
        element = unflatten(structure, [leaf.values for leaf in leaves])
        keys = flat(element[0])
        with pytest.raises(ConfigError, match="wants what data nodes sent"):
            split_batches.lookup(trainer, TABLES, [np.array([7]), keys[1]])
        unknown = keys[0] + (1 << 40)
        with pytest.raises(TfhybridError, match=r"The batch with ticket .* is not here"):
            split_batches.lookup(trainer, TABLES, [unknown, keys[1]])
        beyond = (keys[0] | ((1 << 26) - 1))[:1]
        message = r"keys of table 'item' here\. Received: key handle"
        with pytest.raises(TfhybridError, match=message):
            split_batches.lookup(trainer, TABLES, [beyond, keys[1]])
        step(trainer, update, element, handles=True)
        with pytest.raises(TfhybridError, match=r"is for evaluation\. Received: an update"):
            trainer.wait("item")
        ended.close()


def test_owners_forget_what_was_trained(tmp_path: Path) -> None:
    """However many epochs there are, they hold the batches that are in use."""
    with split_job(tmp_path / "split", 1, 1, 1) as job:
        job.train(epochs=1)
        once = split_batches.held(job.owners[0])
    with split_job(tmp_path / "many", 1, 1, 1) as job:
        job.train(epochs=12)
        assert split_batches.held(job.owners[0])[0] <= 2 * once[0]


def test_bytes_that_are_ahead_are_bound_and_one_batch_is_always_asked_for(tmp_path: Path) -> None:
    with split_job(tmp_path / "split", 1, 1, 1) as job:
        job.train(max_bytes=1)
        assert job.engines[0].table_stats("item").version == 2 * STEPS


def test_what_reading_raises_reaches_the_trainer(tmp_path: Path) -> None:
    def broken(shard: tuple[int, int]):
        yield dataset(shard)[0]
        raise OSError("the disk is gone")

    with split_job(tmp_path / "split", 1, 1, 1) as job:
        job.make = lambda _, shard, __: broken(shard)
        with pytest.raises(DataError, match="the disk is gone"):
            list(job.feed(0).epoch(job.declared))


def test_a_data_node_that_is_back_and_cannot_read_says_so(tmp_path: Path) -> None:
    """Nobody waits for the batches that it was not asked for again."""
    with split_job(tmp_path / "split", 1, 2, 1) as job:
        read = []

        def make(_: str, shard: tuple[int, int], __: dict) -> list:
            read.append(shard)
            if len(read) > 1:
                raise DataError("the disk is gone")
            return dataset(shard)

        job.make = make
        epoch = job.feed(0).epoch(job.declared)
        next(epoch)
        job.dials[-1][1].close()
        with pytest.raises(DataError, match="the disk is gone"):
            list(epoch)


def test_an_epoch_that_is_given_up_ends_before_the_next(tmp_path: Path) -> None:
    """Whoever gives it up waits for nobody, and need not be the one who read it."""
    with split_job(tmp_path / "split", 2, 1, 1) as job:
        feed = job.feed(0)
        whole = len(list(feed.epoch(job.declared)))
        for settles in (False, True):
            epoch = feed.epoch(job.declared)
            next(epoch)
            with job.epochs.paused() as feeds:
                assert feeds == [feed]
                epoch.close()
                if settles:
                    feed.settle()
        with job.epochs.paused() as feeds:
            assert feeds == []
        assert len(list(feed.epoch(job.declared))) == whole == STEPS


def test_one_iterator_at_a_time_reads_a_data_set(tmp_path: Path) -> None:
    with split_job(tmp_path / "split", 1, 1, 1) as job:
        feed = job.feed(0)
        first, second = feed.epoch(job.declared), feed.epoch(job.declared)
        next(first)
        assert len(list(second)) == STEPS
        with pytest.raises(ConfigError, match="One iterator at a time reads dataset"):
            next(first)
