"""A node that cannot write: a full disk is told as such, and a missing folder with a hint."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.connected import connected
from tfhybrid._remote import remote
from tfhybrid.core.frozen_table import FrozenTable
from tfhybrid.core.table_writer import TableWriter
from tfhybrid.embedding_nodes.nodes_table_writer import NodesTableWriter
from tfhybrid.embedding_nodes.owned_store import WriterOf
from tfhybrid.errors import OutOfSpaceError, StoreError, TfhybridError
from tfhybrid.rpc.remote_methods import served_of


class FailingWriter(TableWriter):
    """Writer of a node whose disk fails, which a test cannot bring about in another process."""

    def __init__(self, error: TfhybridError) -> None:
        self.error = error

    @remote
    def write_part(self, part: int, path: Any) -> Any:
        raise self.error


@pytest.mark.parametrize("kind", [OutOfSpaceError, StoreError])
def test_a_full_disk_of_a_node_is_told_as_such(kind: type[TfhybridError]) -> None:
    calls = served_of(TableWriter, WriterOf, lambda _: FailingWriter(kind("cannot write x")))
    with connected(calls, "embedding-0") as caller:
        frozen = {"item": [FrozenTable(4, 1, 1, True, 0, 0, 1.0)]}
        engine: Any = SimpleNamespace(calls=[caller], frozen=frozen)
        writer = NodesTableWriter(engine, "item", 2, (0, 2), None)
        with pytest.raises(kind, match="embedding-0: cannot write x") as raised:
            writer.write_part(0, "x")
    assert raised.type is kind
    assert ("must see the directory" in str(raised.value)) == (kind is StoreError)
