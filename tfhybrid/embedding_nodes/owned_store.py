"""Store of an embedding node for one shard of a job, and the calls by which rank 0 controls it.

Rank 0 opens tables and updates here as it opens its own, and loads, saves and counts rows. Reads
and updates of rows do not pass through this module: the core serves their connections.
"""

from __future__ import annotations

import ctypes
import logging
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tfhybrid.core import native, split_batches
from tfhybrid.core.engine import Engine
from tfhybrid.core.frozen_table import FrozenTable
from tfhybrid.core.record_file import RecordFile
from tfhybrid.core.table_writer import TableWriter
from tfhybrid.core.update import UpdateChoices
from tfhybrid.embedding_nodes.record_layout import dtype_of
from tfhybrid.embedding_nodes.row_arrays import block_of
from tfhybrid.errors import StoreError
from tfhybrid.rpc.calls import Answer, Arguments, Called, ReceivedArrays

_log = logging.getLogger("tfhybrid.embedding_nodes")

_LONGEST_NAME = 64  # characters, of a job's name as the core takes it
_UNEVENNESS = 1.05  # rows of the largest shard over the mean, as a hash spreads them


class OwnedStore:
    """Tables of one shard of a job, on an embedding node.

    The functions of `calls` run on the thread that serves rank 0. `numbers` may be called on any
    thread.

    Args:
        directory: Directory in shared memory. It may hold the stores of other nodes too, so the
            store is named after job, node and shard.
        node: Name of this node.
        described: Description of this process, for the messages of others.
        arguments: Arguments of the call `begin`: name of the `job`, `hosts` and `nodes` as in
            `Engine`, `number` of the shard, and `resumes`: whether the store is kept for the job's
            next run if this one dies.

    Attributes:
        job: Name of the job.
        engine: Engine with the tables of the shard; has no store until rank 0 opens or recovers it.

    Raises:
        KeyError, TypeError, ValueError: An argument is missing or malformed.
    """

    def __init__(
        self, directory: str, node: str, described: str, arguments: Mapping[str, Any]
    ) -> None:
        hosts = [int(host) for host in arguments["hosts"]]
        self._nodes = int(arguments["nodes"])
        self._number = int(arguments["number"])
        self.job = str(arguments["job"])
        self.engine = Engine(hosts, max(hosts) + 1 + self._number, self._nodes)
        self._directory = directory
        self._described = described
        suffix = f".{node}.{self._number}"
        self._name = f"{self.job[: _LONGEST_NAME - len(suffix)]}{suffix}"
        self._resumes = bool(arguments["resumes"])
        self._placements: dict[str, tuple[native.PlacementKind, int]] = {}
        self._closing = threading.Lock()
        self._is_open = False
        self._opening: list[tuple[str, Arguments]] = []  # calls that opened tables and updates
        self._frozen: set[str] = set()
        self._batches = np.empty(0, np.int64)  # copied from another node, until the store is open

    @property
    def directory(self) -> Path:
        """Folder with the files of the store; made when rank 0 opens the store."""
        return Path(self._directory) / f"tfhybrid-{os.geteuid()}-{self._name}"

    def calls(self) -> dict[str, Called]:
        """Returns the functions that rank 0 may call over its connection, by name.

        They raise `TfhybridError` if the core refuses, and wait for updates where a call needs
        them.
        """
        return {
            "open_store": self._open_store,
            "opening": self._tell_opening,
            "versions": self._versions,
            "recover_store": self._recover_store,
            "last_updates": self._last_updates,
            "roll_forward": self._roll_forward,
            "forget_updates": self._forget_updates,
            "close_store": self._close_store,
            "readers": lambda _, __: (self.engine.readers(), {}),
            "open_table": self._open_table,
            "set_optimizer": self._set_optimizer,
            "forget_optimizer": self._forget_optimizer,
            "open_update": self._open_update,
            "wait": self._wait,
            "stats": self._stats,
            "count_nan": self._count_nan,
            "digest": self._digest,
            "set_version": self._set_version,
            "reserve": self._reserve,
            "write_rows": self._write_rows,
            "load_records": self._load_records,
            "remove_keys": self._remove_keys,
            "clear": self._clear,
            "set_decay": self._set_decay,
            "set_event_time": self._set_event_time,
            "track_changes": self._track_changes,
            "freeze": self._freeze,
            "return_changes": self._return_changes,
            "removed_keys": self._removed_keys,
            "write_part": self._write_part,
            "thaw": self._thaw,
        }

    def numbers(self) -> dict[str, float]:
        """Returns rows, bytes and updates of the store for the status page; empty if closed."""
        with self._closing:
            if not self._is_open:
                return {}
            stats = [self.engine.table_stats(name) for name in list(self._placements)]
        return {
            "rows": sum(each.rows for each in stats),
            "bytes": sum(each.bytes for each in stats),
            "updates": max((each.version for each in stats), default=0),
        }

    def take_batches(self, words: np.ndarray) -> None:
        """Keeps the batches of the node that had the rows before; `recover_store` restores them.

        Args:
            words: Batches as `split_batches.copied` returns them, int64.
        """
        self._batches = words

    def close(self) -> None:
        """Closes the store and its connections, unless rank 0 has closed them already.

        The files stay for the job's next run if `resumes` was set.
        """
        self._end(leave=self._resumes)

    def _end(self, *, leave: bool) -> None:
        with self._closing:
            if self._is_open:
                self._is_open = False
                self._placements = {}
                self.engine.close_store(leave=leave)

    def _open_store(self, arguments: Arguments, _: ReceivedArrays) -> Answer:
        reclaimed = self.engine.open_store(
            self._directory, self._name, 0, self._described, arguments["token"]
        )
        self._is_open = True
        for line in reclaimed.splitlines():
            _log.warning("Removed the store of a dead job, %s", line)
        return None, {}

    def _recover_store(self, _: Arguments, __: ReceivedArrays) -> Answer:
        token = self.engine.recover_store(self._directory, self._name, self._described)
        self._is_open = True
        split_batches.restore(self.engine, self._batches)
        self._batches = np.empty(0, np.int64)
        return {"token": token, "versions": self.engine.store_versions()}, {}

    def _last_updates(self, _: Arguments, __: ReceivedArrays) -> Answer:
        return None, {"updates": self.engine.last_updates()}

    def _roll_forward(self, _: Arguments, arrays: ReceivedArrays) -> Answer:
        self.engine.roll_forward(arrays["updates"])
        return self.engine.store_versions(), {}

    def _forget_updates(self, _: Arguments, __: ReceivedArrays) -> Answer:
        self.engine.forget_updates()
        return None, {}

    def _close_store(self, arguments: Arguments, _: ReceivedArrays) -> Answer:
        self._end(leave=arguments["leave"])
        return None, {}

    def _open_table(self, arguments: Arguments, _: ReceivedArrays) -> Answer:
        kind, a, b = arguments["initializer"]
        placement = native.PlacementKind(arguments["placement"][0]), int(arguments["placement"][1])
        path, cache_bytes = arguments["files"]
        self.engine.open_table(
            arguments["table"],
            arguments["dim"],
            (kind, a, b),
            seed=arguments["seed"],
            policy=arguments["policy"],
            placement=placement,
            files=(path, cache_bytes),
        )
        self._placements[arguments["table"]] = placement
        self._opening.append(("open_table", arguments))
        return None, {}

    def _set_optimizer(self, arguments: Arguments, _: ReceivedArrays) -> Answer:
        self.engine.set_optimizer(arguments["table"], **arguments["settings"])
        self._opening.append(("set_optimizer", arguments))
        return None, {}

    def _forget_optimizer(self, arguments: Arguments, _: ReceivedArrays) -> Answer:
        self._wait(arguments, {})
        self.engine.forget_optimizer(arguments["table"])
        table = arguments["table"]
        self._opening = [
            (call, opened)
            for call, opened in self._opening
            if (call, opened.get("table")) != ("set_optimizer", table)
            and not (call == "open_update" and table in opened["tables"])
        ]
        return None, {}

    def _open_update(self, arguments: Arguments, _: ReceivedArrays) -> Answer:
        choices = UpdateChoices(**arguments["choices"])
        self.engine.open_update(arguments["name"], arguments["tables"], choices, arguments["steps"])
        if ("open_update", arguments) not in self._opening:
            self._opening.append(("open_update", arguments))
        return None, {}

    def _tell_opening(self, _: Arguments, __: ReceivedArrays) -> Answer:
        """Returns the calls by which another node opens its copy of this store.

        Raises:
            StoreError: A table has rows in files, or is being saved: its rows cannot move.
        """
        in_files = [
            opened["table"]
            for call, opened in self._opening
            if call == "open_table" and opened["files"][0]
        ]
        if in_files or self._frozen:
            raise StoreError(
                f"A shard can move if no table has rows in files, and none is being saved. "
                f"Received: in files {in_files}, being saved {sorted(self._frozen)}"
            )
        return self._opening, {}

    def _versions(self, _: Arguments, __: ReceivedArrays) -> Answer:
        """Returns the version of each table, by name."""
        tables = list(self._placements)
        return {name: int(self.engine.table_stats(name).version) for name in tables}, {}

    def _wait(self, arguments: Arguments, _: ReceivedArrays) -> Answer:
        """Waits until a table has reached the version that the arguments name."""
        none = [np.empty(0, np.int64)]
        self.engine.read(
            {arguments["table"]: arguments["dim"]}, none, min_versions=[arguments["version"]]
        )
        return None, {}

    def _stats(self, arguments: Arguments, _: ReceivedArrays) -> Answer:
        struct = self.engine.table_stats(arguments["table"])
        return {name: getattr(struct, name) for name, *_ in struct._fields_}, {}

    def _count_nan(self, arguments: Arguments, _: ReceivedArrays) -> Answer:
        rows = ctypes.c_int64()
        self.engine.call("table_count_nan", arguments["table"].encode(), ctypes.byref(rows))
        return rows.value, {}

    def _digest(self, arguments: Arguments, _: ReceivedArrays) -> Answer:
        self._wait(arguments, {})
        return self.engine.digest(arguments["table"]), {}

    def _set_version(self, arguments: Arguments, _: ReceivedArrays) -> Answer:
        self.engine.set_version(arguments["table"], arguments["version"], arguments["start"])
        return None, {}

    def _reserve(self, arguments: Arguments, _: ReceivedArrays) -> Answer:
        """Reserves space for this shard's part of a table's rows."""
        kind, owner = self._placements[arguments["table"].removesuffix(native.WAITING_SUFFIX)]
        rows = int(arguments["rows"])
        if kind == native.PlacementKind.WHOLE:
            rows = rows if owner == self._number else 0
        elif self._nodes > 1:
            rows = -int(-rows * _UNEVENNESS // self._nodes)
        self._writer(arguments).reserve(rows)
        return None, {}

    def _write_rows(self, arguments: Arguments, arrays: ReceivedArrays) -> Answer:
        return self._writer(arguments).write_rows(block_of(arrays)), {}

    def _load_records(self, arguments: Arguments, _: ReceivedArrays) -> Answer:
        file = RecordFile(
            arguments["path"], dtype_of(arguments["dtype"]), arguments["header_bytes"]
        )
        self._writer(arguments).load_records(file)
        return None, {}

    def _remove_keys(self, arguments: Arguments, arrays: ReceivedArrays) -> Answer:
        self._writer(arguments).remove_keys(arrays["keys"])
        return None, {}

    def _clear(self, arguments: Arguments, _: ReceivedArrays) -> Answer:
        self._writer(arguments).clear()
        return None, {}

    def _set_decay(self, arguments: Arguments, _: ReceivedArrays) -> Answer:
        self._writer(arguments).set_decay(arguments["decay"])
        return None, {}

    def _set_event_time(self, arguments: Arguments, _: ReceivedArrays) -> Answer:
        self._writer(arguments).set_event_time(arguments["time"])
        return None, {}

    def _track_changes(self, arguments: Arguments, _: ReceivedArrays) -> Answer:
        self._writer(arguments).track_changes(arguments["cursor"])
        return None, {}

    def _freeze(self, arguments: Arguments, _: ReceivedArrays) -> Answer:
        self._wait(arguments, {})
        frozen = self._writer(arguments).freeze(
            arguments["cursor"], only_changed=arguments["only_changed"]
        )
        self._frozen.add(arguments["table"])
        return frozen, {}

    def _return_changes(self, arguments: Arguments, _: ReceivedArrays) -> Answer:
        self._writer(arguments).return_changes()
        return None, {}

    def _removed_keys(self, arguments: Arguments, _: ReceivedArrays) -> Answer:
        keys = self._writer(arguments).removed_keys(FrozenTable(*arguments["frozen"]))
        return None, {"keys": keys}

    def _write_part(self, arguments: Arguments, _: ReceivedArrays) -> Answer:
        try:
            return self._writer(arguments).write_part(arguments["part"], arguments["path"]), {}
        except StoreError as error:
            raise StoreError(
                f"{error}. Every embedding node writes its own rows, so it must see the directory"
            ) from error

    def _thaw(self, arguments: Arguments, _: ReceivedArrays) -> Answer:
        self._writer(arguments).thaw()
        self._frozen.discard(arguments["table"])
        return None, {}

    def _writer(self, arguments: Arguments) -> TableWriter:
        vectors, floats = arguments["state_shape"]
        waiting = None
        if arguments["waiting"]:
            name = arguments["table"] + native.WAITING_SUFFIX
            waiting = TableWriter(self.engine, name, 1, (0, 1), None, arguments["owned_as"])
        return TableWriter(
            self.engine,
            arguments["table"],
            arguments["dim"],
            (vectors, floats),
            waiting,
            arguments["owned_as"],
        )
