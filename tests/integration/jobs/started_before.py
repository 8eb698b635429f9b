"""Rank 1 starts Horovod before `tfhybrid.init()`, so ranks meet through Horovod; then all do."""

from __future__ import annotations

import os
import sys

import horovod.tensorflow as hvd

import tfhybrid

if os.environ["HOROVOD_RANK"] == "1":
    hvd.init()
for job in ("first", "second"):
    tfhybrid.init(job)
    tfhybrid.shutdown()
    sys.stdout.write(f"rank {tfhybrid.rank()} has left the {job} job\n")
