"""Nodes with certificates: every port speaks TLS, refuses others, and says so in its log."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.certificates.authority import Authority
from tests.support.certificates.plain_port import port_without_tls
from tests.support.core.sharded_tables import KEYS, reference, rows_of, train
from tests.support.roles.clusters import (
    certified,
    found,
    logged,
    member_of,
    node,
    own_memory,
    pid_of,
    until,
    write_cluster,
)
from tests.support.roles.colocated_run import EPOCHS, colocated
from tests.support.roles.colocated_run import rows_of as rows_of_places
from tests.support.roles.data_script import SCRIPT, wanted
from tests.support.roles.numpy_trainers import SILENCE, connected
from tests.support.roles.split_roles import train_fed
from tfhybrid.cluster import launching
from tfhybrid.cluster.cluster_file import Cluster
from tfhybrid.cluster.metadata_node import MetadataNode
from tfhybrid.cluster.node_options import read_token
from tfhybrid.cluster.registration import ClusterMember, address_of
from tfhybrid.data_nodes.key_links import PULL, PUSH
from tfhybrid.embedding_nodes.node_links import NodeLinks
from tfhybrid.errors import PeerDiedError, StoreError
from tfhybrid.rpc import listener
from tfhybrid.rpc.calls import Caller
from tfhybrid.rpc.handshake import Handshake, Purpose
from tfhybrid.rpc.tls import Tls, dialled
from tfhybrid.settings import TlsFiles


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "ca")


@pytest.fixture(scope="module")
def files(authority: Authority) -> TlsFiles:
    return authority.files("nodes")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, files: TlsFiles) -> Iterator[Cluster]:
    """Two embedding nodes, a data node and a metadata node, all with certificates."""
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "script.py").write_text(SCRIPT)
    made = write_cluster(folder, 2, "  data: {count: 1, script: script.py}\n")
    with own_memory(), certified(files):
        launching.up(made)
        yield made
        launching.down(made)


@pytest.fixture
def tls(files: TlsFiles) -> Iterator[Tls]:
    with contextlib.closing(Tls(files)) as made:
        yield made


def listeners(cluster: Cluster, tls: Tls) -> dict[str, tuple[str, int]]:
    nodes = found(cluster, tls)
    metadata = cluster.listen, cluster.port
    data = {name: address_of(member_of(cluster, "a test", tls=tls), name) for name in nodes.data}
    return {"metadata": metadata} | dict(zip(nodes.names, nodes.addresses, strict=True)) | data


def test_trainers_train_through_tls(cluster: Cluster, tmp_path: Path, tls: Tls) -> None:
    with connected(cluster, tmp_path, 2, tls=tls) as engines:
        train(engines)
        for rows, table in zip(rows_of(engines[0]), reference(2).values(), strict=True):
            np.testing.assert_allclose(rows, table.lookup(KEYS), rtol=2e-5, atol=1e-7)
        assert node(cluster, "embedding-0")["state"] == "ready"


@pytest.mark.parametrize("delivery", [PULL, PUSH])
def test_batches_of_data_nodes_go_through_tls(
    cluster: Cluster, tmp_path: Path, tls: Tls, delivery: str
) -> None:
    links: list[NodeLinks] = []
    with connected(cluster, tmp_path, 1, f"job-{delivery}", tls=tls, links=links) as engines:
        train_fed(engines[0], links[0], wanted(delivery), EPOCHS)
        trained = rows_of_places(engines[0], 1)
    for rows, same in zip(trained, colocated(tmp_path / "colocated", 1, None), strict=True):
        np.testing.assert_array_equal(rows, same)


def test_who_speaks_plainly_is_refused_on_every_port(cluster: Cluster, tls: Tls) -> None:
    token = read_token(cluster.token_file)
    handshake = Handshake(Purpose.CALLS, "plain").text()
    for name, address in listeners(cluster, tls).items():
        for said in (token.encode() + handshake.encode().ljust(1024), b"garbage " * 250):
            with socket.create_connection(address, timeout=10) as link:
                port = link.getsockname()[1]
                link.sendall(said)
                with contextlib.suppress(ConnectionResetError):
                    while link.recv(100):  # an alert, perhaps
                        pass
            logged(cluster, name, f"from 127.0.0.1 port {port} is closed: it does not speak TLS")
    caller = member_of(cluster, "plain").call_metadata()
    with (
        contextlib.closing(caller),
        pytest.raises(StoreError, match="the metadata node at"),
    ):
        caller.call(MetadataNode.view)


def test_a_wrong_token_is_refused_on_every_port(cluster: Cluster, tls: Tls) -> None:
    token = "x" * len(read_token(cluster.token_file))
    handshake = Handshake(Purpose.CALLS, "stranger").text()
    for name, address in listeners(cluster, tls).items():
        link = listener.dial(address, token, handshake, 10, SILENCE, dialled(tls, name))
        with contextlib.closing(Caller(link, name)) as caller, pytest.raises(StoreError):
            caller.call(MetadataNode.view)
        logged(cluster, name, "is closed: it does not show the token")


def test_a_certificate_of_another_ca_is_refused(
    cluster: Cluster, tmp_path: Path, authority: Authority
) -> None:
    other = Authority(tmp_path / "other").files("stranger")
    for files in (other, dataclasses.replace(other, ca=authority.ca)):
        with (
            contextlib.closing(Tls(files)) as stranger,
            pytest.raises(PeerDiedError, match="certificate"),
        ):
            member_of(cluster, "stranger", tls=stranger).call_metadata()


def test_a_cluster_without_tls_is_named(tls: Tls) -> None:
    with port_without_tls() as address, pytest.raises(PeerDiedError, match="does not speak TLS"):
        ClusterMember(address, "token", "a test", tls=tls).call_metadata()


def test_the_page_is_encrypted_too(cluster: Cluster, authority: Authority) -> None:
    token = read_token(cluster.token_file)
    trust = ssl.create_default_context(cafile=authority.ca)
    trust.check_hostname = False
    page = f"https://127.0.0.1:{cluster.status_port}"
    asked = urllib.request.Request(f"{page}/metrics", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(asked, context=trust) as told:
        assert "tfhybrid_epoch" in told.read().decode()
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(f"{page}/?token=wrong", context=trust)
    logged(cluster, "metadata", "is refused: it does not show the token")
    address = cluster.listen, cluster.status_port
    with socket.create_connection(address, timeout=10) as link:
        link.sendall(b"GET / HTTP/1.0\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            assert b"Nodes" not in link.recv(4096)
    logged(cluster, "metadata", "is refused: it does not speak TLS")


def test_a_node_whose_relay_is_killed_comes_back(cluster: Cluster, tls: Tls) -> None:
    pid = pid_of(cluster, "embedding-1")
    assert pid is not None
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    assert len(children) == 1
    os.kill(int(children[0]), signal.SIGKILL)
    until(lambda: pid_of(cluster, "embedding-1") not in (pid, None))
    until(lambda: node(cluster, "embedding-1")["state"] == "ready")
    logged(cluster, "embedding-1", "TLS relay of this node has ended")
