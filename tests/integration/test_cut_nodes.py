"""The network between trainer, data node and embedding node is cut: for 5 s, and for good."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.integration.conftest import needs_hosts
from tests.support import hosts as several
from tests.support.hosts import Hosts
from tests.support.roles.clusters import node, until
from tests.support.roles.colocated_run import colocated
from tests.support.roles.data_script import SCRIPT
from tfhybrid.cluster import launching
from tfhybrid.cluster.cluster_file import Cluster, Role
from tfhybrid.data_nodes.key_links import PULL, PUSH

PORT = 7100  # free: the host is of this test alone
CUT_SECONDS = 5.0
JOB = "tests/integration/jobs/fed_trainer.py"
TRAINER, DATA, EMBEDDING = "h1", "h2", "h3"
SLOW = """
import time

class Slow(list):
    def __iter__(self):
        for batch in super().__iter__():
            time.sleep(1.5)
            yield batch

def slow(shard, steps):
    return Slow(dataset(shard, steps))
"""
pytestmark = needs_hosts


class Place:
    """A trainer, a data node and an embedding node, each on a host; the metadata node on h1.

    Args:
        hosts: The three hosts.
        folder: For the files of all.
    """

    def __init__(self, hosts: Hosts, folder: Path) -> None:
        self.hosts = hosts
        self.folder = folder
        self._running = contextlib.ExitStack()
        (folder / "token").write_text("a secret of the test")
        (folder / "token").chmod(0o600)
        (folder / "script.py").write_text(SCRIPT + SLOW)
        metadata = f"{hosts.address(TRAINER)}:{PORT}"
        self._start(
            *(
                TRAINER,
                "metadata",
                "tfhybrid.cluster.metadata_node",
                "--state",
                str(folder / "state"),
            ),
            *("--owners", "embedding-0", "--port", str(PORT), "--status-port", str(PORT + 1)),
        )
        registers = ("--metadata", metadata, "--name")
        self._start(
            EMBEDDING,
            "embedding-0",
            "tfhybrid.embedding_nodes.embedding_node",
            *registers,
            "embedding-0",
        )
        script = ("--script", str(folder / "script.py"))
        self._start(DATA, "data-0", "tfhybrid.data.data_node", *script, *registers, "data-0")
        roles = {"embedding": Role(1), "data": Role(1)}
        address = hosts.address(TRAINER)
        self.cluster = Cluster("local", folder, address, PORT, PORT + 1, roles)
        self.await_nodes()

    def _start(self, host: str, name: str, module: str, *options: str) -> None:
        listen = ("--token-file", str(self.folder / "token"), "--listen", self.hosts.address(host))
        log = self._running.enter_context((self.folder / f"{name}.log").open("w"))
        process = subprocess.Popen(
            [*self.hosts.enter(host), sys.executable, "-m", module, *options, *listen],
            env={**os.environ, "PYTHONPATH": str(several.ROOT)},
            stdout=log,
            stderr=log,
        )
        self._running.callback(process.wait)
        self._running.callback(process.kill)

    def await_nodes(self) -> None:
        def ready() -> bool:
            nodes = launching.status(self.cluster)["nodes"]
            return [each["state"] for each in nodes] == ["ready"] * 2

        until(ready, 60)

    def trainer(
        self, silence: float, delivery: str, function: str = "dataset"
    ) -> subprocess.Popen[str]:
        """Starts the trainer; returns it when it is in the midst of the first epoch."""
        place = (self.hosts.address(TRAINER), str(PORT), str(self.folder))
        told = (*place, str(silence), delivery, function)
        started = subprocess.Popen(
            [*self.hosts.enter(TRAINER), sys.executable, JOB, *told],
            env={**os.environ, "PYTHONPATH": str(several.ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert started.stdout is not None
        output = ""
        for line in started.stdout:
            output += line
            if line == "batch 0 2\n":
                return started
        raise AssertionError(output)

    def close(self) -> None:
        self._running.close()


@pytest.fixture(scope="module")
def three() -> Iterator[Hosts]:
    with several.hosts(3) as made:
        yield made


@pytest.fixture
def place(three: Hosts, tmp_path: Path) -> Iterator[Place]:
    made = Place(three, tmp_path)
    yield made
    for name in three.names:
        three.link(name, up=True)
    made.close()


@pytest.mark.parametrize("delivery", [PULL, PUSH])
def test_training_goes_on_after_a_short_cut_of_each_link(place: Place, delivery: str) -> None:
    started = place.trainer(30, delivery)
    for host in (DATA, EMBEDDING, TRAINER) if delivery == PULL else (EMBEDDING,):
        place.hosts.link(host, up=False)
        threading.Event().wait(CUT_SECONDS)
        place.hosts.link(host, up=True)
    output, _ = started.communicate(timeout=120)
    assert started.returncode == 0, output
    with np.load(place.folder / "rows.npz") as found:
        wanted = colocated(place.folder / "colocated", 1, None)
        for name, same in zip(found.files, wanted, strict=True):
            np.testing.assert_array_equal(found[name], same)


@pytest.mark.parametrize("function", ["dataset", "slow"])
def test_an_embedding_node_that_is_cut_off_for_good_is_named(place: Place, function: str) -> None:
    """Of a slow data set, the data node then holds a batch whose keys it cannot send."""
    started = place.trainer(4, PULL, function)
    place.hosts.link(EMBEDDING, up=False)
    output, _ = started.communicate(timeout=60)
    assert started.returncode != 0
    assert "embedding-0" in output, output
    # The data node has given up its own connection after the trainer's 4 s.
    until(lambda: node(place.cluster, "data-0")["numbers"]["streams"] == 0, 20)
    log = place.folder / "embedding-0.log"
    # Its own end: the metadata node, which is silent or cannot be reached.
    until(lambda: "The node keeps running and retries" in log.read_text(), 30)


def test_a_data_node_that_is_cut_off_for_good_is_named(place: Place) -> None:
    started = place.trainer(4, PULL)
    place.hosts.link(DATA, up=False)
    output, _ = started.communicate(timeout=150)
    assert started.returncode != 0
    assert "data-0 is gone, and did not come back in 60 s" in output, output
