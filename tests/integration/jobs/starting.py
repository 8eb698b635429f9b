"""A job that cannot start, because one rank never comes to `tfhybrid.init()`.

starting.py RANK

Each of the others says that it runs once it has its lifeline, and then waits in Horovod's start.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

import tfhybrid
from tfhybrid.job import watch
from tfhybrid.job.watch import Watch

begin = watch.start
rank, absent = int(os.environ["HOROVOD_RANK"]), int(sys.argv[1])


def say_running() -> None:
    here = f"pid={os.getpid()} host={socket.gethostname()} child=0"
    sys.stdout.write(f"running rank={rank} {here}\n")
    sys.stdout.flush()


def begin_and_say() -> Watch | None:
    watching = begin()
    if rank > 0 and absent > 0:
        watching._connected.wait()
    say_running()
    return watching


if rank == absent:
    say_running()
    signal.pause()
watch.start = begin_and_say
tfhybrid.init()
