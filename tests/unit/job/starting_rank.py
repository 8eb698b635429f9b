"""A rank of a job that starts, without Horovod."""

from __future__ import annotations

import logging
import os
from multiprocessing.connection import Connection

from tfhybrid.job import watch


def run(test: Connection, port: int, rank: int, ranks: int, log: str) -> None:
    """Says so when it is connected with rank 0, and leaves when the test says so."""
    logging.basicConfig(filename=log, format="%(message)s", level=logging.INFO)
    os.environ |= {
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
        "HOROVOD_RANK": str(rank),
        "HOROVOD_SIZE": str(ranks),
        "HOROVOD_LOCAL_RANK": str(rank),
        "HOROVOD_LOCAL_SIZE": str(ranks),
    }
    watching = watch.start()
    assert watching is not None
    if rank > 0:
        watching._connected.wait()
    test.send("waits")
    test.recv()
    watching.leave()
