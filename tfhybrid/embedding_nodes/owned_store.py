"""The store of an embedding node while a job uses it: what the job's rank 0 may ask for.

Rows and updates come past this, on connections that the core serves. Here is the rest: tables and
updates are opened as rank 0 opens its own, loaded, saved and counted.
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
from tfhybrid.rpc.calls import Answer, Called

_log = logging.getLogger("tfhybrid.embedding_nodes")

_LONGEST_NAME = 64  # of a job
_UNEVENNESS = 1.05  # of the shares of a table, which a hash deals out

Arguments = dict[str, Any]
Found = dict[str, np.ndarray]


class OwnedStore:
    """Tables of a job, on one of its embedding nodes.

    Args:
        directory: In shared memory.
        node: Name of this node. The store is called after job and node: others may be beside it.
        described: What this process calls itself.
        arguments: `job`, `hosts` and `nodes` as of `Engine`, `number` of this node among the nodes,
            and whether the job `resumes`: its next run finds the store, if this one dies.
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
        place = f".{node}.{self._number}"
        self._name = f"{self.job[: _LONGEST_NAME - len(place)]}{place}"
        self._resumes = bool(arguments["resumes"])
        self._placements: dict[str, tuple[native.PlacementKind, int]] = {}
        self._closing = threading.Lock()
        self._is_open = False
        self._opening: list[tuple[str, Arguments]] = []  # the calls that made what is open
        self._frozen: set[str] = set()
        self._batches = np.empty(0, np.int64)  # to hold once the store is open

    @property
    def directory(self) -> Path:
        """Where the files of the store lie."""
        return Path(self._directory) / f"tfhybrid-{os.geteuid()}-{self._name}"

    def calls(self) -> dict[str, Called]:
        """Returns what may be asked."""
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
        """Returns what it holds, for the status page."""
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
        """Holds the batches of the node that had the rows, once `recover_store` has opened them.

        Args:
            words: As of `batches.copied`.
        """
        self._batches = words

    def close(self) -> None:
        """Ends all connections, and what the job did not: it died."""
        self._end(leave=self._resumes)

    def _end(self, *, leave: bool) -> None:
        with self._closing:
            if self._is_open:
                self._is_open = False
                self._placements = {}
                self.engine.close_store(leave=leave)

    def _open_store(self, its: Arguments, _: Found) -> Answer:
        reclaimed = self.engine.open_store(
            self._directory, self._name, 0, self._described, its["token"]
        )
        self._is_open = True
        for line in reclaimed.splitlines():
            _log.warning("Removed the store of a dead job, %s", line)
        return None, {}

    def _recover_store(self, _: Arguments, __: Found) -> Answer:
        token = self.engine.recover_store(self._directory, self._name, self._described)
        self._is_open = True
        split_batches.restore(self.engine, self._batches)
        self._batches = np.empty(0, np.int64)
        return {"token": token, "versions": self.engine.store_versions()}, {}

    def _last_updates(self, _: Arguments, __: Found) -> Answer:
        return None, {"updates": self.engine.last_updates()}

    def _roll_forward(self, _: Arguments, arrays: Found) -> Answer:
        self.engine.roll_forward(arrays["updates"])
        return self.engine.store_versions(), {}

    def _forget_updates(self, _: Arguments, __: Found) -> Answer:
        self.engine.forget_updates()
        return None, {}

    def _close_store(self, its: Arguments, _: Found) -> Answer:
        self._end(leave=its["leave"])
        return None, {}

    def _open_table(self, its: Arguments, _: Found) -> Answer:
        kind, a, b = its["initializer"]
        placement = native.PlacementKind(its["placement"][0]), int(its["placement"][1])
        path, cache_bytes = its["files"]
        self.engine.open_table(
            its["table"],
            its["dim"],
            (kind, a, b),
            seed=its["seed"],
            policy=its["policy"],
            placement=placement,
            files=(path, cache_bytes),
        )
        self._placements[its["table"]] = placement
        self._opening.append(("open_table", its))
        return None, {}

    def _set_optimizer(self, its: Arguments, _: Found) -> Answer:
        self.engine.set_optimizer(its["table"], **its["settings"])
        self._opening.append(("set_optimizer", its))
        return None, {}

    def _forget_optimizer(self, its: Arguments, _: Found) -> Answer:
        self._wait(its, {})
        self.engine.forget_optimizer(its["table"])
        table = its["table"]
        self._opening = [
            (call, its)
            for call, its in self._opening
            if (call, its.get("table")) != ("set_optimizer", table)
            and not (call == "open_update" and table in its["tables"])
        ]
        return None, {}

    def _open_update(self, its: Arguments, _: Found) -> Answer:
        choices = UpdateChoices(**its["choices"])
        self.engine.open_update(its["name"], its["tables"], choices, its["steps"])
        if ("open_update", its) not in self._opening:
            self._opening.append(("open_update", its))
        return None, {}

    def _tell_opening(self, _: Arguments, __: Found) -> Answer:
        """What another node is to call, which takes over a copy of this store."""
        in_files = [
            its["table"] for call, its in self._opening if call == "open_table" and its["files"][0]
        ]
        if in_files or self._frozen:
            raise StoreError(
                f"Rows move once no table is being saved, and where none lies in files. "
                f"Received: in files {in_files}, being saved {sorted(self._frozen)}"
            )
        return self._opening, {}

    def _versions(self, _: Arguments, __: Found) -> Answer:
        """What the tables are at."""
        tables = list(self._placements)
        return {name: int(self.engine.table_stats(name).version) for name in tables}, {}

    def _wait(self, its: Arguments, _: Found) -> Answer:
        """Until the table has the updates that the job knows of."""
        none = [np.empty(0, np.int64)]
        self.engine.read({its["table"]: its["dim"]}, none, min_versions=[its["version"]])
        return None, {}

    def _stats(self, its: Arguments, _: Found) -> Answer:
        struct = self.engine.table_stats(its["table"])
        return {name: getattr(struct, name) for name, *_ in struct._fields_}, {}

    def _count_nan(self, its: Arguments, _: Found) -> Answer:
        rows = ctypes.c_int64()
        self.engine.call("table_count_nan", its["table"].encode(), ctypes.byref(rows))
        return rows.value, {}

    def _digest(self, its: Arguments, _: Found) -> Answer:
        self._wait(its, {})
        return self.engine.digest(its["table"]), {}

    def _set_version(self, its: Arguments, _: Found) -> Answer:
        self.engine.set_version(its["table"], its["version"], its["start"])
        return None, {}

    def _reserve(self, its: Arguments, _: Found) -> Answer:
        """Room for this node's part of so many rows."""
        kind, owner = self._placements[its["table"].removesuffix(native.WAITING_SUFFIX)]
        rows = int(its["rows"])
        if kind == native.PlacementKind.WHOLE:
            rows = rows if owner == self._number else 0
        elif self._nodes > 1:
            rows = -int(-rows * _UNEVENNESS // self._nodes)
        self._writer(its).reserve(rows)
        return None, {}

    def _write_rows(self, its: Arguments, arrays: Found) -> Answer:
        return self._writer(its).write_rows(block_of(arrays)), {}

    def _load_records(self, its: Arguments, _: Found) -> Answer:
        file = RecordFile(its["path"], dtype_of(its["dtype"]), its["header_bytes"])
        self._writer(its).load_records(file)
        return None, {}

    def _remove_keys(self, its: Arguments, arrays: Found) -> Answer:
        self._writer(its).remove_keys(arrays["keys"])
        return None, {}

    def _clear(self, its: Arguments, _: Found) -> Answer:
        self._writer(its).clear()
        return None, {}

    def _set_decay(self, its: Arguments, _: Found) -> Answer:
        self._writer(its).set_decay(its["decay"])
        return None, {}

    def _set_event_time(self, its: Arguments, _: Found) -> Answer:
        self._writer(its).set_event_time(its["time"])
        return None, {}

    def _track_changes(self, its: Arguments, _: Found) -> Answer:
        self._writer(its).track_changes(its["cursor"])
        return None, {}

    def _freeze(self, its: Arguments, _: Found) -> Answer:
        self._wait(its, {})
        frozen = self._writer(its).freeze(its["cursor"], only_changed=its["only_changed"])
        self._frozen.add(its["table"])
        return frozen, {}

    def _return_changes(self, its: Arguments, _: Found) -> Answer:
        self._writer(its).return_changes()
        return None, {}

    def _removed_keys(self, its: Arguments, _: Found) -> Answer:
        keys = self._writer(its).removed_keys(FrozenTable(*its["frozen"]))
        return None, {"keys": keys}

    def _write_part(self, its: Arguments, _: Found) -> Answer:
        try:
            return self._writer(its).write_part(its["part"], its["path"]), {}
        except StoreError as error:
            raise StoreError(
                f"{error}. Embedding nodes write their rows themselves: they must see the directory"
            ) from error

    def _thaw(self, its: Arguments, _: Found) -> Answer:
        self._writer(its).thaw()
        self._frozen.discard(its["table"])
        return None, {}

    def _writer(self, its: Arguments) -> TableWriter:
        vectors, floats = its["state_shape"]
        waiting = None
        if its["waiting"]:
            name = its["table"] + native.WAITING_SUFFIX
            waiting = TableWriter(self.engine, name, 1, (0, 1), None, its["owned_as"])
        return TableWriter(
            self.engine, its["table"], its["dim"], (vectors, floats), waiting, its["owned_as"]
        )
