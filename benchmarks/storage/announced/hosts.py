"""A side of the benchmark `announced`: two hosts that share a table, by engines alone."""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import socket
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

from benchmarks.storage.disk.batches import RATE, add_options, batches, bytes_from_disk, gradients
from benchmarks.storage.disk.filled import NAME, fill
from tfhybrid.core import passes
from tfhybrid.core.engine import Engine
from tfhybrid.core.native import LinkPurpose
from tfhybrid.core.update import UpdateChoices

HOSTS = 2
Sockets = dict[tuple[int, LinkPurpose], tuple[socket.socket, socket.socket]]


def add_side_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a side."""
    add_options(parser)
    parser.add_argument("--storage", choices=["memory", "files"], default="files")
    parser.add_argument("--batches", type=int, default=0, help="of a pass; 0 announces nothing")
    parser.add_argument("--dense", type=float, default=0.03, help="seconds of other work a step")


def opened(options: argparse.Namespace, host: int, directory: str, sockets: Sockets) -> Engine:
    """Returns the engine of a host, connected to the other one, whose table has its rows."""
    engine = Engine(range(HOSTS), host)
    engine.open_store(directory, "announced", 0, f"rank {host}", 7 + host)
    for (reader, purpose), (mine, its) in sockets.items():
        if reader == host:
            engine.connect_owner(1 - host, purpose, mine, f"rank {1 - host}")
        else:
            engine.serve_owner(reader, purpose, its, f"rank {reader}")
    fill(engine, options, HOSTS)
    return engine


def train(engine: Engine, options: argparse.Namespace, host: int, barrier) -> dict[str, float]:
    """Does all steps; returns the figures of the last `--steps`."""
    update = engine.open_update("adagrad", {NAME: options.dim}, UpdateChoices())
    every = [keys[host::HOSTS] for keys in batches(options)]
    length, announced = options.batches, []

    def announce(first: int) -> None:
        if length and first < len(every):
            some = [{NAME: keys} for keys in every[first : first + length]]
            announced.append(passes.announce(engine, some))

    announce(0)
    parts = ("announce", "lookup", "dense", "post")
    times = dict.fromkeys(parts, 0.0)
    barrier.wait()
    for step, keys in enumerate(every):
        if step == options.warm:
            read, began = bytes_from_disk(), time.perf_counter()
            times = dict.fromkeys(times, 0.0)
        of_keys = gradients(keys, options.dim)
        at = [time.perf_counter()]
        if length:
            if step % length == 0:
                announce(step + length)
                if step:
                    announced[step // length - 1].end()
            announced[step // length].begin(step % length)
        at.append(time.perf_counter())
        engine.lookup(NAME, options.dim, keys)
        at.append(time.perf_counter())
        time.sleep(options.dense)  # a device's work
        at.append(time.perf_counter())
        update.post([keys], [of_keys], [float(RATE)], samples=len(keys))
        at.append(time.perf_counter())
        for name, (first, last) in zip(parts, itertools.pairwise(at), strict=True):
            times[name] += last - first
    engine.wait(NAME)
    seconds = time.perf_counter() - began
    return {
        "seconds": seconds,
        **times,
        "read_bytes": bytes_from_disk() - read,
        "digest": engine.digest(NAME),
    }


def run(
    options: argparse.Namespace, host: int, sockets: Sockets, barrier, told: Connection
) -> None:
    """A host: says at last what it measured."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        engine = opened(options, host, str(Path(directory)), sockets)
        try:
            told.send(train(engine, options, host, barrier))
            barrier.wait()
        except BaseException:
            barrier.abort()  # the other host must not wait for this one
            raise
        finally:
            engine.close_store()


def main() -> None:
    """Trains, and prints what each host measured."""
    parser = argparse.ArgumentParser()
    add_side_options(parser)
    options = parser.parse_args()
    context = multiprocessing.get_context("fork")
    sockets: Sockets = {
        (reader, purpose): socket.socketpair() for reader in range(HOSTS) for purpose in LinkPurpose
    }
    barrier = context.Barrier(HOSTS)
    ends = [context.Pipe() for _ in range(HOSTS)]
    processes = [
        context.Process(target=run, args=(options, host, sockets, barrier, ends[host][1]))
        for host in range(HOSTS)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        if process.exitcode:
            sys.exit(process.exitcode)
    sys.stdout.write(json.dumps([mine.recv() for mine, _ in ends]) + "\n")


if __name__ == "__main__":
    main()
