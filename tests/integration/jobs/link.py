"""Sums 4 MB over two hosts; each rank says how many bytes left its host, and in what time."""

from __future__ import annotations

import sys
import time

import horovod.tensorflow as hvd
import tensorflow as tf

from benchmarks.step.step import timing

hvd.init()
vector = tf.ones(1_000_000)
hvd.allreduce(vector[:1])
start, (before, _) = time.perf_counter(), timing.traffic()
hvd.allreduce(vector)
hvd.allreduce(vector[:1])  # the other host has all that this one sent
seconds, sent = time.perf_counter() - start, timing.traffic()[0] - before
sys.stdout.write(f"sent {sent} bytes in {seconds:.3f} s\n")
