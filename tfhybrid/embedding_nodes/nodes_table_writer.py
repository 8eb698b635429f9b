"""Operations of rank 0 on a table between two steps, if its rows lie on embedding nodes."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from typing_extensions import override

from tfhybrid.core.frozen_table import FrozenTable, TableFile
from tfhybrid.core.record_file import RecordFile
from tfhybrid.core.row_block import RowBlock
from tfhybrid.core.table_writer import TableWriter
from tfhybrid.embedding_nodes.nodes_engine import NodesEngine
from tfhybrid.embedding_nodes.record_layout import layout_of
from tfhybrid.embedding_nodes.row_arrays import arrays_of


class NodesTableWriter(TableWriter):
    """Table writer that lets every embedding node handle its own rows; on rank 0 only.

    The parts of a frozen table are numbered node by node: those of the first node, then those of
    the next. Nodes read and write files themselves, so they must see the same paths as rank 0. A
    method raises `TfhybridError` if a node fails or is gone. Construction waits for the posted
    updates of the table.

    Args:
        engine: Engine of rank 0, in which the table is open.
        name: Name of the table.
        dim: Length of an embedding.
        state_shape: Shape of a row's optimizer state: vectors, and floats in each.
        waiting: Writer for the keys that wait for admission; `None` if the table has no admission.
        owned_as: Name of the sharded table whose owner rule decides which keys a node keeps;
            `None` if it keeps all. Default `None`.

    Raises:
        NotInitializedError: This is not rank 0.
        TfhybridError: The table is not open.
    """

    def __init__(
        self,
        engine: NodesEngine,
        name: str,
        dim: int,
        state_shape: tuple[int, int],
        waiting: TableWriter | None,
        owned_as: str | None = None,
    ) -> None:
        super().__init__(engine, name, dim, state_shape, waiting, owned_as)
        self._nodes = engine.calls
        self._engine_of_nodes = engine
        self._frozen = engine.frozen  # shared: another writer of the table may write these parts
        self._named = engine.named(name) | {
            "dim": dim,
            "state_shape": list(state_shape),
            "waiting": waiting is not None,
            "owned_as": owned_as,
        }

    @override
    def reserve(self, rows: int) -> None:
        self._ask("reserve", rows=rows)

    @override
    def write_rows(self, block: RowBlock) -> int:
        self._check(block)
        arrays = arrays_of(block)
        return sum(self._nodes.results("write_rows", self._named, arrays))

    @override
    def load_records(self, file: RecordFile) -> None:
        file.layout(self._dim)
        self._ask(
            "load_records",
            path=os.fspath(file.path),
            dtype=layout_of(file.dtype),
            header_bytes=file.header_bytes,
        )

    @override
    def remove_keys(self, keys: np.ndarray) -> None:
        self._nodes.ask_all("remove_keys", self._named, {"keys": np.asarray(keys, np.int64)})

    @override
    def clear(self) -> None:
        super().clear()
        self._ask("clear")

    @override
    def set_decay(self, decay: float) -> None:
        super().set_decay(decay)
        self._ask("set_decay", decay=decay)

    @override
    def set_event_time(self, time: int) -> None:
        super().set_event_time(time)
        self._ask("set_event_time", time=time)

    @override
    def track_changes(self, cursor: str) -> None:
        self._ask("track_changes", cursor=cursor)

    @override
    def freeze(self, cursor: str = "", *, only_changed: bool = False) -> FrozenTable:
        lost = self._engine_of_nodes.changes_are_lost(self._name, cursor)
        only_changed = only_changed and not lost
        arguments = self._named | {"cursor": cursor, "only_changed": only_changed}
        results = self._nodes.results("freeze", arguments)
        of_nodes = [FrozenTable(*each) for each in results]
        self._frozen[self._name] = of_nodes
        return of_nodes[0]._replace(
            rows=sum(each.rows for each in of_nodes),
            parts=sum(each.parts for each in of_nodes),
            whole=all(each.whole for each in of_nodes),
            removed=sum(each.removed for each in of_nodes),
            event_time=max(each.event_time for each in of_nodes),
        )

    @override
    def return_changes(self) -> None:
        self._ask("return_changes")

    @override
    def removed_keys(self, frozen: FrozenTable) -> np.ndarray:
        return np.concatenate(
            [
                self._nodes.ask(node, "removed_keys", self._named | {"frozen": list(of_node)})[1][
                    "keys"
                ]
                for node, of_node in enumerate(self._frozen[self._name])
                if of_node.removed
            ]
        )

    @override
    def write_part(self, part: int, path: str | os.PathLike[str] | None) -> TableFile:
        for node, of_node in enumerate(self._frozen[self._name]):
            if part < of_node.parts:
                arguments: dict[str, Any] = {"part": part, "path": None}
                if path is not None:
                    arguments["path"] = os.path.abspath(path)
                result, _ = self._nodes.ask(node, "write_part", self._named | arguments)
                return TableFile(*result)
            part -= of_node.parts
        raise IndexError(part)

    @override
    def thaw(self) -> None:
        self._ask("thaw")

    def _ask(self, call: str, **arguments: object) -> None:
        self._nodes.ask_all(call, self._named | arguments)
