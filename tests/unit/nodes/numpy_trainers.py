"""Trainers of this process, with NumPy alone, whose tables lie on embedding nodes that are up."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.reference.clusters import found
from tests.unit.core.test_sharded import INITIALIZER, RATE, STEPS, TABLES, batch
from tfhybrid.core.native import LinkPurpose, OptimizerKind, PlacementKind
from tfhybrid.core.store_token import token_of
from tfhybrid.core.update import UpdateChoices
from tfhybrid.nodes.cluster_file import Cluster
from tfhybrid.nodes.engine import NodesEngine
from tfhybrid.nodes.joining import NodeLinks, begin
from tfhybrid.nodes.node_options import read_token

SILENCE = 5.0


@contextlib.contextmanager
def joined(
    cluster: Cluster,
    directory: Path,
    trainers: int,
    job: str = "job",
    *,
    resumes: bool = False,
    recovers: bool = False,
) -> Iterator[list[NodesEngine]]:
    """Trainers of a host each that have joined the nodes, with open tables; the first asks.

    With `resumes` they leave all stores behind as if they had died, with `recovers` they go on from
    such.
    """
    token = read_token(cluster.token_file)
    nodes = found(cluster)
    hosts = list(range(trainers))
    calls = begin(nodes, token, "trainer 0", SILENCE, job, hosts, resumes=resumes)
    engines = [
        NodesEngine(hosts, host, len(nodes.names), calls if host == 0 else None) for host in hosts
    ]
    try:
        for host, engine in enumerate(engines):
            (directory / f"{job}-{host}").mkdir(exist_ok=True)
            store = str(directory / f"{job}-{host}")
            if recovers:
                engine.recover_store(store, job, f"trainer {host}")
            else:
                engine.open_store(store, job, 0, f"trainer {host}", token_of(7, host))
        for engine in engines if recovers else []:
            engine.forget_updates()
        for reader in engines:
            for owner in engines:
                if owner is not reader:
                    mine, its = socket.socketpair()
                    reader.connect_owner(
                        owner.host, LinkPurpose.UPDATES, mine, f"trainer {owner.host}"
                    )
                    owner.serve_owner(
                        reader.host, LinkPurpose.UPDATES, its, f"trainer {reader.host}"
                    )
        for engine in engines:
            name = f"trainer {engine.host}"
            NodeLinks(engine, nodes, token, name, SILENCE, leads=True).connect()
            for table, dim in TABLES.items():
                placement = (PlacementKind.BY_KEY, 0)
                engine.open_table(table, dim, INITIALIZER.native, placement=placement)
                engine.set_optimizer(
                    table, kind=OptimizerKind.ADAGRAD, initial_accumulator_value=0.1, epsilon=1e-7
                )
        yield engines
    finally:
        for engine in engines:
            engine.close_store(leave=resumes)
            engine.leave_nodes()


def train(
    engines: Sequence[NodesEngine],
    choices: UpdateChoices | None = None,
    first: int = 0,
    steps: int = STEPS,
) -> None:
    """Steps of `test_sharded`, those from `first` on."""
    updates = [engine.open_update("sgd", TABLES, choices) for engine in engines]
    for step in range(first, first + steps):
        for rank, update in enumerate(updates):
            keys, gradients = batch(step, rank)
            update.post(keys, gradients, [RATE] * 2, samples=len(keys[0]))
        for engine in engines:
            for name in TABLES:
                engine.wait(name)
