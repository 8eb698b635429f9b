"""Writes the status page of a real cluster of nodes into a folder, as its metadata node serves it.

python scripts/status_page.py FOLDER
"""

from __future__ import annotations

import socket
import sys
import tempfile
import urllib.request
from pathlib import Path

from tfhybrid.cluster import launching
from tfhybrid.cluster.cluster_file import Cluster
from tfhybrid.cluster.node_options import read_token


def page() -> bytes:
    """Starts nodes, and returns their page."""
    with tempfile.TemporaryDirectory() as folder:
        ports = []
        for _ in range(2):
            with socket.create_server(("127.0.0.1", 0)) as probe:
                ports.append(probe.getsockname()[1])
        file = Path(folder) / "cluster.yaml"
        file.write_text(
            f"port: {ports[0]}\nstatus_port: {ports[1]}\n"
            "roles: {embedding: {count: 3, shards: 12}}\n"
        )
        cluster = Cluster.read(file)
        launching.up(cluster)
        try:
            launching.drain(cluster, "embedding-1")
            token = read_token(cluster.token_file)
            address = f"http://127.0.0.1:{cluster.status_port}/?token={token}"
            with urllib.request.urlopen(address) as answered:
                return answered.read()
        finally:
            launching.down(cluster)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    (target / "nodes.html").write_bytes(page())
