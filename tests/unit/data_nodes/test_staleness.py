"""Rows may lack up to k updates, never more; NumPy computes a run again from the log of reads."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.support.core.sharded_tables import INITIALIZER, RATE
from tests.support.reference.stale_rows import StaleTable, replay
from tests.support.roles.clusters import (
    killed,
    node,
    own_memory,
    until,
    write_cluster,
)
from tests.support.roles.colocated_run import all_keys, colocated, rows_of
from tests.support.roles.data_script import SCRIPT
from tests.support.roles.moving_trainers import Trainers
from tests.support.roles.numpy_trainers import connected
from tests.support.roles.owner_engines import BY_KEY
from tests.support.roles.split_roles import (
    ADAGRAD,
    STEPS,
    TABLES,
    Job,
    dataset,
    flat,
    gradients_of,
    split_job,
    step,
    train_fed,
)
from tfhybrid.cluster import launching
from tfhybrid.cluster.cluster_file import Cluster
from tfhybrid.core import native, split_batches
from tfhybrid.core.split_batches import SplitBatch
from tfhybrid.data_nodes.data_request import DataRequest
from tfhybrid.data_nodes.elements import unflatten
from tfhybrid.data_nodes.grouping import by_label
from tfhybrid.data_nodes.key_links import (
    DELIVERIES,
    NOTIFY,
    PULL,
    PUSH,
)
from tfhybrid.data_nodes.read_log import middle
from tfhybrid.embedding_nodes.node_links import NodeLinks
from tfhybrid.errors import StoreError, TfhybridError

EPOCHS = 2
SEED = 0


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
    owners: tuple[int, int],
) -> list[np.ndarray]:
    """The rows that NumPy trains from the log.

    Args:
        steps: The batches of all ranks in order.
        reads: The log; a batch that was read twice counts as it was last.
        owners: The first host that owns rows, and the number of all hosts.
    """
    trainers = len(steps[0])
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
        of_batch.setdefault((read.applied, read.rank), {})[read.table, read.owner] = read.version
    told = [
        [
            (features, labels, of_batch[number + 1, rank])
            for rank, (features, labels) in enumerate(of_ranks)
        ]
        for number, of_ranks in enumerate(steps)
    ]

    def owners_of(table: str, keys: np.ndarray) -> np.ndarray:
        handles, _ = split_batches.make_key_handles(table, BY_KEY, owners, 0, [keys])
        return handles[0] >> split_batches.INDEX_BITS & ((1 << split_batches.OWNER_BITS) - 1)

    replay(tables, told, flat, owners_of, gradients_of)
    return [
        table.lookup(keys, table.version)
        for table, keys in zip(tables.values(), all_keys(trainers), strict=True)
    ]


def fetched() -> int:
    """Rows that this process was given."""
    return int(native.counters()["fetched_rows"])


def steps_of(trainers: int) -> list[tuple]:
    """The batches of all ranks, over all epochs."""
    return list(zip(*(dataset((rank, trainers)) for rank in range(trainers)), strict=True)) * EPOCHS


@pytest.mark.parametrize("delivery", DELIVERIES.values())
@pytest.mark.parametrize("trainers", [1, 2])
@pytest.mark.parametrize(("data", "embedding"), [(1, 1), (2, 3)])
@pytest.mark.parametrize("staleness", [1, 4])
def test_numpy_trains_the_same_bits_from_the_log(
    tmp_path: Path, delivery: str, data: int, embedding: int, trainers: int, staleness: int
) -> None:
    """Later batches have keys that earlier ones had not."""
    with split_job(tmp_path / "split", data, embedding, trainers) as job:
        reads = train_and_log(job, tmp_path, staleness, delivery=delivery)
        found = [rows_of(engine, trainers) for engine in job.engines[:trainers]]
        wanted = replayed(steps_of(trainers), reads, job.declared.owners)
    assert 0 <= missing(reads) <= staleness
    for read in reads:
        assert read.applied == read.epoch * STEPS + read.number + 1
    for of_trainer in found:
        for rows, same in zip(of_trainer, wanted, strict=True):
            np.testing.assert_array_equal(rows, same)


@pytest.mark.parametrize("delivery", DELIVERIES.values())
def test_without_staleness_there_is_no_log_and_the_bits_are_those_without_roles(
    tmp_path: Path, delivery: str
) -> None:
    with split_job(tmp_path / "split", 2, 2, 2) as job:
        assert train_and_log(job, tmp_path, 0, delivery=delivery) == []
        found = rows_of(job.engines[1], 2)
    for rows, same in zip(found, colocated(tmp_path / "colocated", 2, None), strict=True):
        np.testing.assert_array_equal(rows, same)


def test_rows_that_are_sent_lack_as_many_updates_as_they_may(tmp_path: Path) -> None:
    """The first batches of an epoch are sent before one of them is trained."""
    with split_job(tmp_path / "split", 1, 2, 1) as job:
        trainer = job.engines[0]
        for node in job.owners:
            node.open_update("sgd", TABLES)
        update = trainer.open_update("sgd", TABLES)
        log = job.log(0)
        log.write_to(tmp_path / "reads-0.jsonl")
        feed = job.feed(0, delivery=PUSH, staleness=3)
        epoch = feed.epoch(job.declared)
        begin = next(epoch)
        until(lambda: all(split_batches.held(node)[0] == 4 for node in job.owners))
        for structure, leaves in itertools.chain([begin], epoch):
            element = unflatten(structure, [leaf.values for leaf in leaves])
            step(trainer, update, element, handles=True)
        feed.close()
        log.note()
        reads = lines_of(tmp_path, 1)
        found = log.missing()
        job.settle()
    assert missing(reads) == 3
    assert sum(found.values()) == len(reads)
    assert max(found) == 3


@pytest.mark.parametrize("counts", [{0: 1}, {0: 2, 3: 1, 1: 4}, {4: 2, 0: 2}, {2: 1, 7: 3}])
def test_the_median_is_that_of_all_reads(counts: Mapping[int, int]) -> None:
    reads = np.repeat([*counts], [*counts.values()])
    assert middle(counts) == np.quantile(reads, 0.5, method="lower")


def test_an_owner_sends_nothing_that_lacks_more(tmp_path: Path) -> None:
    """A batch that may go is sent before one that was announced earlier and may not."""
    with split_job(tmp_path / "split", 1, 1, 1) as job:
        trainer, node = job.engines
        before = fetched()
        job.feed(0, delivery=PUSH).close()  # connects the trainer
        keys = {"item": np.arange(5), "user": np.arange(7)}
        for ticket, staleness in [(1, 2), (2, 3)]:
            split_batches.put(
                node, SplitBatch(ticket, (f"b{ticket}", "d"), 0, True, staleness), keys
            )
            split_batches.expect(trainer, ticket, {}, staleness)
            split_batches.send(node, 0, ticket, {"item": 3, "user": 3})
        until(lambda: fetched() > before)
        split_batches.put(node, SplitBatch(3, ("b3", "d"), 0, True), {"item": np.arange(2)})
        split_batches.expect(trainer, 3, {})
        split_batches.send(node, 0, 3, {"item": 0})
        until(lambda: fetched() >= before + 5 + 7 + 2)
        assert fetched() == before + 5 + 7 + 2


def test_a_trainer_refuses_rows_that_lack_more(tmp_path: Path) -> None:
    """An owner that was told of another staleness."""
    with split_job(tmp_path / "split", 1, 1, 1) as job:
        trainer, node = job.engines
        node.open_update("sgd", TABLES)
        update = trainer.open_update("sgd", TABLES)
        before = fetched()
        job.feed(0, delivery=PUSH).close()
        keys = {"item": np.arange(5), "user": np.arange(7)}
        for ticket in range(3):
            split_batches.put(node, SplitBatch(ticket, (f"b{ticket}", "d"), 0, True, 9), keys)
            split_batches.expect(trainer, ticket, {"item": ticket, "user": ticket}, 1)
            split_batches.send(node, 0, ticket, {"item": ticket, "user": ticket})
        until(lambda: fetched() >= before + 3 * (5 + 7))
        for ticket in range(3):
            handles = [
                np.array(
                    [
                        split_batches.key_handle_of(ticket, node.host, index)
                        for index in range(len(of))
                    ]
                )
                for of in keys.values()
            ]
            if ticket == 2:
                with pytest.raises(
                    StoreError, match=r"may lack 1 updates of 2\. Received: version 0 from host 1"
                ):
                    split_batches.lookup(trainer, TABLES, handles)
                return
            rows = split_batches.lookup(trainer, TABLES, handles)
            update.post(handles, rows, [RATE] * 2, samples=1)
        raise AssertionError


@pytest.mark.parametrize("others", [0, 1])
def test_trainers_that_differ_are_refused(tmp_path: Path, others: int) -> None:
    with split_job(tmp_path / "split", 1, 2, 2) as job:
        for node in job.owners:
            node.open_update("sgd", TABLES)
        updates = [engine.open_update("sgd", TABLES) for engine in job.engines[:2]]
        feeds = [job.feed(0, staleness=4), job.feed(1, staleness=others)]
        epochs = [feed.epoch(job.declared) for feed in feeds]
        for engine, update, epoch in zip(job.engines, updates, epochs, strict=False):
            structure, leaves = next(epoch)
            element = unflatten(structure, [leaf.values for leaf in leaves])
            step(engine, update, element, handles=True)
        with pytest.raises(
            TfhybridError,
            match=rf"the same staleness\. Received: staleness=4 of batch .* staleness={others} of",
        ):
            job.engines[1].wait("item")
        for node in job.owners:
            assert node.table_stats("item").version == 0
        for epoch in epochs:
            epoch.close()
        for feed in feeds:
            feed.close()


@pytest.mark.parametrize("delivery", [NOTIFY, PUSH])
@pytest.mark.parametrize("died", [0, 3, STEPS - 1])
def test_a_batch_that_is_sent_again_keeps_the_bound(
    tmp_path: Path, died: int, delivery: str
) -> None:
    """A data node dies; what it had not answered comes again, and its rows, too."""
    with split_job(tmp_path / "split", 2, 2, 1) as job:
        for node in job.owners:
            node.open_update("sgd", TABLES)
        trainer = job.engines[0]
        update = trainer.open_update("sgd", TABLES)
        job.log(0).write_to(tmp_path / "reads-0.jsonl")
        feed = job.feed(0, delivery=delivery, staleness=4)
        for _ in range(EPOCHS):
            for number, (structure, leaves) in enumerate(feed.epoch(job.declared)):
                if number == died:
                    job.dials[-1 - number % 2][1].close()
                element = unflatten(structure, [leaf.values for leaf in leaves])
                step(trainer, update, element, handles=True)
        feed.close()
        job.settle()
        job.log(0).note()
        reads = lines_of(tmp_path, 2)
        assert len(job.dials) > 2
        found = rows_of(trainer, 1)
        wanted = replayed(steps_of(1), reads, job.declared.owners)
    assert 0 <= missing(reads) <= 4
    for rows, same in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(rows, same)


def test_batches_of_one_label_may_lack_updates(tmp_path: Path) -> None:
    with split_job(tmp_path / "split", 2, 2, 1) as job:
        reads = train_and_log(job, tmp_path, 4, delivery=PUSH, group_by="label")
        found = rows_of(job.engines[0], 1)
        grouped = []
        for features, labels in by_label(dataset((0, 1))):
            grouped.append([({name: its.values for name, its in features.items()}, labels.values)])
        wanted = replayed(grouped * EPOCHS, reads, job.declared.owners)
    assert 0 < missing(reads) <= 4
    for rows, same in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(rows, same)


@pytest.mark.parametrize("delivery", [PULL, PUSH])
def test_evaluation_lacks_nothing(tmp_path: Path, delivery: str) -> None:
    """Between steps of training that may lack updates."""
    with split_job(tmp_path / "split", 1, 2, 1) as job:
        for node in job.owners:
            node.open_update("sgd", TABLES)
        trainer = job.engines[0]
        update = trainer.open_update("sgd", TABLES)
        trained = job.feed(0, 1, delivery=PUSH, staleness=4)
        evaluated = job.feed(0, 2, delivery=delivery, trains=False)
        both = zip(
            trained.epoch(job.declared),
            evaluated.epoch(job.declared),
            dataset((0, 1)),
            strict=True,
        )
        for (structure, leaves), (its, its_leaves), (features, _) in both:
            element = unflatten(structure, [leaf.values for leaf in leaves])
            step(trainer, update, element, handles=True)
            handles = flat(unflatten(its, [leaf.values for leaf in its_leaves])[0])
            rows = split_batches.lookup(trainer, TABLES, handles)
            for (name, dim), keys, of_table in zip(
                TABLES.items(), flat(features), rows, strict=True
            ):
                np.testing.assert_array_equal(of_table, trainer.lookup(name, dim, keys))
        assert all(read.complete - read.version <= 4 for read in split_batches.reads(trainer))
        for feed in (trained, evaluated):
            feed.close()


def test_a_log_that_cannot_be_written_ends_training(tmp_path: Path) -> None:
    with split_job(tmp_path / "split", 1, 1, 1) as job:
        with pytest.raises(StoreError, match=r"The log of reads .* cannot be written: .*directory"):
            job.log(0).write_to(tmp_path)
        job.log(0).write_to(Path("/dev/full"))
        with pytest.raises(StoreError, match=r"/dev/full cannot be written: .*No space left"):
            job.train(staleness=1)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Two embedding nodes and a data node, which are processes."""
    (tmp_path / "script.py").write_text(SCRIPT)
    made = write_cluster(tmp_path, 2, "  data: {count: 1, script: script.py}\n")
    with own_memory():
        launching.up(made)
        yield made
        launching.down(made)


@pytest.mark.parametrize("victim", ["embedding-1", "data-0"])
def test_a_job_whose_node_was_killed_resumes_within_the_bound(
    cluster: Cluster, tmp_path: Path, victim: str
) -> None:
    """The job of a killed embedding node goes on from memory; a data node is waited for."""

    def kill(_: int, number: int) -> None:
        if number == 4:
            until(lambda: node(cluster, "data-0")["numbers"].get("staleness") == 4)
            killed(cluster, victim)

    reads: list[Read] = []
    begun: list[int] = []
    found: list[np.ndarray] = []
    while not found:
        until(lambda: launching.status(cluster)["missing"] == [])
        links: list[NodeLinks] = []
        folder = tmp_path / f"run-{len(begun)}"
        with connected(
            cluster, tmp_path, 1, resumes=True, recovers=bool(begun), links=links
        ) as engines:
            begun.append(int(engines[0].table_stats("item").version))
            wanted = DataRequest(
                *("dataset", {"steps": STEPS}, "batch", True, PUSH, 2, 3, 1 << 20),
                step=begun[-1],
                staleness=4,
                read_log=str(folder),
            )
            with contextlib.suppress(TfhybridError):
                train_fed(engines[0], links[0], wanted, 1, kill if len(begun) == 1 else none)
                found = rows_of(engines[0], 1)
            links[0].stop()
            owners = engines[0].first_node, engines[0].first_node + engines[0].nodes
        of_run = lines_of(folder, 1)
        assert all(begun[-1] <= read.version < read.applied for read in of_run)
        assert 0 <= missing(of_run) <= 4
        reads += of_run
    assert len(begun) == (1 if victim == "data-0" else 2)
    steps = [[each] for each in dataset((0, 1))]
    for rows, same in zip(found, replayed(steps, reads, owners), strict=True):
        np.testing.assert_array_equal(rows, same)


def test_shards_that_move_among_batches_keep_the_bound(cluster: Cluster, tmp_path: Path) -> None:
    links: list[NodeLinks] = []
    with connected(cluster, tmp_path, 1, links=links) as engines:
        trainers = Trainers(cluster, engines, links, "job")

        def move(_: int, number: int) -> None:
            if number in (1, 4):
                assert trainers.move_amid_batches(number % 2) == 1

        wanted = DataRequest(
            *("dataset", {"steps": STEPS}, "batch", True, PUSH, 2, 3, 1 << 20),
            staleness=4,
            read_log=str(tmp_path),
        )
        train_fed(engines[0], links[0], wanted, 1, move)
        found = rows_of(engines[0], 1)
        links[0].stop()
        owners = engines[0].first_node, engines[0].first_node + engines[0].nodes
    reads = lines_of(tmp_path, 1)
    assert 0 <= missing(reads) <= 4
    steps = [[each] for each in dataset((0, 1))]
    for rows, same in zip(found, replayed(steps, reads, owners), strict=True):
        np.testing.assert_array_equal(rows, same)


def none(_epoch: int, _number: int) -> None:
    """Nothing is killed."""
