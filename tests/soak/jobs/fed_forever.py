"""A trainer in NumPy that data nodes feed until it is killed; the next one goes on where it was.

fed_forever.py CLUSTER FOLDER train|recover|rows STEPS

It says which step it begins at, and when each is trained. With `rows` it recovers and trains
nothing: it says the version, and leaves the rows of the keys of the first STEPS steps in FOLDER.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from tests.soak.forever import all_keys
from tests.support.roles.numpy_trainers import connected
from tests.support.roles.split_roles import FEATURES, TABLES, step
from tfhybrid.cluster.cluster_file import Cluster
from tfhybrid.core import split_batches
from tfhybrid.data_nodes.data_request import DataRequest
from tfhybrid.data_nodes.elements import unflatten
from tfhybrid.data_nodes.key_links import PULL
from tfhybrid.data_nodes.splitting import Declared
from tfhybrid.embedding_nodes.node_links import NodeLinks
from tfhybrid.embedding_nodes.nodes_engine import NodesEngine

PAUSE_SECONDS = 0.02


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def train(engine: NodesEngine, links: NodeLinks, first: int) -> None:
    """Trains from a step on."""
    split_batches.use_key_handles(engine)
    update = engine.open_update("sgd", TABLES)
    feed = links.feed(
        DataRequest("dataset", {"first": first}, "batch", True, PULL, 2, 3, 1 << 20), 0, 1
    )
    node = engine.first_node
    declared = Declared(FEATURES, engine.placements, node, node + engine.nodes)
    for number, (structure, leaves) in enumerate(feed.epoch(declared), first):
        element = unflatten(structure, [leaf.values for leaf in leaves])
        step(engine, update, element, handles=True)
        for name in TABLES:
            engine.wait(name)
        say(f"trained {number}")
        time.sleep(PAUSE_SECONDS)


def main(file: str, folder: Path, what: str, steps: int) -> None:
    links: list[NodeLinks] = []
    cluster = Cluster.read(Path(file))
    with connected(
        cluster, folder, 1, resumes=True, recovers=what != "train", links=links
    ) as engines:
        first = int(engines[0].table_stats("item").version)
        say(f"begins {first}")
        if what == "rows":
            keys = all_keys(steps).values()
            found = [
                engines[0].lookup(name, dim, some)
                for (name, dim), some in zip(TABLES.items(), keys, strict=True)
            ]
            np.savez(folder / "rows.npz", *found)
        else:
            train(engines[0], links[0], first)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
