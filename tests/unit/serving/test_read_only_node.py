"""A read-only node answers as a reader does, while publications come."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.free_ports import two_free_ports
from tests.support.serving.publishing import KEYS, Site, wide_update
from tests.support.stream.model_updates import DELTAS, lease_update
from tfhybrid.errors import ConfigError, DataError, PublicationError
from tfhybrid.monitoring.metrics import from_dict
from tfhybrid.rpc import listener
from tfhybrid.rpc.calls import answer_calls
from tfhybrid.rpc.remote_methods import served
from tfhybrid.rpc.server import NodeServer
from tfhybrid.serving import Reader, RemoteReader
from tfhybrid.serving.read_only_node import ReadOnlyNode


@pytest.fixture
def site(tmp_path: Path, shm_directory: Path) -> Iterator[Site]:
    site = Site(tmp_path, shm_directory)
    yield site
    site.unit.close()


@pytest.fixture
def serve() -> Iterator:
    ends: list = []

    def serve(reader: Reader) -> RemoteReader:
        port = two_free_ports()
        calls = served(ReadOnlyNode(reader))
        server = NodeServer(
            listener.listen("127.0.0.1", port), "token", lambda _, link: answer_calls(link, calls)
        )
        thread = threading.Thread(target=server.run)
        thread.start()
        remote = RemoteReader(f"127.0.0.1:{port}", "token", "test")
        ends.append((remote, server, thread))
        return remote

    yield serve
    for remote, server, thread in ends:
        remote.close()
        server.stop()
        thread.join()


def test_a_node_answers_as_the_reader_does(site: Site, serve):
    reader = site.reader()
    node = serve(reader)
    with pytest.raises(PublicationError, match=r"No publication of .* has been read yet"):
        node.read({"item": KEYS})
    for number in range(3):
        site.train(number)
        site.publish()
        reader.refresh()
        site.assert_served(node)
    assert node.spec.to_json() == site.model._weights.opened().spec.to_json()
    assert node.read({"item": KEYS.reshape(2, 60)}).rows["item"].shape == (2, 60, 3)
    with pytest.raises(ConfigError, match="Tables are"):
        node.read({"price": KEYS})
    with pytest.raises(DataError, match="Table 'item': expected keys"):
        node.read({"item": np.ma.array([3, 7], mask=[False, True])})
    told = {metric.name: values for metric, values in from_dict(node._node.stats())}
    assert told["reader_publication"] == {"ads": 3.0}
    reader.close()


def test_lookups_see_one_publication_while_others_are_taken(site: Site):
    """Each publication adds one to all rows: those of both tables must be of the same one."""
    site.publish()
    reader = site.reader()
    reader.follow(0.001)
    ends = threading.Event()
    torn: list = []
    keys = {"item": np.arange(100, 2100), "user": np.arange(100, 2100)}

    def look() -> None:
        while not ends.is_set():
            if reader.publication is None:
                continue
            found = reader.read(keys)
            steps = {round(float(rows.flat[i])) for rows in found.rows.values() for i in (0, -1)}
            if len(steps) != 1:
                torn.append((found.number, steps))

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(20):
        wide = wide_update(DELTAS)
        site.model.apply(_of(wide, lease_update(number)))
        site.publish()
    until = time.monotonic() + 60
    while reader.publication is None or reader.publication.number < 21:
        assert time.monotonic() < until
        time.sleep(0.01)
    ends.set()
    for thread in threads:
        thread.join()
    reader.close()
    assert torn == []


def _of(update, lease):
    """An update under the lease of another one."""
    fields = {name: getattr(lease, name) for name in ("fence", "begin", "end")}
    return dataclasses.replace(update, **fields)
