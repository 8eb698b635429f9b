"""Trainers of this process that move shards of their tables from one node to another."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.support.core.pass_trainers import UNSEEN
from tests.support.core.sharded_tables import ADAGRAD, TABLES
from tests.support.roles.clusters import member_of
from tests.support.roles.numpy_trainers import SILENCE, connected
from tfhybrid.cluster.balance import Move
from tfhybrid.cluster.cluster_file import Cluster
from tfhybrid.cluster.registration import ClusterMember
from tfhybrid.core import native
from tfhybrid.embedding_nodes.moving import Mover
from tfhybrid.embedding_nodes.node_links import NodeLinks
from tfhybrid.embedding_nodes.node_session import JobOnNodes
from tfhybrid.embedding_nodes.nodes_engine import NodesEngine
from tfhybrid.rpc.calls import Caller

SHARDS = 4
NAMES = ("embedding-0", "embedding-1")
# Waiting keys, histories and evictions; and a decay of weights.
POLICY = UNSEEN | {"admission": 2, "waiting_steps": 6}


class Trainers:
    """Trainers of this process, whose shards the test moves."""

    def __init__(
        self, cluster: Cluster, engines: list[NodesEngine], links: list[NodeLinks], job: str
    ) -> None:
        self.engines = engines
        self._cluster = cluster
        self._links = links
        self._job = job

    def metadata(self) -> contextlib.closing[Caller]:
        return contextlib.closing(member_of(self._cluster, "a test").call_metadata())

    def _named(self, resumes: bool) -> tuple[ClusterMember, JobOnNodes]:
        member = member_of(self._cluster, "trainer 0", SILENCE)
        return member, JobOnNodes(self._job, self.engines[0].hosts, resumes)

    def move(
        self,
        shard: int,
        before: Callable[[str, str], object] = lambda _origin, _to: None,
        after: Callable[[str, str], object] = lambda _origin, _to: None,
        *,
        resumes: bool = False,
    ) -> None:
        """Moves a shard to the other node; `before` and `after` it is stored who owns it."""
        nodes = self._links[0].nodes
        origin = nodes.names[shard]
        to = NAMES[1 - NAMES.index(origin)]

        class Watched(Mover):
            def commit(self, planned: Move, epoch: int) -> int:
                before(origin, to)
                stored = super().commit(planned, epoch)
                after(origin, to)
                return stored

        mover = Watched(self.engines[0], *self._named(resumes))
        moved = mover.move(nodes, [Move(shard, origin, to)])
        for links in self._links:
            links.follow(moved)

    def move_amid_batches(
        self, shard: int, before: Callable[[str, str], object] = lambda _origin, _to: None
    ) -> int:
        """Moves a shard while a trainer has batches; returns how many epochs are under way."""
        (links,) = self._links
        with links.paused() as feeds:
            links.settle()
            self.engines[0].wait_for_all()
            self.move(shard, before)
        return len(feeds)

    def follow(self) -> list[Move]:
        """Does what trainers do between two steps; returns what has moved."""
        mover = Mover(self.engines[0], *self._named(resumes=False))
        planned = mover.planned()
        moved = mover.move(self._links[0].nodes, planned)
        for links in self._links:
            links.follow(moved)
        return planned


@contextlib.contextmanager
def trainers(
    cluster: Cluster,
    folder: Path,
    count: int,
    job: str = "job",
    optimizer: dict[str, float] = ADAGRAD | {"weight_decay": 0.3},
    **options: bool,
) -> Iterator[Trainers]:
    links: list[NodeLinks] = []
    with connected(
        cluster, folder, count, job, policy=POLICY, optimizer=optimizer, links=links, **options
    ) as engines:
        yield Trainers(cluster, engines, links, job)


def digests(engine: NodesEngine) -> list[int]:
    """Of rows, states and histories, of who waits, and how many rows were evicted."""
    found = [
        engine.digest(name + suffix) for name in TABLES for suffix in ("", native.WAITING_SUFFIX)
    ]
    stats = [engine.table_stats(name) for name in TABLES]  # of nodes that have reached the version
    assert all(each.rows and each.evicted for each in stats)
    return found + [each.evicted for each in stats]
