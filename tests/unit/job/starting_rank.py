"""A rank of a job that starts, without Horovod."""

from __future__ import annotations

import logging
import os
import threading
from multiprocessing.connection import Connection

from tfhybrid.job.starting import Starting


def run(test: Connection, port: int, rank: int, size: int, log: str) -> None:
    """Starts; says so when it is connected with all that come, and ends when the test says so."""
    logging.basicConfig(filename=log, format="%(message)s", level=logging.INFO)
    os.environ |= {
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
        "HOROVOD_RANK": str(rank),
        "HOROVOD_SIZE": str(size),
    }
    with Starting() as starting:
        while rank > 0 and not starting.connected:
            threading.Event().wait(0.01)
        test.send("waits")
        test.recv()
