"""Trainers of this process, with NumPy alone, whose tables lie on embedding nodes that are up."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

from tests.support.core.sharded_hosts import link
from tests.support.core.sharded_tables import ADAGRAD, INITIALIZER, TABLES
from tests.support.roles.clusters import found, member_of
from tfhybrid.cluster.cluster_file import Cluster
from tfhybrid.core.native import LinkPurpose, PlacementKind
from tfhybrid.core.opened_table import OpenedTable
from tfhybrid.core.store_token import token_of
from tfhybrid.embedding_nodes.node_links import NodeLinks
from tfhybrid.embedding_nodes.node_session import JobOnNodes, begin
from tfhybrid.embedding_nodes.nodes_engine import NodesEngine
from tfhybrid.rpc.tls import Tls

SILENCE = 5.0


@contextlib.contextmanager
def connected(  # noqa: C901 - in the order of a job
    cluster: Cluster,
    directory: Path,
    trainers: int,
    job: str = "job",
    *,
    resumes: bool = False,
    recovers: bool = False,
    tls: Tls | None = None,
    policy: dict[str, float] | None = None,
    optimizer: dict[str, float] = ADAGRAD,
    links: list[NodeLinks] | None = None,
    silence: float = SILENCE,
) -> Iterator[list[NodesEngine]]:
    """Trainers of a host each that have connected to the nodes, with open tables; the first asks.

    `links` receives what each is connected by. With `resumes` they leave all stores behind as if
    they had died, with `recovers` they go on from such.
    """
    nodes = found(cluster, tls)
    hosts = list(range(trainers))
    first = member_of(cluster, "trainer 0", silence, tls)
    calls = begin(nodes, first, JobOnNodes(job, hosts, resumes))
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
                    link(reader, owner, LinkPurpose.UPDATES, "trainer")
        for engine in engines:
            member = dataclasses.replace(first, name=f"trainer {engine.host}")
            made = NodeLinks(engine, nodes, member, leads=True)
            made.connect()
            if links is not None:
                links.append(made)
            for table, dim in TABLES.items():
                placement = (PlacementKind.BY_KEY, 0)
                engine.open_table(
                    OpenedTable(
                        table, dim, INITIALIZER.native, policy=policy or {}, placement=placement
                    )
                )
                engine.set_optimizer(table, **optimizer)
        yield engines
    finally:
        for engine in engines:
            engine.close_store(leave=resumes)
            engine.leave_nodes()
