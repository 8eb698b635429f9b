"""Trains a small model, in rounds that all begin afresh; leaders print a digest after each.

training.py JOB ROUNDS STEPS [fork | sharded]

Each rank says when it trains, and rank 0 says so in every round. With `fork` each rank has a child
that outlives it, and keeps open what was open. With `sharded` each host has a part of the tables.
"""

from __future__ import annotations

import os
import signal
import socket
import sys

from tensorflow import keras

import tfhybrid
from tests.support.reference import click_model
from tfhybrid import distributed
from tfhybrid.job import current_job

BEGUN = 3  # steps until everything has been built


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def fork() -> int:
    child = os.fork()
    if child == 0:
        silent = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):  # else who reads what this rank writes would wait for its end
            os.dup2(silent, descriptor)
        while True:
            signal.pause()
    return child


def train(round_: int, steps: int, child: int) -> None:
    placement = tfhybrid.Sharded() if options == ["sharded"] else tfhybrid.Replicated()
    model = click_model.keras_model(placements=[placement] * 2)
    model.compile(
        tfhybrid.DistributedOptimizer("adam"), keras.losses.BinaryCrossentropy(from_logits=True)
    )
    batches = click_model.batches(20, tfhybrid.size())
    for step in range(steps):
        keys, labels = batches[step % len(batches)][tfhybrid.rank()]
        model.train_on_batch(keys, labels)
        if step == BEGUN and round_ == 0:
            here = f"pid={os.getpid()} host={socket.gethostname()} child={child}"
            say(f"running rank={tfhybrid.rank()} {here}")
        if step == BEGUN and tfhybrid.rank() == 0:
            say(f"round {round_} has begun")
    if current_job().is_leader:
        tables = click_model.collection(model).tables
        digests = [f"{name}={table.digest():016x}" for name, table in sorted(tables.items())]
        say(f"round {round_} has ended: {' '.join(digests)}")
    distributed.barrier()


job, rounds, steps, *options = sys.argv[1:]
for round_ in range(int(rounds)):
    tfhybrid.init(f"{job}-{round_}", seed=11)
    child = fork() if options == ["fork"] else 0
    train(round_, int(steps), child)
    tfhybrid.shutdown()
    distributed.barrier()
