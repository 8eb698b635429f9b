"""Cluster files, and what is made of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tfhybrid.cluster import placed_processes
from tfhybrid.cluster.cluster_file import Cluster
from tfhybrid.cluster.node_options import read_token
from tfhybrid.cluster.placed_processes import PlacedProcess, processes_of
from tfhybrid.cluster.processors import processors_of
from tfhybrid.errors import ConfigError
from tfhybrid.rpc.address import parsed_address


def read(folder: Path, text: str) -> Cluster:
    path = folder / "cluster.yaml"
    path.write_text(text)
    return Cluster.read(path)


def test_a_file_says_what_to_start(tmp_path: Path) -> None:
    cluster = read(
        tmp_path,
        "port: 7200\nroles:\n  embedding: {count: 2, cpus: 1}\n"
        "  gateway: {command: [python, gateway.py]}\n",
    )
    processes = {each.name: each for each in processes_of(cluster, cluster.listen)}
    assert [*processes] == ["metadata", "embedding-0", "embedding-1", "gateway-0"]
    assert processes["gateway-0"].command == ("python", "gateway.py")
    assert processes["gateway-0"].environment["TFHYBRID_NODES"] == "127.0.0.1:7200"
    assert processes["gateway-0"].environment["TFHYBRID_NODE_NAME"] == "gateway-0"
    assert "embedding-0,embedding-1" in processes["metadata"].command
    assert processes["embedding-1"].cpus == 1
    assert cluster.directory == tmp_path / "nodes"
    placed_processes.write(tmp_path / "plan.json", processes.values())
    assert placed_processes.read(tmp_path / "plan.json") == [*processes.values()]


def test_data_nodes_get_their_script(tmp_path: Path) -> None:
    roles = "roles: {embedding: {}, data: {script: train.py}}"
    node = processes_of(read(tmp_path, roles), "10.0.0.7")[-1]
    assert node.name == "data-0"
    program = ("-m", "tfhybrid.cli", "node", "data", "--listen", "10.0.0.7")
    assert node.command[1:7] == program
    assert str(tmp_path / "train.py") in node.command
    node = processes_of(read(tmp_path, roles.replace("train.py", "package.train")), "10.0.0.7")[-1]
    assert "package.train" in node.command


def test_a_launcher_has_an_old_key(tmp_path: Path) -> None:
    with pytest.warns(DeprecationWarning, match="`engine` is deprecated: use `launcher`"):
        assert read(tmp_path, "engine: ray\nroles: {embedding: {}}").launcher == "ray"


def test_shards_have_an_old_key(tmp_path: Path) -> None:
    with pytest.warns(DeprecationWarning, match="`shares` is deprecated: use `shards`"):
        cluster = read(tmp_path, "roles: {embedding: {count: 2, shares: 8}}")
    assert cluster.roles["embedding"].shards == 8


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("roles: [", r"cluster\.yaml:1: expected the node content, but found '<stream end>'"),
        ("port: 1\nroles: {}\nport: 2", r'cluster\.yaml:3: found duplicate key "port"'),
        ("- 1", r"the fields must be from.*Received: \[1\]"),
        ("roles: {embedding: {}}\nprot: 1", r"yaml:2: prot: the fields must be from.*: 'prot'$"),
        ("roles:\n  embedding:\n    cpu: 1", r"yaml:3: roles\.embedding\.cpu: .*: 'cpu'$"),
        ("roles: 3", "roles must map role names to fields. Received: 3"),
        ("roles: {}", "the role 'embedding', which owns the tables, is missing"),
        ("launcher: slurm\nroles: {embedding: {}}", "launcher must be one of.*Received: 'slurm'"),
        ("port: 0\nroles: {embedding: {}}", "port must be a port.*Received: 0"),
        ("roles: {embedding: {count: 0}}", "count must be at least 1.*Received: count=0"),
        ("roles: {embedding: {count: true}}", "Received: count=True"),
        ("roles: {embedding: {numa: -1}}", "numa must be the number of a NUMA node. Received: -1"),
        ("roles: {embedding: {}, other: {}}", r"must set its command.*'other' with \[\]"),
        ("roles: {embedding: {command: [x]}}", "have built-in commands"),
        ("roles: {embedding: {}, data: {}}", "must set its script.*'data' with ''"),
        ("roles: {embedding: {script: a.py}}", "must set its script.*'embedding' with 'a.py'"),
    ],
)
def test_what_cannot_be_is_named(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        read(tmp_path, text)


@pytest.mark.parametrize("text", ["", "host", "host:", ":80", "host:0", "host:70000", "host:x"])
def test_an_address_is_host_and_port(text: str) -> None:
    with pytest.raises(ConfigError, match="An address is HOST:PORT"):
        parsed_address(text)
    assert parsed_address("[::1]:80") == ("::1", 80)


def test_a_token_lies_in_a_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "token"
    with pytest.raises(ConfigError, match="cannot be read"):
        read_token(file)
    for text in ("\n", "a", "15 characters ."):
        file.write_text(text)
        with pytest.raises(ConfigError, match=rf"16 characters.* {len(text.strip())} characters"):
            read_token(file)
    file.write_text("a secret of the test\n")
    file.chmod(0o640)
    assert read_token(file) == "a secret of the test"
    assert not caplog.text
    file.chmod(0o644)
    assert read_token(file) == "a secret of the test"
    assert f"Every user of this host may read the token in {file}" in caplog.text


def test_processors_are_dealt_out() -> None:
    mine = os.sched_getaffinity(0)
    processes = [PlacedProcess(name, ("true",), cpus=1) for name in ("a", "b")]
    dealt = processors_of([*processes, PlacedProcess("c", ("true",))])
    assert len(dealt["a"]) == 1
    assert dealt["a"] != dealt["b"] or len(mine) == 1
    assert dealt["c"] == set()
    with pytest.raises(ConfigError, match="needs"):
        processors_of([PlacedProcess("a", ("true",), cpus=len(mine) + 1)])
    with pytest.raises(ConfigError, match="There is no NUMA node 999"):
        processors_of([PlacedProcess("a", ("true",), numa=999)])
