"""docker/nodes.yaml: its commands, run here without containers, make a cluster that trains."""

from __future__ import annotations

import contextlib
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import yaml

from tests.support.core.sharded_tables import KEYS, reference, rows_of, train
from tests.support.roles.clusters import own_memory, until
from tests.support.roles.numpy_trainers import connected
from tfhybrid.cluster import launching
from tfhybrid.cluster.cluster_file import Cluster, Role

FILE = Path(__file__).parents[3] / "docker" / "nodes.yaml"


def free_ports(count: int) -> list[str]:
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [str(probe.getsockname()[1]) for probe in probes]


def is_healthy(service: dict, here: dict[str, str], page: str) -> bool:
    """Whether a service's own check, run here, says that it is ready."""
    _, python, option, code = service["healthcheck"]["test"]
    code = code.replace("/run/secrets/token", here["/run/secrets/token"])
    check = [here[python], option, code.replace("metadata:7101", page)]
    return subprocess.run(check, capture_output=True, check=False).returncode == 0


def test_the_commands_make_a_cluster(tmp_path: Path) -> None:
    made = yaml.safe_load(FILE.read_text())
    services = made["services"]
    assert services["trainer"]["environment"] == {
        "TFHYBRID_NODES": "metadata:7100",
        "TFHYBRID_NODES_TOKEN": "/run/secrets/token",
    }
    assert all(name == its.get("hostname", name) for name, its in services.items())
    port, status_port = free_ports(2)
    (tmp_path / "token").write_text("a secret of the test")
    here = {
        "/run/secrets/token": str(tmp_path / "token"),
        "/home/tfhybrid/state.json": str(tmp_path / "state.json"),
        "metadata:7100": f"127.0.0.1:{port}",
        "7100": port,
        "7101": status_port,
        "python": sys.executable,
    }
    with own_memory(), contextlib.ExitStack() as running:
        for name in ("metadata", "embedding-0", "embedding-1", "data-0"):
            program, *words = shlex.split(services[name]["command"])
            assert program == "tfhybrid"
            command = [here.get(word, word) for word in words]
            command[words.index("--listen") + 1] = "127.0.0.1"
            process = running.enter_context(
                subprocess.Popen([sys.executable, "-m", "tfhybrid.cli", *command])
            )
            running.callback(process.terminate)
        roles = {"embedding": Role(2)}
        cluster = Cluster("local", tmp_path, "127.0.0.1", int(port), int(status_port), roles)
        until(lambda: launching.status(cluster)["missing"] == [])
        until(lambda: is_healthy(services["data-0"], here, f"127.0.0.1:{status_port}"), 60)
        with connected(cluster, tmp_path, 1) as engines:
            train(engines)
            for rows, table in zip(rows_of(engines[0]), reference(1).values(), strict=True):
                np.testing.assert_allclose(rows, table.lookup(KEYS), rtol=2e-5, atol=1e-7)
