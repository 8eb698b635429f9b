"""A rank of a host with a store, a watch and no Horovod: told by standard input when to leave.

watched_rank.py SHM_DIR LOCAL_RANK RANKS DESCRIPTOR [fork]
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys

from tfhybrid.store import native
from tfhybrid.store.lifelines import Lifelines
from tfhybrid.store.watch import Watch

directory, local_rank, ranks, descriptor, *options = sys.argv[1:]
logging.basicConfig(format="%(message)s")
name = f"rank {local_rank} (pid {os.getpid()} on here)"
native.open_store(directory, "watched", int(local_rank), name, 7)
sys.stdout.write(f"{os.getpid()}\n")
sys.stdout.flush()
sys.stdin.readline()  # until all have opened it

if options == ["fork"] and os.fork() == 0:
    while True:
        signal.pause()
neighbours = [rank for rank in range(int(ranks)) if rank != int(local_rank)]
link = socket.socket(fileno=int(descriptor))
watch = Watch(name, neighbours, Lifelines({link: "rank 9 (pid 9 on there)"}, 60))
sys.stdout.write("watching\n")
sys.stdout.flush()
sys.stdin.readline()
watch.leave()
native.close_store()
