"""What rank 0 does with a table between two steps, where its rows lie on embedding nodes."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from tfhybrid.core.frozen_table import FrozenTable, TableFile
from tfhybrid.core.record_file import RecordFile
from tfhybrid.core.row_block import RowBlock
from tfhybrid.core.table_writer import TableWriter
from tfhybrid.embedding_nodes.nodes_engine import NodesEngine
from tfhybrid.embedding_nodes.record_layout import layout_of
from tfhybrid.embedding_nodes.row_arrays import arrays_of


class NodesTableWriter(TableWriter):
    """A `TableWriter` that has the nodes do it.

    A frozen table has the parts of the first node, then those of the next. Nodes write files
    themselves, so they must see the directory.

    Args:
        engine: Of rank 0.
        name: As of `TableWriter`.
        dim: As of `TableWriter`.
        state_shape: As of `TableWriter`.
        waiting: As of `TableWriter`.
        owned_as: As of `TableWriter`.
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
        self._frozen = engine.frozen  # another writer of this table may write what this one freezes
        self._named = engine.named(name) | {
            "dim": dim,
            "state_shape": list(state_shape),
            "waiting": waiting is not None,
            "owned_as": owned_as,
        }

    def reserve(self, rows: int) -> None:
        """As of `TableWriter`; each node its part."""
        self._ask("reserve", rows=rows)

    def write_rows(self, block: RowBlock) -> int:
        """As of `TableWriter`; each node its own."""
        self._check(block)
        arrays = arrays_of(block)
        return sum(self._nodes.results("write_rows", self._named, arrays))

    def load_records(self, file: RecordFile) -> None:
        """As of `TableWriter`; each node reads the file."""
        file.layout(self._dim)
        self._ask(
            "load_records",
            path=os.fspath(file.path),
            dtype=layout_of(file.dtype),
            header_bytes=file.header_bytes,
        )

    def remove_keys(self, keys: np.ndarray) -> None:
        """As of `TableWriter`."""
        self._nodes.ask_all("remove_keys", self._named, {"keys": np.asarray(keys, np.int64)})

    def clear(self) -> None:
        """As of `TableWriter`."""
        super().clear()
        self._ask("clear")

    def set_decay(self, decay: float) -> None:
        """As of `TableWriter`."""
        super().set_decay(decay)
        self._ask("set_decay", decay=decay)

    def set_event_time(self, time: int) -> None:
        """As of `TableWriter`."""
        super().set_event_time(time)
        self._ask("set_event_time", time=time)

    def track_changes(self, cursor: str) -> None:
        """As of `TableWriter`."""
        self._ask("track_changes", cursor=cursor)

    def freeze(self, cursor: str = "", *, only_changed: bool = False) -> FrozenTable:
        """As of `TableWriter`; of all nodes together."""
        lost = self._engine_of_nodes.changes_are_lost(self._name, cursor)
        only_changed = only_changed and not lost
        its = self._named | {"cursor": cursor, "only_changed": only_changed}
        results = self._nodes.results("freeze", its)
        of_nodes = [FrozenTable(*each) for each in results]
        self._frozen[self._name] = of_nodes
        return of_nodes[0]._replace(
            rows=sum(each.rows for each in of_nodes),
            parts=sum(each.parts for each in of_nodes),
            whole=all(each.whole for each in of_nodes),
            removed=sum(each.removed for each in of_nodes),
            event_time=max(each.event_time for each in of_nodes),
        )

    def return_changes(self) -> None:
        """As of `TableWriter`."""
        self._ask("return_changes")

    def removed_keys(self, frozen: FrozenTable) -> np.ndarray:
        """As of `TableWriter`."""
        return np.concatenate(
            [
                self._nodes.ask(node, "removed_keys", self._named | {"frozen": list(of_node)})[1][
                    "keys"
                ]
                for node, of_node in enumerate(self._frozen[self._name])
                if of_node.removed
            ]
        )

    def write_part(self, part: int, path: str | os.PathLike[str] | None) -> TableFile:
        """As of `TableWriter`; written by the node that has the part."""
        for node, of_node in enumerate(self._frozen[self._name]):
            if part < of_node.parts:
                its: dict[str, Any] = {"part": part, "path": None}
                if path is not None:
                    its["path"] = os.path.abspath(path)
                result, _ = self._nodes.ask(node, "write_part", self._named | its)
                return TableFile(*result)
            part -= of_node.parts
        raise IndexError(part)

    def thaw(self) -> None:
        """As of `TableWriter`."""
        self._ask("thaw")

    def _ask(self, call: str, **its: object) -> None:
        self._nodes.ask_all(call, self._named | its)
