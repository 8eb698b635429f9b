"""Writes the status page of a real cluster of nodes and its data into a folder, as it is served.

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

PAGES = {"nodes.html": "", "status.json": "status.json"}


def pages() -> dict[str, bytes]:
    """Starts nodes, and returns the contents of their page and its data, by file."""
    with tempfile.TemporaryDirectory() as folder:
        ports = []
        for _ in range(2):
            with socket.create_server(("127.0.0.1", 0)) as probe:
                ports.append(probe.getsockname()[1])
        path = Path(folder) / "cluster.yaml"
        path.write_text(
            f"port: {ports[0]}\nstatus_port: {ports[1]}\n"
            "roles: {embedding: {count: 3, shards: 12}}\n"
        )
        cluster = Cluster.read(path)
        launching.up(cluster)
        try:
            launching.drain(cluster, "embedding-1")
            token = read_token(cluster.token_file)
            contents = {}
            for file, name in PAGES.items():
                address = f"http://127.0.0.1:{cluster.status_port}/{name}?token={token}"
                with urllib.request.urlopen(address) as answer:
                    contents[file] = answer.read()
            return contents
        finally:
            launching.down(cluster)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    for name, content in pages().items():
        (target / name).write_bytes(content)
