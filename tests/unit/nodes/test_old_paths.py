"""Commands that start nodes work by their old paths, with a warning that names the new one."""

from __future__ import annotations

import subprocess
import sys

import pytest

NEW_COMMANDS = {
    "tfhybrid.nodes.metadata": ["node", "metadata"],
    "tfhybrid.cluster.metadata_node": ["node", "metadata"],
    "tfhybrid.nodes.embedding": ["node", "embedding"],
    "tfhybrid.embedding_nodes.embedding_node": ["node", "embedding"],
    "tfhybrid.data.node": ["node", "data"],
    "tfhybrid.data.data_node": ["node", "data"],
}


@pytest.mark.parametrize("old", NEW_COMMANDS)
def test_old_path_runs_the_new_command(old: str) -> None:
    command = NEW_COMMANDS[old]
    help_of_old, errors = _help("-m", old)
    assert f"`python -m {old}` is deprecated: use `tfhybrid {' '.join(command)}`" in errors
    assert (help_of_old, "") == _help("-m", "tfhybrid.cli", *command)


def _help(*command: str) -> tuple[str, str]:
    process = subprocess.run(
        [sys.executable, *command, "--help"], capture_output=True, text=True, check=True
    )
    assert process.stdout
    return process.stdout, process.stderr
