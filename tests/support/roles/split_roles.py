"""Data nodes, embedding nodes and trainers of this process: real sockets, NumPy in the model."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.core.sharded_tables import ADAGRAD, RATE, TABLES
from tests.support.roles.owner_engines import BY_KEY, opened
from tfhybrid.core import split_batches
from tfhybrid.core.engine import Engine
from tfhybrid.core.native import LinkPurpose
from tfhybrid.core.update import Update, UpdateChoices
from tfhybrid.data_nodes.data_request import DataRequest, Trainer
from tfhybrid.data_nodes.data_streams import BY_BATCH, DataStream
from tfhybrid.data_nodes.elements import unflatten
from tfhybrid.data_nodes.feed import Feed, TrainerParts
from tfhybrid.data_nodes.key_links import PULL, KeyCalls, KeyLinks
from tfhybrid.data_nodes.open_epochs import OpenEpochs
from tfhybrid.data_nodes.pushed_rows import EngineRows
from tfhybrid.data_nodes.read_log import ReadLog
from tfhybrid.data_nodes.splitting import Declared
from tfhybrid.data_nodes.tickets import TicketBook
from tfhybrid.embedding_nodes.node_links import NodeLinks
from tfhybrid.embedding_nodes.nodes_engine import NodesEngine
from tfhybrid.errors import StoreError
from tfhybrid.rpc.calls import Caller, answer_calls
from tfhybrid.rpc.messages import MessageLink
from tfhybrid.rpc.remote_methods import Called, served

__all__ = ["ADAGRAD", "TABLES"]

FEATURES = {"clicked": "item", "carted": "item", "who": "user"}
STEPS = 7
SAMPLES = 12


def dataset(shard: tuple[int, int], steps: int = STEPS) -> list[tuple[dict, np.ndarray]]:
    """Batches of a shard: later ones have keys that earlier ones had not."""
    made = []
    for step in range(steps):
        random = np.random.default_rng([step, *shard])
        count = SAMPLES - 5 * (step == 2) + shard[0]
        features = {
            "clicked": random.integers(-20, 20 + 15 * step, (count, 3)),
            "carted": random.integers(-20, 20 + 15 * step, (count, 2)).astype(np.int32),
            "who": random.integers(-(2**63), 2**63, count) >> (50 * (step % 2)),
            "price": random.normal(size=(count, 4)).astype(np.float32),
        }
        made.append((features, random.integers(0, 2, count).astype(np.float32)))
    return made


def make(function: str, shard: tuple[int, int], arguments: Mapping[str, Any]) -> list:
    assert function == "dataset"
    return dataset(shard, **arguments)


def flat(features: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The keys of each table, feature by feature."""
    of = {table: [] for table in TABLES}
    for feature, table in FEATURES.items():
        of[table].append(features[feature].ravel().astype(np.int64))
    return [np.concatenate(some) for some in of.values()]


def gradients_of(
    rows: Sequence[np.ndarray], features: Mapping[str, np.ndarray], labels: np.ndarray
) -> list[np.ndarray]:
    """Gradients that depend on every row, every number and every label."""
    logits = features["price"].sum(axis=1) - labels
    for of_table in rows:
        logits = logits + of_table.reshape(len(labels), -1).sum(axis=1)
    each = np.tanh(logits)
    return [
        (np.repeat(each, len(of_table) // len(labels))[:, None] * (of_table + 1)).astype(np.float32)
        for of_table in rows
    ]


def step(
    engine: Engine, update: Update, element: tuple[dict, np.ndarray], *, handles: bool
) -> None:
    """What a rank does with a batch."""
    features, labels = element
    keys = flat(features)
    if handles:
        rows = split_batches.lookup(engine, TABLES, keys)
    else:
        rows = [
            engine.lookup(name, dim, some)
            for (name, dim), some in zip(TABLES.items(), keys, strict=True)
        ]
    gradients = gradients_of(rows, features, labels)
    update.post(keys, gradients, [RATE] * len(TABLES), samples=len(labels))


@dataclasses.dataclass
class Job:
    """Trainers, embedding nodes and data nodes.

    Args:
        engines: Of trainers, then of embedding nodes.
        trainers: How many.
        nodes: How many data nodes.
        make: What data nodes read.
        dials: Connections to data nodes, in order.
        books: Of trainers.
        epochs: That have begun.
        logs: Of trainers.
    """

    engines: Sequence[Engine]
    trainers: int
    nodes: int
    make: Any = make
    stream: type[DataStream] = DataStream
    dials: list[tuple[str, Caller]] = dataclasses.field(default_factory=list)
    books: dict[int, TicketBook] = dataclasses.field(default_factory=dict)
    epochs: OpenEpochs = dataclasses.field(default_factory=OpenEpochs)
    logs: dict[int, ReadLog] = dataclasses.field(default_factory=dict)

    @property
    def owners(self) -> Sequence[Engine]:
        return self.engines[self.trainers :]

    @property
    def declared(self) -> Declared:
        placements = {table: (int(BY_KEY[0]), BY_KEY[1]) for table in TABLES}
        return Declared(FEATURES, placements, self.trainers, len(self.engines))

    def dial(self, name: str) -> Caller:
        """A connection to a data node, which is one as long as that lasts."""
        stream = self.stream(self.make, lambda _: self.key_links())
        link = Caller(served_socket(served(stream), stream.close), name)
        self.dials.append((name, link))
        return link

    def key_links(self) -> KeyLinks:
        return KeyLinks(
            [
                Caller(served_socket(served(KeyCalls(each))), f"node {each.host}")
                for each in self.owners
            ]
        )

    def log(self, rank: int) -> ReadLog:
        """What a trainer has read of batches with a staleness."""
        if rank not in self.logs:
            engine = self.engines[rank]
            self.logs[rank] = ReadLog(lambda: split_batches.reads(engine))
        return self.logs[rank]

    def feed(self, rank: int, number: int = 0, **wanted: Any) -> Feed:
        """A data set of a trainer."""
        names = [f"data-{node}" for node in range(self.nodes)]
        trainer = Trainer("session", rank, self.trainers, list, names, silence=60.0)
        if rank not in self.books:
            engine = self.engines[rank]
            book = TicketBook(lambda: split_batches.looked_up(engine), rank, self.trainers)
            self.books[rank] = book
        told = {
            "function": "dataset",
            "arguments": {},
            "divide_by": BY_BATCH,
            "trains": True,
            "delivery": PULL,
            "lag": 2,
            "ahead": 3,
            "max_bytes": 1 << 20,
        }
        rows = EngineRows(self.engines[rank], TABLES, self.log(rank))
        if (told | wanted)["delivery"] != PULL:
            for node in self.owners:
                mine, its = socket.socketpair()
                split_batches.receive_rows(self.engines[rank], node.host, mine, f"node {node.host}")
                split_batches.send_rows(node, rank, its, f"trainer {rank}")
        parts = TrainerParts(self.dial, self.books[rank], rows, self.epochs)
        return Feed(trainer, DataRequest(**told | wanted), number, parts)

    def train(self, choices: UpdateChoices | None = None, epochs: int = 2, **wanted: Any) -> None:
        """Trains on what data nodes send."""
        for node in self.owners:
            node.open_update("sgd", TABLES, choices)
        trainers = self.engines[: self.trainers]
        updates = [each.open_update("sgd", TABLES, choices) for each in trainers]
        feeds = [self.feed(rank, **wanted) for rank in range(self.trainers)]
        for _ in range(epochs):
            epoch = zip(*(feed.epoch(self.declared) for feed in feeds), strict=True)
            for of_ranks in epoch:
                for rank, (structure, leaves) in enumerate(of_ranks):
                    element = unflatten(structure, [leaf.values for leaf in leaves])
                    step(self.engines[rank], updates[rank], element, handles=True)
        for feed in feeds:
            feed.close()
        self.settle()

    def settle(self) -> None:
        """Waits until all have applied what was posted."""
        for trainer in self.engines[: self.trainers]:
            for name in TABLES:
                trainer.wait(name)
        versions = [self.engines[0].table_stats(name).version for name in TABLES]
        for node in self.owners:
            node.read(TABLES, [np.empty(0, np.int64)] * len(TABLES), min_versions=versions)


@contextlib.contextmanager
def split_job(
    directory: Path,
    data: int,
    embedding: int,
    trainers: int,
    purposes: Sequence[LinkPurpose] = tuple(LinkPurpose),
) -> Iterator[Job]:
    """A job with roles whose trainers take key handles."""
    directory.mkdir(exist_ok=True)
    with opened(directory, trainers, embedding, purposes=purposes) as engines:
        for trainer in engines[:trainers]:
            split_batches.use_key_handles(trainer)
        yield Job(engines, trainers, data)


def served_socket(calls: Mapping[str, Called], done: Any = lambda: None) -> socket.socket:
    """A socket whose other end answers calls, on a thread."""
    mine, its = socket.socketpair()

    def answer() -> None:
        link = MessageLink(its, "a test")
        with contextlib.suppress(StoreError):
            answer_calls(link, calls)
        link.close()
        done()

    threading.Thread(target=answer, daemon=True).start()
    return mine


def train_fed(
    trainer: NodesEngine,
    links: NodeLinks,
    wanted: DataRequest,
    epochs: int,
    before: Callable[[int, int], object] = lambda _epoch, _number: None,
) -> None:
    """Trains one trainer on what data nodes that are processes send it.

    `before` is called before each batch with the epoch and the number of the batch.
    """
    split_batches.use_key_handles(trainer)
    update = trainer.open_update("sgd", TABLES)
    feed = links.feed(wanted, 0, 1)
    assert feed.describe().cardinality == STEPS
    first = trainer.first_node
    declared = Declared(FEATURES, trainer.placements, first, first + trainer.nodes)
    for epoch in range(epochs):
        before(epoch, -1)
        for number, (structure, leaves) in enumerate(feed.epoch(declared)):
            before(epoch, number)
            element = unflatten(structure, [leaf.values for leaf in leaves])
            step(trainer, update, element, handles=True)
    feed.close()
    for name in TABLES:
        trainer.wait(name)
