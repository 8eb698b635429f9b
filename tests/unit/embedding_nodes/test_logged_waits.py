"""What an embedding node says of trainers for whose part of an update it waits."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.core.sharded_hosts import link
from tests.support.core.sharded_tables import TABLES
from tests.support.halting import halt
from tests.support.roles.clusters import until
from tests.support.roles.owner_engines import opened
from tests.unit.embedding_nodes import stopping_trainer
from tests.unit.embedding_nodes.stopping_trainer import HOST, HOSTS, NODE, open_tables, post
from tfhybrid.core.engine import Engine
from tfhybrid.core.native import LinkPurpose
from tfhybrid.embedding_nodes.logged_waits import TrainerWaits
from tfhybrid.rpc import messages


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "WAIT_SECONDS", 0.5)


@contextlib.contextmanager
def two_trainers(directory: Path) -> Iterator[tuple[int, Engine, Engine]]:
    """The process of the second, which begins an update when it goes on; the first, and a node."""
    first, node = [Engine(HOSTS, host, 1) for host in (0, NODE)]
    for engine in (first, node):
        (directory / str(engine.host)).mkdir()
        engine.open_store(str(directory / str(engine.host)), "job", 0, "here", 7)
    link(first, node, LinkPurpose.UPDATES)
    link(node, first, LinkPurpose.UPDATES)  # for what it has prepared
    (directory / str(HOST)).mkdir()
    pairs = [socket.socketpair() for _ in range(3)]
    first.serve_owner(HOST, LinkPurpose.UPDATES, pairs[0][0], "trainer 1")
    first.connect_owner(HOST, LinkPurpose.UPDATES, pairs[1][0], "trainer 1")
    node.serve_owner(HOST, LinkPurpose.UPDATES, pairs[2][0], "trainer 1")
    context = multiprocessing.get_context("spawn")
    mine, other = context.Pipe()
    arguments = other, str(directory / str(HOST)), *(pair[1] for pair in pairs)
    process = context.Process(target=stopping_trainer.run, args=arguments)
    process.start()
    for _, far in pairs:
        far.close()
    try:
        for engine in (first, node):
            open_tables(engine)
        mine.recv()
        assert process.pid is not None
        halt(process.pid)
        mine.send("make an update")
        yield process.pid, first, node
        mine.send("end")
    finally:
        process.kill()
        process.join()
        first.close_store()
        node.close_store()


def test_a_stopped_trainer_is_named_once_another_has_sent_its_gradients(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with two_trainers(tmp_path) as (pid, first, node):
        TrainerWaits(node)
        node.open_update("sgd", TABLES)
        time.sleep(1.0)
        assert node.awaited() == ""  # nobody has begun
        post(first, 0)
        awaited = "trainer 1 (host 1) to send its gradients of update 1 of table 'item' and 1 more"
        until(lambda: f"Waited 0.5 s for {awaited}" in caplog.text)
        os.kill(pid, signal.SIGCONT)
        until(lambda: node.awaited() == "")
        first.wait("item")


def test_who_waits_for_the_commit_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with opened(tmp_path, 1, 2) as (trainer, first, second):
        TrainerWaits(first)
        first.open_update("sgd", TABLES)
        post(trainer, 0)  # the second node does not prepare it
        until(lambda: "s for host 0 (host 0) to commit update 1 of table 'item'" in caplog.text)
        assert trainer.awaited() == "host 2 (host 2) to prepare update 1 of table 'item' and 1 more"
        second.open_update("sgd", TABLES)
        until(lambda: first.awaited() == trainer.awaited() == "")
