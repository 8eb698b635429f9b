"""Operations of rank 0 on a table between two steps, if its rows lie on embedding nodes."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
from typing_extensions import override

from tfhybrid.core.frozen_table import FrozenTable, TableFile
from tfhybrid.core.record_file import RecordFile
from tfhybrid.core.row_block import RowBlock
from tfhybrid.core.table_writer import TableWriter
from tfhybrid.embedding_nodes.nodes_engine import NodesEngine
from tfhybrid.embedding_nodes.owned_store import OwnedStore, WriterOf
from tfhybrid.errors import OutOfSpaceError, StoreError
from tfhybrid.rpc.calls import ask_each
from tfhybrid.rpc.remote_methods import call_on

_P = ParamSpec("_P")
_T = TypeVar("_T")


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
        self._nodes = engine
        self._frozen = engine.frozen  # shared: another writer of the table may write these parts
        self._target = WriterOf(name, dim, state_shape, waiting is not None, owned_as)

    @override
    def reserve(self, rows: int) -> None:
        self._nodes.calls.each(OwnedStore.reserve, self._target, rows)

    @override
    def write_rows(self, block: RowBlock) -> int:
        self._check(block)
        return sum(self._each(TableWriter.write_rows, block))

    @override
    def load_records(self, file: RecordFile) -> None:
        file.layout(self._dim)
        self._each(TableWriter.load_records, file)

    @override
    def remove_keys(self, keys: np.ndarray) -> None:
        self._each(TableWriter.remove_keys, np.asarray(keys, np.int64))

    @override
    def clear(self) -> None:
        super().clear()
        self._each(TableWriter.clear)

    @override
    def set_decay(self, decay: float) -> None:
        super().set_decay(decay)
        self._each(TableWriter.set_decay, decay)

    @override
    def set_event_time(self, time: int) -> None:
        super().set_event_time(time)
        self._each(TableWriter.set_event_time, time)

    @override
    def track_changes(self, cursor: str) -> None:
        self._each(TableWriter.track_changes, cursor)

    @override
    def freeze(self, cursor: str = "", *, only_changed: bool = False) -> FrozenTable:
        lost = self._nodes.changes_are_lost(self._name, cursor)
        self._nodes.settle(self._name)
        of_nodes = self._each(TableWriter.freeze, cursor, only_changed=only_changed and not lost)
        self._frozen[self._name] = of_nodes
        return FrozenTable.of_owners(of_nodes)

    @override
    def return_changes(self) -> None:
        self._each(TableWriter.return_changes)

    @override
    def removed_keys(self, frozen: FrozenTable) -> np.ndarray:
        calls = [
            (caller, call_on(self._target, TableWriter.removed_keys, of_node))
            for caller, of_node in zip(self._nodes.calls, self._frozen[self._name], strict=True)
            if of_node.removed
        ]
        return np.concatenate([np.empty(0, np.int64), *ask_each(calls)])

    @override
    def write_part(self, part: int, path: str | os.PathLike[str] | None) -> TableFile:
        for node, of_node in zip(self._nodes.calls, self._frozen[self._name], strict=True):
            if part < of_node.parts:
                at = None if path is None else os.path.abspath(path)
                try:
                    return node.ask(call_on(self._target, TableWriter.write_part, part, at))
                except OutOfSpaceError:  # the node sees the directory
                    raise
                except StoreError as error:
                    raise StoreError(
                        f"{error}. Every embedding node writes its own rows, so it must see the "
                        "directory"
                    ) from error
            part -= of_node.parts
        raise IndexError(part)

    @override
    def thaw(self) -> None:
        self._each(TableWriter.thaw)
        self._frozen.pop(self._name, None)

    def _each(
        self, method: Callable[Concatenate[Any, _P], _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> list[_T]:
        return self._nodes.calls.each_on(self._target, method, *args, **kwargs)
