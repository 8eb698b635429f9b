"""Nodes that a real Ray cluster of this machine places, watches and starts again."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.core.sharded_tables import KEYS, reference, rows_of, train
from tests.support.roles.clusters import (
    node,
    own_memory,
    until,
    write_cluster,
)
from tests.support.roles.colocated_run import EPOCHS, colocated
from tests.support.roles.colocated_run import rows_of as rows_of_places
from tests.support.roles.data_script import SCRIPT, wanted
from tests.support.roles.numpy_trainers import connected
from tests.support.roles.split_roles import train_fed
from tfhybrid.cluster import launching, ray_launcher
from tfhybrid.cluster.cluster_file import Cluster
from tfhybrid.data_nodes.key_links import PULL
from tfhybrid.embedding_nodes.node_links import NodeLinks
from tfhybrid.errors import ConfigError, StoreError

PROCESSORS = 4
HEAD = (
    *("ray", "start", "--head", "--block", "--node-ip-address=127.0.0.1", "--port=0"),
    *(f"--num-cpus={PROCESSORS}", "--include-dashboard=false", "--disable-usage-stats"),
)


@pytest.fixture(scope="module")
def ray() -> Iterator[None]:
    """A Ray cluster that asks for a token."""
    with (
        tempfile.TemporaryDirectory(prefix="ray-") as folder,  # short: sockets lie in it
        pytest.MonkeyPatch.context() as patched,
    ):
        (Path(folder) / "token").write_text(secrets.token_hex(32))
        patched.setenv("RAY_AUTH_MODE", "token")
        patched.setenv("RAY_AUTH_TOKEN_PATH", f"{folder}/token")
        patched.setenv("RAY_TMPDIR", folder)
        with subprocess.Popen(
            [*HEAD, f"--temp-dir={folder}"], stdout=subprocess.DEVNULL, start_new_session=True
        ) as head:
            address = Path(folder) / "ray_current_cluster"
            until(address.exists, 60)
            patched.setenv("RAY_ADDRESS", address.read_text().strip())
            yield
            head.terminate()


@pytest.fixture
def cluster(ray: None, tmp_path: Path) -> Cluster:
    (tmp_path / "script.py").write_text(SCRIPT)
    made = write_cluster(tmp_path, 2, "  data: {count: 1, script: script.py}\n")
    text = (tmp_path / "cluster.yaml").read_text()
    (tmp_path / "cluster.yaml").write_text(f"launcher: ray\n{text}")
    return Cluster.read(made.directory.parent / "cluster.yaml")


def told(cluster: Cluster, name: str) -> dict[str, int | None]:
    return ray_launcher.told(cluster).get(name, {"pid": None, "keeper": None})


def assert_trains(cluster: Cluster, folder: Path, job: str) -> None:
    with connected(cluster, folder, 2, job) as engines:
        train(engines)
        for rows, table in zip(rows_of(engines[0]), reference(2).values(), strict=True):
            np.testing.assert_allclose(rows, table.lookup(KEYS), rtol=2e-5, atol=1e-7)


def assert_data_nodes_read(cluster: Cluster, folder: Path) -> None:
    links: list[NodeLinks] = []
    with connected(cluster, folder, 1, "fed", links=links) as engines:
        train_fed(engines[0], links[0], wanted(PULL), EPOCHS)
        trained = rows_of_places(engines[0], 1)
    for rows, same in zip(trained, colocated(folder / "colocated", 1, None), strict=True):
        np.testing.assert_array_equal(rows, same)


def test_ray_places_nodes_and_starts_them_again(cluster: Cluster, tmp_path: Path) -> None:
    with own_memory():
        launching.up(cluster)
        with pytest.raises(StoreError, match="already run"):
            launching.up(cluster)
        assert_trains(cluster, tmp_path, "first")
        assert_data_nodes_read(cluster, tmp_path)
        epoch = launching.status(cluster)["epoch"]

        before = told(cluster, "embedding-0")
        assert before["pid"] is not None
        os.kill(before["pid"], signal.SIGKILL)  # its actor starts it again
        until(lambda: launching.status(cluster)["epoch"] == epoch + 1, 60)
        after = told(cluster, "embedding-0")
        assert (after["keeper"], after["starts"]) == (before["keeper"], 2)

        before = told(cluster, "embedding-1")
        assert before["keeper"] is not None
        os.kill(before["keeper"], signal.SIGKILL)  # Ray starts the actor again
        until(lambda: launching.status(cluster)["epoch"] == epoch + 2, 60)
        until(lambda: node(cluster, "embedding-1")["state"] == "ready", 60)
        after = told(cluster, "embedding-1")
        assert after["keeper"] != before["keeper"]
        assert after["pid"] != before["pid"]
        assert_trains(cluster, tmp_path, "second")

        pids = [each["pid"] for each in ray_launcher.told(cluster).values()]
        assert len(pids) == 4
        launching.down(cluster)
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
        with pytest.raises(StoreError, match="No nodes"):
            launching.down(cluster)


def test_more_processors_than_the_cluster_has_are_refused(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(path.read_text().replace("count: 2", f"count: 2, cpus: {PROCESSORS}"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ray_launcher, "_PLACE_SECONDS", 2.0)
        with pytest.raises(StoreError, match="no room"):
            launching.up(Cluster.read(path))


def test_a_cluster_that_asks_for_no_token_is_refused(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    with pytest.raises(ConfigError, match="RAY_AUTH_MODE=token"):
        launching.up(cluster)
