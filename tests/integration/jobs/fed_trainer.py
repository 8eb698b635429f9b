"""A trainer in NumPy that data nodes feed, and that says how far it is.

fed_trainer.py ADDRESS PORT FOLDER SILENCE DELIVERY FUNCTION

The folder has the token, and gets the rows.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from tests.support.roles.colocated_run import EPOCHS, rows_of
from tests.support.roles.numpy_trainers import connected
from tests.support.roles.split_roles import STEPS, train_fed
from tfhybrid.cluster.cluster_file import Cluster, Role
from tfhybrid.data_nodes.data_request import DataRequest
from tfhybrid.embedding_nodes.node_links import NodeLinks

PAUSE_SECONDS = 0.3


def begins(epoch: int, number: int) -> None:
    sys.stdout.write(f"batch {epoch} {number}\n")
    sys.stdout.flush()
    time.sleep(PAUSE_SECONDS)


def main(address: str, port: str, folder: Path, silence: str, delivery: str, function: str) -> None:
    roles = {"embedding": Role(1), "data": Role(1)}
    cluster = Cluster("local", folder, address, int(port), int(port) + 1, roles)
    wanted = DataRequest(function, {"steps": STEPS}, "batch", True, delivery, 2, 3, 1 << 20)
    links: list[NodeLinks] = []
    with connected(cluster, folder, 1, links=links, silence=float(silence)) as engines:
        train_fed(engines[0], links[0], wanted, EPOCHS, begins)
        np.savez(folder / "rows.npz", *rows_of(engines[0], 1))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), *sys.argv[4:])
