"""Data nodes as processes, without TensorFlow, and kill -9."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.reference.clusters import killed, node, own_memory, write_cluster
from tests.unit.nodes.numpy_trainers import joined
from tests.unit.nodes.split_roles import FEATURES, STEPS, TABLES, step
from tests.unit.nodes.test_split_roles import EPOCHS, colocated, rows_of
from tfhybrid.core import batches
from tfhybrid.data.node import load, maker
from tfhybrid.errors import ConfigError, DataError
from tfhybrid.nodes import launching
from tfhybrid.nodes.cluster_file import Cluster
from tfhybrid.nodes.elements import unflatten
from tfhybrid.nodes.feed import Wanted
from tfhybrid.nodes.joining import NodeLinks
from tfhybrid.nodes.key_links import REQUEST, UNASKED
from tfhybrid.nodes.splitting import Declared

SCRIPT = """
from tests.unit.nodes import split_roles

def dataset(shard, steps):
    return split_roles.dataset((shard.rank, shard.size), steps)

def broken(shard):
    raise OSError("no such disk")
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two embedding nodes and two data nodes."""
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "script.py").write_text(SCRIPT)
    made = write_cluster(folder, 2, "  data: {count: 2, script: script.py}\n")
    with own_memory():
        launching.up(made)
        yield made
        launching.down(made)


@pytest.mark.parametrize("join", [REQUEST, UNASKED])
def test_a_data_node_that_is_killed_reads_again(
    cluster: Cluster, tmp_path: Path, join: str
) -> None:
    links: list[NodeLinks] = []
    wanted = Wanted("dataset", {"steps": STEPS}, "batch", True, join, 2, 3, 1 << 20)
    with joined(cluster, tmp_path, 1, f"job-{join}", links=links) as engines:
        trainer = engines[0]
        batches.use_places(trainer)
        update = trainer.open_update("sgd", TABLES)
        feed = links[0].feed(wanted, 0, 1)
        described = feed.describe()
        assert described["cardinality"] == STEPS
        first = trainer.first_node
        declared = Declared(FEATURES, trainer.placements, first, first + trainer.nodes)
        for epoch in range(EPOCHS):
            for number, (structure, leaves) in enumerate(feed.epoch(declared)):
                if (epoch, number) == (1, 2):
                    killed(cluster, "data-0")
                element = unflatten(structure, [leaf.values for leaf in leaves])
                step(trainer, update, element, places=True)
        feed.close()
        for name in TABLES:
            trainer.wait(name)
        found = rows_of(trainer, 1)
    assert node(cluster, "data-1")["state"] == "ready"
    for rows, same in zip(found, colocated(tmp_path / "colocated", 1, None), strict=True):
        np.testing.assert_array_equal(rows, same)


def test_a_data_node_needs_tensorflow_only_for_its_script() -> None:
    code = "import sys, tfhybrid.data.node; print({'tensorflow', 'horovod'} & set(sys.modules))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert told.stdout.strip() == "set()", told


def test_functions_are_called_by_their_names(tmp_path: Path) -> None:
    (tmp_path / "a_script.py").write_text(SCRIPT)
    make = maker(load(str(tmp_path / "a_script.py")))
    assert len(list(make("dataset", (0, 1), {"steps": 2}))) == 2
    with pytest.raises(ConfigError, match="Received: 'absent'"):
        make("absent", (0, 1), {})
    with pytest.raises(DataError, match="no such disk"):
        make("broken", (0, 1), {})
    with pytest.raises(DataError, match="broken of a_script failed"):
        make("broken", (0, 1), {"steps": 2})
    (tmp_path / "bad_script.py").write_text("import nothing_of_the_kind")
    with pytest.raises(ConfigError, match="imports its script"):
        load(str(tmp_path / "bad_script.py"))
