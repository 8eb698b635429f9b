"""Nodes as processes, with trainers of this one: connecting, the bits, and what a kill leaves."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.support.core.sharded_tables import (
    KEYS,
    RATE,
    STEPS,
    TABLES,
    batch,
    reference,
    rows_of,
    train,
)
from tests.support.halting import halt
from tests.support.roles.clusters import (
    found,
    killed,
    logged,
    member_of,
    node,
    own_memory,
    pid_of,
    until,
    write_cluster,
)
from tests.support.roles.numpy_trainers import SILENCE, connected
from tfhybrid.cli import app
from tfhybrid.cluster import launching
from tfhybrid.cluster.cluster_file import Cluster
from tfhybrid.cluster.node_options import read_token
from tfhybrid.core import passes
from tfhybrid.core.engine import Engine
from tfhybrid.core.update import UpdateChoices
from tfhybrid.embedding_nodes.node_session import JobOnNodes, begin
from tfhybrid.embedding_nodes.nodes_table_writer import NodesTableWriter
from tfhybrid.errors import NameTakenError, StoreError, TfhybridError, UnsupportedError
from tfhybrid.rpc import messages
from tfhybrid.rpc.handshake import Handshake, Purpose

NODES = 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three embedding nodes and a metadata node."""
    made = write_cluster(tmp_path_factory.mktemp("cluster"), NODES)
    with own_memory():
        launching.up(made)
        yield made
        launching.down(made)


def assert_rows(rows: list[np.ndarray], trainers: int) -> None:
    for of_table, table in zip(rows, reference(trainers).values(), strict=True):
        np.testing.assert_allclose(of_table, table.lookup(KEYS), rtol=2e-5, atol=1e-7)


@pytest.mark.parametrize("trainers", [1, 2])
def test_trainers_connect_to_nodes_that_are_up(
    cluster: Cluster, tmp_path: Path, trainers: int
) -> None:
    with connected(cluster, tmp_path, trainers) as engines:
        train(engines, UpdateChoices())
        rows = [rows_of(engine) for engine in engines]
        stats = [engines[0].table_stats(name) for name in TABLES]
    assert_rows(rows[0], trainers)
    for mine, other in zip(rows[0], rows[-1], strict=True):
        np.testing.assert_array_equal(mine, other)
    wanted = reference(trainers)
    assert [each.rows for each in stats] == [len(table.rows) for table in wanted.values()]
    assert [each.version for each in stats] == [STEPS] * 2


def test_passes_are_refused(cluster: Cluster, tmp_path: Path) -> None:
    with (
        connected(cluster, tmp_path, 1) as engines,
        pytest.raises(UnsupportedError, match=r"do not call announce\(\) if TFHYBRID_NODES is set"),
    ):
        passes.announce(engines[0], [])


def test_nodes_run_without_tensorflow(cluster: Cluster) -> None:
    for module in (
        "embedding_nodes.embedding_node",
        "cluster.metadata_node",
        "cluster.local_launcher",
        "cli.main",
    ):
        code = (
            f"import sys, tfhybrid.{module}; "
            "print({'tensorflow', 'horovod', 'keras'} & set(sys.modules))"
        )
        told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert told.stdout.strip() == "set()", told
    maps = Path(f"/proc/{pid_of(cluster, 'embedding-0')}/maps").read_text()
    assert "libtensorflow" not in maps


def test_saved_parts_are_written_by_nodes_and_loaded_again(
    cluster: Cluster, tmp_path: Path
) -> None:
    with connected(cluster, tmp_path, 1) as engines:
        train(engines)
        wanted, digests = rows_of(engines[0]), {name: engines[0].digest(name) for name in TABLES}
        files = {}
        for name, dim in TABLES.items():
            writer = NodesTableWriter(engines[0], name, dim, (1, dim), None, name)
            frozen = writer.freeze()
            assert (frozen.rows, frozen.version) == (len(reference(1)[name].rows), STEPS)
            paths = [tmp_path / f"{name}-{part}" for part in range(frozen.parts)]
            files[name] = [writer.write_part(part, path) for part, path in enumerate(paths)]
            writer.thaw()
            assert all(path.stat().st_size for path in paths)
            assert sum(file.digest for file in files[name]) % 2**64 == digests[name]
            writer.freeze()
            with pytest.raises(TfhybridError, match="must see the directory"):
                writer.write_part(0, tmp_path / "nowhere" / "file")
            writer.thaw()
    assert_rows(wanted, 1)


def test_a_node_serves_one_job_and_refuses_another_epoch(cluster: Cluster, tmp_path: Path) -> None:
    with connected(cluster, tmp_path, 1) as engines:
        nodes = found(cluster)
        stale = type(nodes)(nodes.session, nodes.names, nodes.addresses, nodes.allocation_epoch - 1)
        with pytest.raises(
            StoreError,
            match=rf"epoch {nodes.allocation_epoch}. Received: {nodes.allocation_epoch - 1}",
        ):
            begin(stale, member_of(cluster, "late", SILENCE), JobOnNodes("other", [0]))
        other = member_of(cluster, "other", SILENCE)
        with pytest.raises(NameTakenError, match="Job 'job' uses this node"):
            begin(nodes, other, JobOnNodes("other", [0]), patience=0)
        train(engines)
        assert_rows(rows_of(engines[0]), 1)


def test_trainers_that_die_leave_the_nodes_free(cluster: Cluster, tmp_path: Path) -> None:
    with connected(cluster, tmp_path, 2) as engines:
        train(engines, steps=2)
    with connected(cluster, tmp_path, 1, "next") as engines:
        train(engines)
        assert_rows(rows_of(engines[0]), 1)


def test_an_embedding_node_that_is_killed_is_named_and_returns(
    cluster: Cluster, tmp_path: Path
) -> None:
    epoch = found(cluster).allocation_epoch
    with connected(cluster, tmp_path, 1) as engines:
        train(engines, steps=2)
        killed(cluster, "embedding-1")
        with pytest.raises(TfhybridError, match="embedding-1"):
            train(engines, first=2)
    until(lambda: node(cluster, "embedding-1")["state"] == "ready")
    assert found(cluster).allocation_epoch == epoch + 1
    with connected(cluster, tmp_path, 1, "again") as engines:
        train(engines)
        assert_rows(rows_of(engines[0]), 1)


def killed_at(cluster: Cluster, name: str, engine: Engine, version: int) -> None:
    """Kills a node in the midst of some step behind that version."""
    until(lambda: Engine.table_stats(engine, "item").version >= version)  # as this host knows it
    killed(cluster, name)


@pytest.mark.parametrize("trainers", [1, 2])
def test_what_a_killed_node_has_left_is_recovered(
    cluster: Cluster, tmp_path: Path, trainers: int
) -> None:
    """Nodes are killed at moments of chance: each step counts once, or not yet, on all of them."""
    steps = 800
    with connected(cluster, tmp_path, trainers, "whole") as engines:
        train(engines, steps=steps)
        wanted = [engines[0].digest(name) for name in TABLES]
    random = np.random.default_rng(trainers)
    begun: list[int] = []
    digests: list[int] = []
    while not digests:
        until(lambda: launching.status(cluster)["missing"] == [])
        again = bool(begun)
        with connected(cluster, tmp_path, trainers, resumes=True, recovers=again) as engines:
            begun.append(int(engines[0].table_stats("item").version))
            moment = begun[-1] + int(random.integers(1, 30))
            name = f"embedding-{len(begun) % NODES}"
            kill = threading.Thread(target=killed_at, args=(cluster, name, engines[0], moment))
            if len(begun) <= NODES:
                kill.start()
            with contextlib.suppress(TfhybridError):
                train(engines, first=begun[-1], steps=steps - begun[-1])
                digests = [engines[0].digest(name) for name in TABLES]
            if kill.is_alive():
                kill.join()
    assert begun == sorted(begun)
    assert len(begun) == NODES + 1
    assert digests == wanted


def test_training_goes_on_without_the_metadata_node(cluster: Cluster, tmp_path: Path) -> None:
    epoch = found(cluster).allocation_epoch
    with connected(cluster, tmp_path, 2) as engines:
        train(engines, steps=2)
        killed(cluster, "metadata")
        train(engines, first=2, steps=STEPS - 2)
        assert_rows(rows_of(engines[0]), 2)
        until(lambda: launching.status(cluster)["missing"] == [])
        assert found(cluster).allocation_epoch == epoch  # the same processes have come back
        until(lambda: "rows" in node(cluster, "embedding-0")["numbers"])


def test_a_node_that_drains_finishes_its_job_and_begins_no_other(
    cluster: Cluster, tmp_path: Path
) -> None:
    nodes = found(cluster)
    with connected(cluster, tmp_path, 1) as engines:
        train(engines, steps=2)
        launching.drain(cluster, "embedding-2")
        assert launching.status(cluster)["missing"] == ["embedding-2"]
        killed(cluster, "metadata")
        until(lambda: node(cluster, "embedding-2")["state"] == "draining")
        train(engines, first=2, steps=STEPS - 2)
        assert_rows(rows_of(engines[0]), 1)
    with pytest.raises(StoreError, match="embedding-2: This node is draining"):
        begin(nodes, member_of(cluster, "late", SILENCE), JobOnNodes("late", [0]))
    with pytest.raises(StoreError, match=r"The node must be one of.*Received: 'nobody'"):
        launching.drain(cluster, "nobody")
    killed(cluster, "embedding-2")
    until(lambda: node(cluster, "embedding-2")["state"] == "ready")


def test_the_shards_of_the_last_ready_node_stay(tmp_path: Path, caplog) -> None:
    drained = write_cluster(tmp_path, 2)  # of its own, since no node of it is of use afterwards
    with own_memory():
        launching.up(drained)
        try:
            launching.drain(drained, "embedding-0")
            assert "The shards of" not in caplog.text
            launching.drain(drained, "embedding-1")
            assert "The shards of embedding-1 stay" in caplog.text
        finally:
            launching.down(drained)


def test_nothing_listens_on_another_address(cluster: Cluster) -> None:
    ports = [cluster.port, cluster.status_port, *(port for _, port in found(cluster).addresses)]
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port), timeout=5)


def test_the_page_is_for_those_who_have_the_token(cluster: Cluster) -> None:
    token = read_token(cluster.token_file)
    page = f"http://127.0.0.1:{cluster.status_port}"
    with urllib.request.urlopen(f"{page}/?token={token}") as told:
        content = told.read().decode()
    assert "Allocation" in content
    assert 'fetch("status.json" + location.search)' in content
    with urllib.request.urlopen(f"{page}/status.json?token={token}") as told:
        status = json.load(told)
    assert [node["name"] for node in status["nodes"]] == cluster.names("embedding")
    assert [each["slots"] for each in status["allocation"]].count(1365) == 2
    asked = urllib.request.Request(f"{page}/metrics", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(asked) as told:
        lines = told.read().decode().splitlines()
    assert 'tfhybrid_node_ready{node="embedding-0",role="embedding"} 1.0' in lines
    assert f"tfhybrid_epoch {float(status['epoch'])}" in lines
    assert 'tfhybrid_node_jobs{node="embedding-0",role="embedding"} 0.0' in lines
    for address in (page, f"{page}/?token=wrong", f"{page}/status.json?token="):
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(address)
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{page}/nodes?token={token}")


def test_strangers_who_hold_the_page_cost_the_node_few_descriptors(cluster: Cluster) -> None:
    descriptors = Path(f"/proc/{pid_of(cluster, 'metadata')}/fd")
    before = len([*descriptors.iterdir()])
    with contextlib.ExitStack() as held:
        for _ in range(1010):
            address = cluster.listen, cluster.status_port
            held.enter_context(socket.create_connection(address, timeout=30)).sendall(b"G")
        assert len([*descriptors.iterdir()]) < before + 100
        token = read_token(cluster.token_file)
        page = f"http://127.0.0.1:{cluster.status_port}/status.json?token={token}"
        with urllib.request.urlopen(page, timeout=30) as answer:
            assert json.load(answer)["missing"] == []
        assert launching.status(cluster)["missing"] == []


def test_top_shows_the_nodes_of_a_job(cluster: Cluster, tmp_path: Path) -> None:
    file = str(cluster.directory.parent / "cluster.yaml")
    with connected(cluster, tmp_path, 1) as engines:
        train(engines)
        rows_of(engines[0])
        for name in cluster.names("embedding"):  # they tell it twice a second
            until(lambda name=name: node(cluster, name)["numbers"].get("served_bytes", 0) > 0)
        until(lambda: "updates_per_second" in node(cluster, "embedding-0")["numbers"])
        rows = sum(engines[0].table_stats(name).rows for name in TABLES)
        look = ["top", "job", "--shm-dir", str(tmp_path / "job-0"), "--nodes", file]
        look += ["--count", "1", "--interval", "0.1"]
        told = json.loads(CliRunner().invoke(app, [*look, "--json"]).stdout)
        numbers = [each["numbers"] for each in told["cluster"]["nodes"]]
        assert sum(each["rows"] for each in numbers) == rows
        drawn = CliRunner().invoke(app, look).stdout
    assert "Nodes, allocation epoch" in drawn  # names are folded on a narrow terminal


def test_garbage_is_refused_on_every_port(cluster: Cluster, tmp_path: Path) -> None:
    token = read_token(cluster.token_file).encode()
    nodes = found(cluster)
    addresses = dict(zip(nodes.names, nodes.addresses, strict=True))
    addresses["metadata"] = cluster.listen, cluster.port
    handshake = Handshake(Purpose.CALLS, "stranger").text().encode().ljust(1024)
    intruder = Handshake(Purpose.UPDATES, "intruder", "none").text().encode().ljust(1024)
    said = {
        secrets.token_bytes(2000): "does not show the token",
        b"x" * len(token) + handshake: "does not show the token",
        token + b"\xff" * 1024: "its handshake is not UTF-8 text",
        token + b"[]".ljust(1024): "Refused: A handshake must be JSON",
        token + intruder: "intruder",
        token + handshake + (2**63).to_bytes(8, "little"): f"Received: {2**63}",
        token
        + handshake
        + (9).to_bytes(8, "little")
        + b"not safe!": "sent data that is not a message",
    }
    for name, address in addresses.items():
        for content, why in said.items():
            with socket.create_connection(address, timeout=5) as link:
                link.sendall(content)
                link.settimeout(10)
                with contextlib.suppress(ConnectionResetError):
                    assert link.recv(1) == b""
            logged(cluster, name, why)
    with socket.create_connection((cluster.listen, cluster.status_port), timeout=10) as link:
        link.sendall(secrets.token_bytes(2000).replace(b"\n", b" ") + b"\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert b"Nodes" not in link.recv(4096)
    logged(cluster, "metadata", "it does not speak HTTP")
    with connected(cluster, tmp_path, 1) as engines:
        train(engines)
        assert_rows(rows_of(engines[0]), 1)


def test_nodes_are_asked_when_python_exits() -> None:
    """A script need not end its job by itself."""
    code = """
import atexit
from tests.support.roles.split_roles import served_socket
from tfhybrid._remote import remote
from tfhybrid.rpc.calls import Caller
from tfhybrid.rpc.remote_methods import served
from tfhybrid.embedding_nodes.node_calls import NodeCalls

class Counter:
    @remote
    def next(self, number: int) -> int:
        return number + 1

calls = NodeCalls([Caller(served_socket(served(Counter())), f"node {n}") for n in range(2)])
atexit.register(lambda: print(calls.each(Counter.next, 4)))
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (told.stdout, told.stderr) == ("[5, 5]\n", "")


def test_a_node_that_stands_still_is_waited_for(
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As on a machine that swaps, or behind a link that is cut for a while."""
    monkeypatch.setattr(messages, "WAIT_SECONDS", 1.0)
    pid = pid_of(cluster, "embedding-1")
    assert pid is not None
    with connected(cluster, tmp_path, 2) as engines:
        train(engines, steps=2)
        halt(pid)
        resuming = threading.Timer(SILENCE, os.kill, (pid, signal.SIGCONT))
        resuming.start()
        table, dim = next(iter(TABLES.items()))
        engines[0].lookup(table, dim, np.arange(100))
        train(engines, first=2, steps=STEPS - 2)
        assert_rows(rows_of(engines[0]), 2)
        resuming.join()
    assert node(cluster, "embedding-1")["state"] == "ready"
    assert "s for rows or updates of embedding nodes. These nodes do not answer: " in caplog.text
    assert "embedding-1 must answer the call JobConnection.describe within 2 s" in caplog.text
    assert "embedding-0 must answer" not in caplog.text


def test_nodes_name_a_trainer_whose_gradients_do_not_come(cluster: Cluster, tmp_path: Path) -> None:
    with connected(cluster, tmp_path, 2) as engines:
        updates = [engine.open_update("sgd", TABLES) for engine in engines]
        for rank, update in enumerate(updates):
            keys, gradients = batch(0, rank)
            update.post(keys, gradients, [RATE] * 2, samples=len(keys[0]))
            if rank == 0:  # as if the other one was stopped here
                awaited = "trainer 1 (host 1) to send its gradients of update 1 of table 'item'"
                for number in range(NODES):
                    logged(cluster, f"embedding-{number}", f"Waited 10 s for {awaited} and 1 more")
        for engine in engines:
            engine.wait("item")
