"""Three trainers at once, on threads: the journal, replayed in NumPy, gives the weights' bits."""

from __future__ import annotations

import dataclasses
import heapq
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.support.reference.asynchronous import replayed
from tests.support.stream.model_updates import ADAGRAD, begun_model, lease_update
from tfhybrid.core.native import OptimizerKind
from tfhybrid.initializers import Uniform
from tfhybrid.stream.provider.deaths import DeathFile
from tfhybrid.stream.provider.lease_book import StalenessBound
from tfhybrid.stream.provider.lease_length import LeaseLength, Load
from tfhybrid.stream.provider.provider import Provider
from tfhybrid.stream.provider.routes import Routes
from tfhybrid.stream.provider.served_queue import LeaseRules, ServedQueue
from tfhybrid.stream.provider.served_queues import ServedQueues
from tfhybrid.stream.provider.set_aside import SetAside
from tfhybrid.stream.provider.work import GrantedWork, Request
from tfhybrid.stream.queues import rows
from tfhybrid.stream.queues.dead_letters import DeadLetters
from tfhybrid.stream.queues.log_queue import LogQueue
from tfhybrid.stream.queues.numbered_writer import NumberedWriter
from tfhybrid.stream.queues.queue_reader import QueueReader
from tfhybrid.stream.queues.row_columns import RowColumns
from tfhybrid.stream.sync_unit.group_commit import GroupCommit, Ticket
from tfhybrid.stream.sync_unit.target_model import Submitted, TargetModel
from tfhybrid.stream.weights.model_spec import ModelSpec, TableSpec

SCHEMA = pa.schema(
    [pa.field(name, pa.int64(), nullable=False) for name in ("item", "label", "slot")]
)
ROUTES = Routes(("slot",), {"0": "clicks"}, {"ads": ["clicks"]})
DIM = 5
ITEMS = 40
TRAINERS = 3
DELTAS = ModelSpec({"item": TableSpec(DIM, Uniform().native)}, [(DIM,), ()], seed=4)
GRADIENTS = dataclasses.replace(
    DELTAS,
    tables={"item": TableSpec(DIM, Uniform().native, ADAGRAD, slots=1)},
    dense_optimizer={"kind": OptimizerKind.SGD},
)


@pytest.fixture
def model(tmp_path: Path, shm_directory: Path) -> Iterator[TargetModel]:
    model = TargetModel("ads", tmp_path / "model", shm_directory)
    yield model
    model.close()


def _provider(
    folder: Path,
    model: TargetModel,
    count: int,
    staleness: int | None,
    length: LeaseLength | None = None,
) -> Provider:
    letters = DeadLetters(folder / "bad.jsonl", limit=0)
    queue = LogQueue(folder / "clicks", write=True, fsync="never")
    aside = SetAside(folder / "set-aside.json", DeathFile(folder / "deaths.json"))
    rules = LeaseRules({"ads": StalenessBound(staleness)}, 60.0, aside)
    served = ServedQueue(
        "clicks",
        NumberedWriter(queue, folder / "producers.json"),
        QueueReader(queue, RowColumns.of(SCHEMA), letters),
        {"ads": model},
        rules,
    )
    length = length or LeaseLength(rows=8)
    queues = ServedQueues({"clicks": served})
    provider = Provider(queues, RowColumns.of(SCHEMA), ROUTES, letters, length=length)
    random = np.random.default_rng(1)
    items = random.integers(0, ITEMS, count)
    labels = (items + random.integers(0, 9, count)) % 2
    batch = pa.record_batch([*map(pa.array, (items, labels, items * 0))], schema=SCHEMA)
    provider.put("web", 0, rows.encode(batch))
    return provider


class Trainer:
    """Logistic regression on an item's embedding, with plain gradients."""

    def __init__(self, name: str, spec: ModelSpec, provider: Provider, model: TargetModel) -> None:
        self.name, self._spec, self._provider, self._model = name, spec, provider, model
        self.leases = 0

    def run(self) -> None:
        for number in range(1 << 30):
            work = self._provider.lease(Request(self.name, number, "ads", batch=8))
            if work is None:
                return
            self._model.apply(self._update(work))
            self._provider.finish("ads", work.queue, work.lease.fence)
            self.leases += 1

    def _update(self, work: GrantedWork):
        keys, places = np.unique(work.batch["item"].to_numpy(), return_inverse=True)
        found, version = self._model.read({"item": keys, **self._spec.keys_of_weights()})
        weights, bias = self._spec.weights_of(found)
        embedded = found["item"][places]
        logits = embedded @ weights + bias
        errors = 1 / (1 + np.exp(-logits)) - work.batch["label"].to_numpy()
        errors = (errors / len(errors)).astype(np.float32)
        of_rows = np.zeros_like(found["item"])
        np.add.at(of_rows, places, errors[:, None] * weights)
        dense = [errors @ embedded, errors.sum()]
        scale = np.float32(-0.5 if self._spec.tables["item"].adds else 1.0)
        of_dense = self._spec.rows_of([each * scale for each in dense])
        return work.update(
            "ads",
            self.name,
            version,
            {"item": keys, **{name: pair[0] for name, pair in of_dense.items()}},
            {"item": of_rows * scale, **{name: pair[1] for name, pair in of_dense.items()}},
            dict.fromkeys(self._spec.all_tables, 0.5),
        )


@pytest.mark.parametrize("staleness", [None, 1])
@pytest.mark.parametrize("spec", [DELTAS, GRADIENTS], ids=["deltas", "gradients"])
def test_the_replay_of_three_trainers_has_the_same_bits(
    model: TargetModel, tmp_path: Path, spec: ModelSpec, staleness: int | None
):
    random = np.random.default_rng(0)
    dense = [random.normal(size=shape).astype(np.float32) for shape in spec.shapes]
    model.open(spec, dense)
    provider = _provider(tmp_path, model, 1000, staleness)
    trainers = [Trainer(f"t{number}", spec, provider, model) for number in range(TRAINERS)]
    threads = [threading.Thread(target=trainer.run) for trainer in trainers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # A trainer that the bound on staleness turns away has gone; somebody trains what is left.
    Trainer("last", spec, provider, model).run()
    replay, updates = replayed(tmp_path / "model" / "journal")
    assert sum(update.rows for update in updates) == 1000
    assert model.standing()["clicks"] == ((1, 0), 0)
    keys = {"item": np.arange(ITEMS), **spec.keys_of_weights()}
    found, version = model.read(keys)
    assert version == len(updates) == 125
    for name in keys:
        np.testing.assert_array_equal(found[name], replay.lookup(name, keys[name]), err_msg=name)
    if staleness is not None:
        based_on = [number - update.version for number, update in enumerate(updates)]
        assert max(based_on) <= staleness
    provider.close()


def test_trainers_of_unequal_speed_share_the_work_in_proportion(model: TargetModel, tmp_path: Path):
    """By clocks of their own: a trainer is busy for as long as its speed says."""
    model.open(DELTAS, [np.zeros(shape, np.float32) for shape in DELTAS.shapes])
    provider = _provider(tmp_path, model, 20_000, None, LeaseLength(seconds=2.0, first_rows=64))
    speeds = {"quick": 400.0, "slow": 100.0}
    done = dict.fromkeys(speeds, 0)
    free = [(0.0, number, name) for number, name in enumerate(speeds)]
    known: dict[str, float] = {}
    number = 1
    while free:
        now, _, name = heapq.heappop(free)
        number += 1
        request = Request(name, number, "ads", batch=8, load=Load(known.get(name, 0.0)))
        work = provider.lease(request)
        if work is None:
            continue
        provider.finish("ads", work.queue, work.lease.fence)
        known[name] = speeds[name]
        done[name] += work.lease.rows
        heapq.heappush(free, (now + work.lease.rows / speeds[name], number, name))
    provider.close()
    assert sum(done.values()) == 20_000
    # A lease of the quick one has 800 rows, and either may have got the last one.
    assert abs(done["quick"] - 4 * done["slow"]) <= 2 * 800


def test_what_waits_for_a_commit_is_committed_together():
    lock = threading.Lock()
    groups: list[list[int]] = []

    def commit(tickets: list[Ticket[int]]) -> None:
        groups.append([ticket.item for ticket in tickets])
        for ticket in tickets:
            if ticket.item % 2:
                ticket.fail(ValueError(ticket.item))
            else:
                ticket.succeed(ticket.item * 10)
        if 4 in groups[-1]:
            raise OSError("after the fact")

    group: GroupCommit[int] = GroupCommit(lock, commit)
    results: dict[int, object] = {}

    def submit(item: int) -> None:
        try:
            results[item] = group.submit(item)
        except ValueError as error:
            results[item] = error.args

    threads = [threading.Thread(target=submit, args=(item,)) for item in range(6)]
    with lock:
        for thread in threads:
            thread.start()
        while len(group._waiting) < len(threads):
            pass
    for thread in threads:
        thread.join()
    assert len(groups) == 1
    assert results == {0: 0, 1: (1,), 2: 20, 3: (3,), 4: 40, 5: (5,)}
    with pytest.raises(ValueError, match="7"):
        group.submit(7)


def test_a_commit_that_fails_fails_all_of_its_items():
    def commit(tickets: list[Ticket[int]]) -> None:
        raise OSError("the disk is gone")

    group: GroupCommit[int] = GroupCommit(threading.Lock(), commit)
    with pytest.raises(OSError, match="the disk is gone"):
        group.submit(1)


def test_updates_of_the_same_rows_in_one_group(model: TargetModel):
    """Each is judged by what the group before it has led to."""
    begun = begun_model(model)
    updates = [
        lease_update(0),
        lease_update(1),
        lease_update(0),
        lease_update(0, fence=lease_update(1).fence),
    ]
    tickets = [Ticket(Submitted(update, update.to_record())) for update in updates]
    begun._commit(tickets)
    assert [ticket.result for ticket in tickets] == [(1, True), (2, True), (2, False), (2, False)]
