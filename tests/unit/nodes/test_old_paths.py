"""Commands that start nodes work by their old paths, with a warning that names the new one."""

from __future__ import annotations

import subprocess
import sys

import pytest

NEW_PATHS = {
    "tfhybrid.nodes.metadata": "tfhybrid.cluster.metadata_node",
    "tfhybrid.nodes.embedding": "tfhybrid.embedding_nodes.embedding_node",
    "tfhybrid.data.node": "tfhybrid.data.data_node",
}


@pytest.mark.parametrize("old", NEW_PATHS)
def test_old_path_runs_the_new_command(old: str) -> None:
    help_of = {}
    for path in (old, NEW_PATHS[old]):
        command = [sys.executable, "-m", path, "--help"]
        process = subprocess.run(command, capture_output=True, text=True, check=True)
        help_of[path] = process.stdout.partition("\n\n")[2]
        warned = f"`python -m {old}` is deprecated: use `python -m {NEW_PATHS[old]}`"
        assert (warned in process.stderr) == (path == old), process.stderr
    assert help_of[old] == help_of[NEW_PATHS[old]] != ""
