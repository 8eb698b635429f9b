"""An engine of the core: a host's store as this process sees it, without TensorFlow."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
from collections.abc import Iterator, Sequence

import numpy as np

from tfhybrid.core import native
from tfhybrid.core.meetings import Meeting, Standing
from tfhybrid.core.update import Update, UpdateChoices

# How long a rank waits for its leader to make a table; the leader may be loading data first.
_OPEN_TIMEOUT_MS = 120_000


class Engine:
    """The store of a job's host, its tables and their updates; a process may have several.

    It holds one store after another: `open_store` or `recover_store` begins, `close_store` ends.

    Args:
        hosts: The host of each rank of the job; ranks of a host follow each other.
        host: This one.
        nodes: Embedding nodes of the job. They count as hosts behind those of ranks, and own the
            sharded tables where there are some.

    Attributes:
        number: By which the C interface and TensorFlow's ops name it; never given twice.
        handle: The number, as C takes it.
        meetings: What each meeting is that this rank may begin, by signature.

    Raises:
        ConfigError: This one is neither in `hosts` nor an embedding node.
    """

    def __init__(self, hosts: Sequence[int] = (0,), host: int = 0, nodes: int = 0) -> None:
        self.hosts = tuple(hosts)
        self.host = host
        self.nodes = nodes
        number = ctypes.c_int64()
        every = (ctypes.c_int64 * len(self.hosts))(*self.hosts)
        native.call(
            "engine_reserve",
            every,
            ctypes.c_int(len(self.hosts)),
            ctypes.c_int64(nodes),
            ctypes.c_int64(host),
            ctypes.byref(number),
        )
        self.handle = number
        self.number = number.value
        self.meetings: dict[int, Meeting] = {}

    @property
    def other_owners(self) -> list[int]:
        """The hosts beside this one that have rows of sharded tables: nodes where there are any."""
        ranked = max(self.hosts) + 1
        if self.nodes:
            return [host for host in range(ranked, ranked + self.nodes) if host != self.host]
        return [host for host in range(ranked) if host != self.host]

    def call(self, function: str, *arguments: object) -> None:
        """Calls a function of the C interface that takes an engine; as `native.call`."""
        native.call(function, self.handle, *arguments)

    def open_store(
        self, directory: str, job: str, local_rank: int, description: str, token: int
    ) -> str:
        """Opens the store: the leader makes it, others attach it.

        Args:
            directory: In shared memory.
            job: Name of the job.
            local_rank: Of this process; 0 leads.
            description: What it calls itself.
            token: Of the store; other ranks attach no other.

        Returns:
            What was reclaimed from dead jobs, a line each.

        Raises:
            TfhybridError: It cannot be made, or is not there; or one is open.
        """
        return native.text(
            "store_open",
            self.handle,
            directory.encode(),
            job.encode(),
            ctypes.c_int(local_rank),
            description.encode(),
            ctypes.c_uint64(token),
            again=False,
        )

    def recover_store(self, directory: str, job: str, description: str) -> int:
        """Opens the store that a dead job left on this host, as its leader; returns its token."""
        token = ctypes.c_uint64()
        self.call(
            "store_recover",
            directory.encode(),
            job.encode(),
            description.encode(),
            ctypes.byref(token),
        )
        return token.value

    def close_store(self, *, leave: bool = False) -> None:
        """Closes the store, if one is open; the last process of a job removes it, or leaves it."""
        native.close_store(self.number, leave)

    def store_versions(self) -> dict[str, int]:
        """Returns the version of each table of the store that was recovered, by its file."""
        return self._by_file("store_versions")

    def store_digests(self) -> dict[str, int]:
        """Returns the digest of each table of the store that was recovered, by its file."""
        return self._by_file("store_digests")

    def last_updates(self) -> np.ndarray:
        """Returns the last updates of a recovered store, for `roll_forward` on another host."""
        return native.words(np.int64, "last_updates", self.handle)

    def roll_forward(self, updates: np.ndarray) -> None:
        """Applies those updates of another host that this one's tables lack."""
        self.call("roll_forward", native.pointer(updates), ctypes.c_int64(len(updates)))

    def forget_updates(self) -> None:
        """Ends the recovery: the next updates are the job's own."""
        self.call("forget_updates")

    def rank_state(self, local_rank: int) -> tuple[native.RankState, str]:
        """Returns what became of a rank of this host, and the description it gave of itself."""
        state = ctypes.c_int()
        description = native.text(
            "rank_state",
            self.handle,
            ctypes.c_int(local_rank),
            ctypes.byref(state),
        )
        return native.RankState(state.value), description

    def standing(self) -> Standing:
        """Returns where this rank is among the meetings of all ranks."""
        standing = Standing()
        self.call("standing_get", ctypes.byref(standing))
        return standing

    @contextlib.contextmanager
    def meeting(self, meeting: Meeting) -> Iterator[None]:
        """Notes that this rank is in a meeting meanwhile."""
        self.meetings[meeting.signature] = meeting
        number = ctypes.c_uint64()
        names = ctypes.c_uint64(meeting.signature), ctypes.c_uint64(meeting.series)
        self.call("meeting_begin", *names, ctypes.byref(number))
        try:
            yield
        finally:
            self.call("meeting_end", number)

    def open_table(
        self,
        name: str,
        dim: int,
        initializer: tuple[int, float, float],
        *,
        seed: int = 0,
        policy: dict[str, float] | None = None,
        placement: tuple[native.PlacementKind, int] = (native.PlacementKind.REPLICATED, 0),
        files: tuple[str, int] = ("", 0),
    ) -> None:
        """Opens a table in the engine's store; the leader makes it, the others wait for that.

        Args:
            name: Of the table.
            dim: Floats of an embedding.
            initializer: `native` of one of `tfhybrid.initializers`.
            seed: Of the job.
            policy: Fields of `native.RowPolicyStruct`; by default no row is ever waited for or
                removed.
            placement: How its rows lie on the hosts of the job, and the host that has all of them,
                where one has; equal on all ranks.
            files: `native` of a `tfhybrid.FileTier`; by default rows lie in memory.

        Raises:
            TfhybridError: It is open with another configuration, or did not come in time.
        """
        config = native.TableConfigStruct(
            name.encode(),
            dim,
            *initializer,
            seed,
            native.RowPolicyStruct(**(policy or {})),
            *placement,
            os.fsencode(files[0]),
            files[1],
        )
        self.call("table_open", ctypes.byref(config), ctypes.c_int(_OPEN_TIMEOUT_MS))

    def connect_owner(
        self, host: int, purpose: native.LinkPurpose, link: socket.socket, peer: str
    ) -> None:
        """Hands a connection to the leader of another host to the engine.

        Args:
            host: The other host.
            purpose: What it is for.
            link: A connected stream socket, the engine's from now on.
            peer: What the leader calls itself, for messages.

        Raises:
            TfhybridError: There is no such host, or no store is open.
        """
        self._hand_over("owners_connect", host, purpose, link, peer)

    def serve_owner(
        self, host: int, purpose: native.LinkPurpose, link: socket.socket, peer: str
    ) -> None:
        """Lets the engine serve a connection that a rank of another host has made; as above."""
        self._hand_over("owners_serve", host, purpose, link, peer)

    def _hand_over(
        self, function: str, host: int, purpose: native.LinkPurpose, link: socket.socket, peer: str
    ) -> None:
        link.setblocking(True)  # it has limits of its own
        self.call(
            function,
            ctypes.c_int64(host),
            ctypes.c_int(purpose),
            ctypes.c_int(link.detach()),
            peer.encode(),
        )

    def owned(self, name: str, keys: np.ndarray) -> np.ndarray:
        """Returns for each key whether this host has its row, or would have: bool `[n]`.

        Args:
            name: Of the table.
            keys: int64 `[n]`.
        """
        found = np.empty(len(keys), np.uint8)
        keys = np.ascontiguousarray(keys, np.int64)
        self.call(
            "table_owned",
            name.encode(),
            ctypes.c_int64(len(keys)),
            native.pointer(keys),
            native.pointer(found),
        )
        return found.astype(bool)

    def lookup(self, name: str, dim: int, keys: np.ndarray) -> np.ndarray:
        """Returns embeddings, from whichever host has the rows.

        Waits until the tables have the updates that this rank has taken part in.

        Args:
            name: Of the table.
            dim: Of the table.
            keys: int64, any shape.

        Returns:
            float32, `keys.shape + (dim,)`.
        """
        keys = np.asarray(keys, np.int64, order="C")
        out = np.empty((*keys.shape, dim), np.float32)
        self.call(
            "table_lookup",
            name.encode(),
            ctypes.c_int64(keys.size),
            native.pointer(keys),
            native.pointer(out),
        )
        return out

    def set_optimizer(self, name: str, **settings: float) -> None:
        """Gives a table its optimizer; the leader alone.

        Args:
            name: Of the table.
            **settings: Fields of `native.OptimizerConfigStruct`; those that are left out are 0.

        Raises:
            TfhybridError: A setting cannot be, or this process does not lead.
        """
        self.call(
            "table_set_optimizer",
            name.encode(),
            ctypes.byref(native.OptimizerConfigStruct(**settings)),
        )

    def forget_optimizer(self, name: str) -> None:
        """Ends the updates that were opened for a table, which shall have another optimizer.

        Every rank calls it. On the leader the table has no optimizer and no state afterwards.
        """
        self.call("table_forget_optimizer", name.encode())

    def digest(self, name: str) -> int:
        """Returns a hash by which two hosts see whether a table's replicas are equal, bit for bit.

        On a leader it covers keys, embeddings and optimizer state, elsewhere keys and embeddings.
        """
        value = ctypes.c_uint64()
        self.call("table_digest", name.encode(), ctypes.byref(value))
        return value.value

    def table_stats(self, name: str) -> native.TableStatsStruct:
        """Returns the counters of a table on this host."""
        struct = native.TableStatsStruct()
        self.call("table_stats_get", name.encode(), ctypes.byref(struct))
        return struct

    def count_nan(self, name: str) -> int:
        """Returns how many embeddings of a table on this host hold a NaN; reads them all."""
        rows = ctypes.c_int64()
        self.call("table_count_nan", name.encode(), ctypes.byref(rows))
        return rows.value

    def set_version(self, name: str, version: int, optimizer_start: int) -> None:
        """Continues a table from a version after loading.

        Args:
            name: Of the table.
            version: Updates that were applied.
            optimizer_start: The version at which its optimizer began.
        """
        numbers = ctypes.c_uint64(version), ctypes.c_uint64(optimizer_start)
        self.call("table_set_version", name.encode(), *numbers)

    def wait(self, table: str) -> None:
        """Waits until a table has the updates that this rank has taken part in.

        Raises:
            TfhybridError: Why one of them failed.
        """
        self.call("table_wait", table.encode())

    def read(
        self,
        tables: dict[str, int],
        keys: Sequence[np.ndarray],
        *,
        min_versions: Sequence[int] | None = None,
        timeout_seconds: float = 60.0,
    ) -> tuple[list[np.ndarray], list[int]]:
        """Reads embeddings of several tables as they all were after one update, beside training.

        Args:
            tables: Name and dim of each.
            keys: int64 `[n]` of each table.
            min_versions: The least version of each table that will do; by default any.
            timeout_seconds: How long to wait for that.

        Returns:
            Embeddings, float32 `[n, dim]`, and the version, of each table.

        Raises:
            TfhybridError: The versions were not reached in time, or the leader died.
        """
        keys = [np.ascontiguousarray(of_table, np.int64) for of_table in keys]
        rows = [
            np.empty((len(some), dim), np.float32)
            for some, dim in zip(keys, tables.values(), strict=True)
        ]
        count = len(tables)
        versions = (ctypes.c_uint64 * count)()
        self.call(
            "read",
            ctypes.c_int(count),
            (ctypes.c_char_p * count)(*(name.encode() for name in tables)),
            None if min_versions is None else (ctypes.c_uint64 * count)(*min_versions),
            (ctypes.c_int64 * count)(*map(len, keys)),
            native.pointers(keys),
            native.pointers(rows),
            ctypes.c_int(round(timeout_seconds * 1000)),
            versions,
        )
        return rows, list(versions)

    def open_update(
        self,
        name: str,
        tables: dict[str, int],
        choices: UpdateChoices | None = None,
        steps: int = 0,
    ) -> Update:
        """Opens an update of some tables, or returns the one that is open.

        Args:
            name: Tells it from other updates; equal on all ranks.
            tables: Name and dim of each, which are open.
            choices: How it is done; later the same.
            steps: That the job has done of it, where rows of an embedding node are taken over.

        Raises:
            ConfigError: A choice cannot be, or the update is open with others.
            StoreError: No store is open, or a table is not open in it.
        """
        choices = choices or UpdateChoices()
        messages = len(set(self.hosts)) if choices.exchange == "owner" else 1
        return Update(self.handle, name, tables, messages, choices, steps)

    def _by_file(self, function: str) -> dict[str, int]:
        lines = native.text(function, self.handle).split("\n")[:-1]
        return {file: int(number) for number, file in (line.split(" ") for line in lines)}
